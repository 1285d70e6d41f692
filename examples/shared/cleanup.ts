import { Redis } from "ioredis";

/** Runs the added undo steps at the end, the latest first, even if some of them fail. */
export interface Cleanup {
  add(undo: () => Promise<void>): void;
  [Symbol.asyncDispose](): Promise<void>;
}

export function createCleanup(): Cleanup {
  const undos: (() => Promise<void>)[] = [];
  return {
    add: (undo) => void undos.push(undo),
    async [Symbol.asyncDispose]() {
      const failures: unknown[] = [];
      for (let undo = undos.pop(); undo !== undefined; undo = undos.pop()) {
        await undo().catch((error: unknown) => failures.push(error));
      }
      if (failures.length > 0) throw failures[0];
    },
  };
}

/** Removes only the keys with this prefix, because the Redis server may be the user's own. */
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
