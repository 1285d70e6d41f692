import type { LaneStore } from "../../core/stores/queue/store.ts";

/** How often a job may go to a worker and back while it is about to be removed. */
const MOST_ROUNDS = 5;

/** Cancels a job; `remove` removes one that waits, and tells whether it did. False if the job has ended or is gone. */
export async function cancelJob(
  { queue, lanes }: { readonly queue: string; readonly lanes: Pick<LaneStore, "cancel"> },
  id: string,
  remove: () => Promise<boolean>,
): Promise<boolean> {
  for (let round = 0; round < MOST_ROUNDS; round += 1) {
    const found = await lanes.cancel(queue, id);
    if (found === "scheduled") return remove();
    if (found === "held") return true;
    // After the first round no worker begins it: who removed it did so since it was cancelled.
    if (found === "over") return round > 0;
    if (await remove()) return true;
  }
  return true;
}
