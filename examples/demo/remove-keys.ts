import { Redis } from "ioredis";

/** Removes what the demo has stored, since the Redis may be the user's own. */
export async function removeKeys(redisUrl: string, prefix: string): Promise<void> {
  const redis = new Redis(redisUrl, { maxRetriesPerRequest: 1 });
  try {
    for await (const keys of redis.scanStream({ match: `${prefix}:*`, count: 1_000 })) {
      const found = keys as string[];
      if (found.length > 0) await redis.unlink(...found);
    }
  } finally {
    redis.disconnect();
  }
}
