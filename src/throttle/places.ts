import { setMaxListeners } from "node:events";
import PQueue from "p-queue";
import { WaitTooLongError } from "../core/errors.ts";
import { RANKS } from "../core/options.ts";
import type { DrawOptions } from "./draw-options.ts";
import type { OwnedBucket } from "./owned-bucket.ts";
import { PlaceQueue } from "./place-queue.ts";

/** Bounds how many calls of one wrapped function run here at once. */
export interface Places {
  /**
   * Waits for a place, by priority; resolves with what gives the place back.
   *
   * @throws {@link WaitTooLongError} when none came free within `maxWaitMs`.
   * @throws the signal's reason, when it is aborted.
   * @throws {@link ClosedError} when the bucket is closed.
   */
  take(options: DrawOptions): Promise<() => void>;
}

export function createPlaces(
  { name: bucket, onClose }: Pick<OwnedBucket, "name" | "onClose">,
  concurrency: number,
): Places {
  const queue = new PQueue({ concurrency, queueClass: PlaceQueue });

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
      const leave = onClose((reason) => waiting.abort(reason));
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
        waiting.signal.throwIfAborted();
        return await hold(RANKS[priority], waiting.signal);
      } finally {
        leave();
        clearTimeout(timer);
        signal?.removeEventListener("abort", onAbort);
      }
    },
  };
}
