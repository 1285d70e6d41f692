import type { Cluster, Redis, RedisOptions } from "ioredis";

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

/** A time limit is made up of so many looks. */
const LOOKS = 4;

/**
 * Calls `late` after this time, unless the returned function stops it.
 *
 * It takes the time in looks, each in a turn of the event loop of its own: a process that stood still has yet to read
 * what Redis answered meanwhile, or even to send what it asked, and must not take Redis for silent. However long it
 * stood still, that is one look.
 */
export function startTimeLimit(timeoutMs: number, late: () => void): () => void {
  let left = LOOKS;
  const timer = setTimeout(
    () => {
      left -= 1;
      if (left === 0) late();
      else timer.refresh();
    },
    Math.max(1, timeoutMs / LOOKS),
  );
  return () => clearTimeout(timer);
}

/** What some work comes to, if it does within this time; else it rejects with what `late` tells. */
export async function withinMs<T>(
  timeoutMs: number,
  work: Promise<T>,
  late: () => Error,
): Promise<T> {
  let stop = (): void => {};
  const expiry = new Promise<never>((_resolve, reject) => {
    stop = startTimeLimit(timeoutMs, () => reject(late()));
  });
  try {
    return await Promise.race([work, expiry]);
  } finally {
    stop();
  }
}

/** What a connection has met since it was last ready, if anything: ioredis tells it with each attempt that fails. */
export function lastErrorOf(redis: Redis | Cluster): () => Error | undefined {
  let last: Error | undefined;
  redis.on("error", (error: Error) => {
    if (tellsWhy(error)) last = explained(redis, error);
  });
  redis.on("ready", () => {
    last = undefined;
  });
  return () => last;
}

/** Not the refusal of what ioredis itself asks while a connection goes away. */
function tellsWhy({ message }: Error): boolean {
  return !message.startsWith("Stream isn't writeable");
}

/** What a connection met, or that none came about in time, and what is likely behind it. */
export function explained(redis: Redis | Cluster, met?: Error): Error {
  if (met !== undefined && met.message !== OUT_OF_TIME) return met;
  // A server without TLS takes the handshake for a command that goes on, and says nothing.
  if (usesTls(redis)) return new Error("no TLS connection in time: does the server speak TLS?");
  return met ?? new Error("no connection in time");
}

/** Of ioredis, after its `connectTimeout`. */
const OUT_OF_TIME = "connect ETIMEDOUT";

function usesTls({ options }: Redis | Cluster): boolean {
  const own = "redisOptions" in options ? options.redisOptions : (options as RedisOptions);
  return own?.tls !== undefined;
}
