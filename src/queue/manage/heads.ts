import type { LaneStore } from "../../core/stores/queue/store.ts";
import { storedKeyOf, type Stored } from "../bullmq/stored-job.ts";
import type { StoredAccess } from "../bullmq/stored-queue.ts";

/** Does something with a job that may keep its ordered key waiting: once it was done, workers look at that key. */
export type FreeKey = (id: string, act: () => Promise<boolean>) => Promise<boolean>;

/** Without it, workers find out within seconds. In a queue that has no order, nothing is asked. */
export function createFreeKey({
  queue,
  access,
  lanes,
  isOrdered,
}: {
  readonly queue: string;
  readonly access: StoredAccess;
  readonly lanes: Pick<LaneStore, "lookAtHeads">;
  readonly isOrdered: boolean;
}): FreeKey {
  if (!isOrdered) return (_id, act) => act();

  async function keyOf(id: string): Promise<string | undefined> {
    const found = await access.ask((stored) => stored.getJob(id));
    return found && storedKeyOf(found as Stored<unknown>);
  }

  return async (id, act) => {
    const key = await keyOf(id);
    const hasActed = await act();
    if (hasActed && key !== undefined) {
      // It was done: to reject would say that it was not.
      await access.ask(() => lanes.lookAtHeads(queue, [key])).catch(() => undefined);
    }
    return hasActed;
  };
}
