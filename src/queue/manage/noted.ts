/** Notes changes of many jobs of a queue in the change log. */
import type { WhoAndWhy } from "../../core/input/who-and-why.ts";
import {
  filterFacts,
  type ChangeFacts,
  type QueueAction,
} from "../../core/stores/insight/changes.ts";
import type { ChangeLog } from "../../core/stores/insight/change-log.ts";
import type { QueueCounts } from "../../stores/redis/scripts/queue/steering.ts";

interface BulkChange extends WhoAndWhy {
  readonly action: QueueAction;
  /** Which jobs are meant: the text of a key, and the other fields of the filter. */
  readonly filter: Readonly<Record<string, unknown>>;
}

/** Makes a change of many jobs, and notes it with the job counts before and after. */
export type NoteBulk = (change: BulkChange, how: () => Promise<number>) => Promise<number>;

export function createNoteBulk({
  queue,
  log,
  counts,
}: {
  readonly queue: string;
  readonly log: ChangeLog;
  readonly counts: () => Promise<QueueCounts>;
}): NoteBulk {
  const look = async (): Promise<ChangeFacts> => ({ ...(await counts()) });
  return async ({ action, filter: { key, ...filter }, by, reason }, how) => {
    // Jobs can sometimes be removed although they cannot be counted.
    const before = await look().catch(() => undefined);
    const change = { queue, action, key: key as string | undefined, filter: filterFacts(filter) };
    return log.make({ ...change, by, reason, before }, how, async (jobs) => ({
      jobs,
      after: await look().catch(() => undefined),
    }));
  };
}
