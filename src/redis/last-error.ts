import type { Cluster, Redis, RedisOptions } from "ioredis";

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
export function tellsWhy({ message }: Error): boolean {
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
