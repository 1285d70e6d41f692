import type { LaneStore } from "../core/lane-store.ts";

/** The jobs that a worker has fetched and not begun: all may know of those that wait for long, to say when others start. */
export interface HeldJobs {
  /** A job was fetched. */
  add(id: string): void;
  /** It begins, or goes back; once more is no harm. */
  delete(id: string): void;
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
}): HeldJobs {
  const { lanes, queue, worker } = parts;
  /** Since when, in the order in which they came. */
  const sinceMs = new Map<string, number>();
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
    if (sinceMs.size > 0) lookIn(isTold ? TELL_MS : SOON_MS);
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
        if (sinceMs.size === 0) tell();
      });
  }

  function waitingForLong(): string[] {
    const untilMs = performance.now() - SOON_MS;
    const ids: string[] = [];
    for (const [id, atMs] of sinceMs) {
      if (atMs > untilMs || ids.length === MOST_TOLD) break;
      ids.push(id);
    }
    return ids;
  }

  return {
    add(id) {
      sinceMs.set(id, performance.now());
      lookIn(SOON_MS);
    },
    delete(id) {
      if (sinceMs.delete(id) && sinceMs.size === 0 && isTold) tell();
    },
    async close() {
      isClosed = true;
      clearTimeout(timer);
      sinceMs.clear();
      await telling;
      tell();
      await telling;
    },
  };
}
