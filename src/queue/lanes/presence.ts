/**
 * Tells Redis that a worker is alive, and how many jobs it can have at once: `eta()` and `forecast()` promise nothing for a
 * queue without a worker. One that is killed, or stands still, stops counting within seconds.
 */
import type { LaneStore } from "../../core/queue-store.ts";

export interface Presence {
  /** Says that the worker is no more; never rejects. */
  close(): Promise<void>;
}

/** How often a worker says so, and for how long that holds. */
const EVERY_MS = 1_000;
const HOLDS_FOR_MS = 3_500;

export function createPresence({
  lanes,
  queue,
  workerId: worker,
  concurrency: places,
}: {
  readonly lanes: Pick<LaneStore, "noteWorker">;
  readonly queue: string;
  readonly workerId: string;
  readonly concurrency: number;
}): Presence {
  /** One is under way at a time, also while Redis is away. */
  let noting: Promise<void> | undefined;
  const note = (forMs: number): Promise<void> =>
    // While Redis does not answer, nobody can ask how many workers there are.
    lanes.noteWorker(queue, { worker, places, forMs }).catch(() => undefined);

  function beat(): void {
    noting ??= note(HOLDS_FOR_MS).finally(() => {
      noting = undefined;
    });
  }

  const timer = setInterval(beat, EVERY_MS).unref();
  beat();
  return {
    async close() {
      clearInterval(timer);
      await noting;
      await note(0);
    },
  };
}
