import type { LaneStore } from "../../core/queue-store.ts";
import type { Running } from "./context.ts";

/** Tells of the jobs that a worker has fetched and not begun: all may know of those that wait for long, to say when others start. */
export interface FetchedJobs {
  /** A job was fetched. */
  fetched(): void;
  /** One begins, or goes back. */
  begun(id: string): void;
  close(): Promise<void>;
}

/** While none waits for longer, nothing is told: where all goes at once, this costs Redis nothing. */
const LONG_MS = 50;
/** Else all that wait are told so often, for so long; while they are the same, only so often. */
const TELL_MS = 100;
const HOLDS_FOR_MS = 3_000;
const AGAIN_MS = 1_000;
/** Of more, the first ones are told; a look takes those that were fetched after the last of them to wait as well. */
const MOST_TOLD = 1_000;

export function createFetchedJobs(parts: {
  readonly lanes: Pick<LaneStore, "reportFetched">;
  readonly queue: string;
  readonly worker: string;
  readonly running: Pick<Running, "unbegun" | "waiting">;
}): FetchedJobs {
  const { lanes, queue, worker, running } = parts;
  let told: readonly string[] = [];
  let toldAtMs = 0;
  /** Those of them that wait still. */
  let left = new Set<string>();
  let telling: Promise<void> | undefined;
  let timer: NodeJS.Timeout | undefined;
  let isClosed = false;

  function lookIn(ms: number): void {
    if (timer === undefined && !isClosed) timer = setTimeout(look, ms).unref();
  }

  function look(): void {
    timer = undefined;
    const ids = waitingForLong();
    if (!isKnown(ids)) tell(ids);
    if (running.unbegun > 0) lookIn(told.length > 0 ? TELL_MS : LONG_MS);
  }

  function isKnown(ids: readonly string[]): boolean {
    const isSame = ids.length === told.length && ids.every((id, at) => id === told[at]);
    return isSame && performance.now() - toldAtMs < AGAIN_MS;
  }

  function tell(ids = waitingForLong()): void {
    // While Redis is away one is on its way, and no more.
    if (telling !== undefined) return;
    if (ids.length === 0 && told.length === 0) return;
    told = ids;
    toldAtMs = performance.now();
    left = new Set(ids);
    telling = lanes
      .reportFetched(queue, { worker, ids, forMs: HOLDS_FOR_MS })
      // What cannot be told now is told the next time, and what was told ends by itself.
      .catch(() => void (toldAtMs = -Infinity))
      .then(() => {
        telling = undefined;
        if (left.size === 0) tell();
      });
  }

  /** All that wait, if the first of them does so for long. One that has lost its lock and was fetched again is here twice. */
  function waitingForLong(): string[] {
    const ids = new Set<string>();
    if (isClosed) return [];
    for (const { jobId, sinceMs } of running.waiting()) {
      const isSoon = ids.size === 0 && performance.now() - sinceMs < LONG_MS;
      if (isSoon || ids.size === MOST_TOLD) break;
      ids.add(jobId);
    }
    return [...ids];
  }

  return {
    fetched: () => lookIn(LONG_MS),
    begun(id) {
      // Of what is known nothing would be left; those that came after it may be told at once.
      if (left.delete(id) && left.size === 0) tell();
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
