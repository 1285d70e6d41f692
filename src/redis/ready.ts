import type { Cluster, Redis } from "ioredis";
import { explained, tellsWhy } from "./last-error.ts";
import { startTimeLimit } from "./time-limit.ts";

/**
 * Waits until commands can be sent, and connects if nobody has yet.
 * Rejects after `timeoutMs` with what ioredis met last, and at once when the client was closed for good.
 */
export async function untilReady(redis: Redis | Cluster, timeoutMs: number): Promise<void> {
  if (redis.status === "ready" && !isClosing(redis)) return;
  if (redis.status === "end") throw new Error("the connection was closed");
  // A failed connection is tried again by ioredis; what became of it shows in the events below.
  if (redis.status === "wait") redis.connect().catch(() => undefined);
  await new Promise<void>((resolve, reject) => {
    let lastError = explained(redis);
    const onError = (error: Error): void => {
      if (tellsWhy(error)) lastError = explained(redis, error);
    };
    const onReady = (): void => settle(resolve);
    const onEnd = (): void => settle(() => reject(new Error("the connection was closed")));
    const stopLimit = startTimeLimit(timeoutMs, () => settle(() => reject(lastError)));
    function settle(outcome: () => void): void {
      stopLimit();
      redis.off("error", onError).off("ready", onReady).off("end", onEnd);
      outcome();
    }
    redis.on("error", onError).on("ready", onReady).on("end", onEnd);
  });
}

/** ioredis calls a connection that it gives up ready until it has closed, and refuses what is sent meanwhile. */
function isClosing(redis: Redis | Cluster): boolean {
  return "stream" in redis && !redis.stream.writable;
}
