import { setMaxListeners } from "node:events";
import PQueue from "p-queue";
import { WaitTooLongError } from "../core/errors.ts";
import { RANKS } from "../core/priority.ts";
import type { DrawOptions } from "./draw-options.ts";

/** Bounds how many calls of one wrapped function run here at once. */
export interface Places {
  /**
   * Waits for a place, by priority; resolves with what gives the place back.
   *
   * @throws {@link WaitTooLongError} when none came free within `maxWaitMs`.
   * @throws the signal's reason, when it is aborted.
   */
  take(options: DrawOptions): Promise<() => void>;
  /** Ends the waits of all who have no place yet. */
  failAll(reason: unknown): void;
}

export function createPlaces(bucket: string, concurrency: number): Places {
  const queue = new PQueue({ concurrency });
  const waits = new Set<AbortController>();

  /** A task that lasts as long as the place is held, so that the call itself runs in its caller's async context. */
  function hold(priority: number, signal: AbortSignal): Promise<() => void> {
    return new Promise((resolve, reject) => {
      const task = (): Promise<void> => new Promise((release) => resolve(release));
      queue.add(task, { priority, signal }).catch(reject);
    });
  }

  return {
    async take({ priority = "normal", key, maxWaitMs, signal }) {
      const waiting = new AbortController();
      waits.add(waiting);
      // One signal may well end a hundred waits; Node would call that a leak.
      if (signal !== undefined) setMaxListeners(0, signal);
      const onAbort = (): void => waiting.abort(signal?.reason);
      const onExpire = (): void =>
        waiting.abort(
          new WaitTooLongError({
            bucket,
            key,
            maxWaitMs: maxWaitMs!,
            retryAfterMs: maxWaitMs!,
            limitedBy: `concurrency ${concurrency} of this process`,
          }),
        );
      signal?.addEventListener("abort", onAbort, { once: true });
      const timer = maxWaitMs === undefined ? undefined : setTimeout(onExpire, maxWaitMs);
      try {
        // p-queue lets the highest number go first.
        return await hold(-RANKS[priority], waiting.signal);
      } finally {
        waits.delete(waiting);
        clearTimeout(timer);
        signal?.removeEventListener("abort", onAbort);
      }
    },
    failAll(reason) {
      for (const waiting of waits) waiting.abort(reason);
    },
  };
}
