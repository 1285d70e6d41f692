/** What of a queue's steering is noted in the log of changes: pauses, and what changes many jobs at once. */
import type { WhoAndWhy } from "../../core/input/who-and-why.ts";
import type { ChangeFacts, QueueAction } from "../../core/stores/insight/steering.ts";
import type { SteeringLog } from "../../core/stores/insight/steering-log.ts";
import type { QueueCounts } from "../../core/stores/queue/store.ts";

interface BulkChange extends WhoAndWhy {
  readonly action: QueueAction;
  /** The jobs that are meant: those of a key, by its text, and of what else was asked for. */
  readonly filter: Readonly<Record<string, unknown>>;
}

/** Makes a change of many jobs, and notes it with how many jobs there were before and after. */
export type NoteBulk = (change: BulkChange, how: () => Promise<number>) => Promise<number>;

/** How much of a filter's text the log keeps. */
const MOST_OF_TEXT = 200;

export function createNoteBulk({
  queue,
  log,
  counts,
}: {
  readonly queue: string;
  readonly log: SteeringLog;
  readonly counts: () => Promise<QueueCounts>;
}): NoteBulk {
  const look = async (): Promise<ChangeFacts> => ({ ...(await counts()) });
  return async ({ action, filter: { key, ...filter }, by, reason }, how) => {
    // Where jobs cannot be counted, it may still be possible to remove some.
    const before = await look().catch(() => undefined);
    const change = { queue, action, key: key as string | undefined, filter: factsOf(filter) };
    return log.make({ ...change, by, reason, before }, how, async (jobs) => ({
      jobs,
      after: await look().catch(() => undefined),
    }));
  };
}

function factsOf(filter: Readonly<Record<string, unknown>>): ChangeFacts | undefined {
  const given = Object.entries(filter).filter(([, value]) => value !== undefined);
  if (given.length === 0) return undefined;
  return Object.fromEntries(
    given.map(([name, value]) => [
      name,
      typeof value === "number" ? value : String(value).slice(0, MOST_OF_TEXT),
    ]),
  );
}
