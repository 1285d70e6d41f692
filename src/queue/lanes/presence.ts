/**
 * Reports to Redis that a worker is alive, how many jobs it can run at once, and how its attempts ended. `eta()` and
 * `forecast()` give no time for a queue without a worker, and `status()` adds up the attempts. A worker that dies or
 * hangs stops counting within seconds, an idle one within twelve seconds.
 */
import type { Ended } from "../../stores/redis/scripts/queue/steering.ts";
import type { LaneStore } from "../../stores/redis/queue/store.ts";

export interface Presence {
  /** Reports that the worker has ended. Never rejects. */
  close(): Promise<void>;
  /** Reports the attempts that ended after `close()`. Never rejects. */
  tellLast(): Promise<void>;
}

/** How often a busy worker reports, and how long a report is valid. */
const EVERY_MS = 1_000;
const HOLDS_FOR_MS = 3_500;
/** The same for an idle worker, which should rarely send requests to Redis. */
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
  /** Takes the attempts that ended since the last call, and gets them back if the report failed. */
  readonly tally: { take(): Ended; giveBack(ended: Ended): void };
}): Presence {
  /** One report is in flight at a time, even while Redis is unreachable. */
  let noting: Promise<void> | undefined;
  /** When an idle worker reports next, on `performance.now()`. Its last report is valid until then. */
  let dueAtMs = -Infinity;
  async function note(forMs: number): Promise<void> {
    const ended = tally.take();
    try {
      await lanes.noteWorker({ queue, worker, places, forMs, ended });
    } catch {
      // The next beat reports again.
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
