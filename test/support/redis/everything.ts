import type { Redis } from "ioredis";

/** A key with all that it holds, as text, and how long it lives: -1 for good. */
export interface StoredKey {
  readonly key: string;
  readonly value: string;
  readonly ttlMs: number;
}

/** All keys that begin so. */
export async function everythingOf(redis: Redis, prefix: string): Promise<readonly StoredKey[]> {
  const keys = await redis.keys(`${prefix}:*`);
  return Promise.all(
    keys.map(async (key) => {
      const [value, ttlMs] = await Promise.all([valueOf(redis, key), redis.pttl(key)]);
      return { key, value: JSON.stringify(value), ttlMs };
    }),
  );
}

async function valueOf(redis: Redis, key: string): Promise<unknown> {
  const type = await redis.type(key);
  if (type === "string") return redis.get(key);
  if (type === "hash") return redis.hgetall(key);
  if (type === "list") return redis.lrange(key, 0, -1);
  if (type === "set") return redis.smembers(key);
  if (type === "zset") return redis.zrange(key, 0, -1);
  if (type === "stream") return redis.xrange(key, "-", "+");
  return type;
}
