import type { LaneStore } from "../core/lane-store.ts";
import type { Running } from "./running.ts";

/** Tells of the jobs that a worker has fetched and not begun: all may know of those that wait for long, to say when others start. */
export interface HeldJobs {
  /** A job was fetched. */
  fetched(): void;
  /** One begins, or goes back. */
  begun(): void;
  close(): Promise<void>;
}

/** Who begins sooner is told of nowhere: where all goes at once, this costs Redis nothing. */
const SOON_MS = 100;
/** While jobs wait for longer, they are told so often; what is told holds for so long. */
const TELL_MS = 250;
const HOLDS_FOR_MS = 3_000;
/** Of more, the first ones are told; a look takes those that were fetched after the last of them to wait as well. */
const MOST_TOLD = 1_000;

export function createHeldJobs(parts: {
  readonly lanes: Pick<LaneStore, "hold">;
  readonly queue: string;
  readonly worker: string;
  readonly running: Pick<Running, "unbegun" | "waitingSince">;
}): HeldJobs {
  const { lanes, queue, worker, running } = parts;
  let isTold = false;
  let telling: Promise<void> | undefined;
  let timer: NodeJS.Timeout | undefined;
  let isClosed = false;

  function lookIn(ms: number): void {
    if (timer === undefined && !isClosed) timer = setTimeout(look, ms).unref();
  }

  function look(): void {
    timer = undefined;
    tell();
    if (running.unbegun > 0) lookIn(isTold ? TELL_MS : SOON_MS);
  }

  function tell(): void {
    // While Redis is away one is on its way, and no more.
    if (telling !== undefined) return;
    const ids = waitingForLong();
    if (ids.length === 0 && !isTold) return;
    isTold = ids.length > 0;
    // What cannot be told now is told the next time, and what was told ends by itself.
    telling = lanes
      .hold(queue, { worker, ids, forMs: HOLDS_FOR_MS })
      .catch(() => undefined)
      .then(() => {
        telling = undefined;
        if (running.unbegun === 0) tell();
      });
  }

  /** One that has lost its lock and was fetched again is here twice. */
  function waitingForLong(): string[] {
    if (isClosed) return [];
    const ids = new Set<string>();
    for (const id of running.waitingSince(performance.now() - SOON_MS)) {
      if (ids.size === MOST_TOLD) break;
      ids.add(id);
    }
    return [...ids];
  }

  return {
    fetched: () => lookIn(SOON_MS),
    begun() {
      if (isTold && running.unbegun === 0) tell();
    },
    async close() {
      isClosed = true;
      clearTimeout(timer);
      await telling;
      tell();
      await telling;
    },
  };
}
