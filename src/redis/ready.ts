import type { Cluster, Redis } from "ioredis";

/**
 * Waits until commands can be sent, and connects if nobody has yet.
 * Rejects after `timeoutMs`, and at once when the client was closed for good.
 */
export async function untilReady(redis: Redis | Cluster, timeoutMs: number): Promise<void> {
  if (redis.status === "ready") return;
  // A connection that fails is tried again by ioredis; what became of it shows in the events below.
  if (redis.status === "wait") redis.connect().catch(() => undefined);
  await new Promise<void>((resolve, reject) => {
    const timer = setTimeout(() => settle(new Error("no connection in time")), timeoutMs);
    const onReady = (): void => settle();
    const onEnd = (): void => settle(new Error("the connection was closed"));
    function settle(error?: Error): void {
      clearTimeout(timer);
      redis.off("ready", onReady);
      redis.off("end", onEnd);
      if (error === undefined) resolve();
      else reject(error);
    }
    redis.on("ready", onReady);
    redis.on("end", onEnd);
  });
}
