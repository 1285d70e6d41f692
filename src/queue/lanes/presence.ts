/**
 * Tells Redis that a worker is alive, how many jobs it can have at once, and what came of its attempts: `eta()` and
 * `forecast()` promise nothing for a queue without a worker, and `status()` sums up all of that. One that is killed, or
 * stands still, stops counting within seconds; an idle one within twelve.
 */
import type { Ended } from "../../stores/redis/scripts/queue/steering.ts";
import type { LaneStore } from "../../stores/redis/queue/store.ts";

export interface Presence {
  /** Says that the worker is no more; never rejects. */
  close(): Promise<void>;
  /** Tells what came of the attempts that ended after that; never rejects. */
  tellLast(): Promise<void>;
}

/** How often a worker says so, and for how long that holds. */
const EVERY_MS = 1_000;
const HOLDS_FOR_MS = 3_500;
/** The same for a worker that has nothing to do: an idle process is to ask Redis seldom. */
const IDLE_EVERY_MS = 10_000;
const IDLE_HOLDS_FOR_MS = 12_000;

export function createPresence({
  lanes,
  queue,
  workerId: worker,
  concurrency: places,
  isIdle,
  tally,
}: {
  readonly lanes: Pick<LaneStore, "noteWorker">;
  readonly queue: string;
  readonly workerId: string;
  readonly concurrency: number;
  readonly isIdle: () => boolean;
  /** The attempts that have ended since the last call; and takes them back if they could not be told. */
  readonly tally: { take(): Ended; giveBack(ended: Ended): void };
}): Presence {
  /** One is under way at a time, also while Redis is away. */
  let noting: Promise<void> | undefined;
  /** When an idle worker is to say so next, on `performance.now()`: while what it said last still holds. */
  let dueAtMs = -Infinity;
  async function note(forMs: number): Promise<void> {
    const ended = tally.take();
    try {
      await lanes.noteWorker({ queue, worker, places, forMs, ended });
    } catch {
      // While Redis does not answer, nobody can ask how many workers there are.
      dueAtMs = -Infinity;
      tally.giveBack(ended);
    }
  }

  function beat(): void {
    const idle = isIdle();
    const nowMs = performance.now();
    if (noting !== undefined || (idle && nowMs < dueAtMs - EVERY_MS / 2)) return;
    dueAtMs = nowMs + (idle ? IDLE_EVERY_MS : EVERY_MS);
    noting = note(idle ? IDLE_HOLDS_FOR_MS : HOLDS_FOR_MS).finally(() => {
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
    tellLast: () => note(0),
  };
}
