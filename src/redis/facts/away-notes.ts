/** What processes have noted in Redis of downstreams that are away. A note is read after a failure, and by who looks at a bucket. */
import type { Cluster, Redis } from "ioredis";
import { AWAY_KEPT_MS, type Store } from "../../core/store.ts";
import { awayKey } from "../scripts/keys.ts";

export function createAwayNotes(
  redis: Redis | Cluster,
  prefix: string,
): Pick<Store, "readAway" | "noteAway"> {
  return {
    async readAway({ bucket, keys }) {
      const names = keys.map((key) => awayKey(prefix, bucket, key));
      const found = await redis.mget(names);
      const reading = found.map(async (coolMs, index) => {
        if (coolMs === null) return undefined;
        const leftMs = (await redis.pttl(names[index]!)) - AWAY_KEPT_MS;
        return { coolMs: Number(coolMs), inMs: Math.max(1, leftMs) };
      });
      return Promise.all(reading);
    },
    async noteAway({ bucket, key, coolMs }) {
      const name = awayKey(prefix, bucket, key);
      if (coolMs === undefined) {
        await redis.del(name);
        return;
      }
      const forMs = Math.ceil(coolMs);
      await redis.set(name, forMs, "PX", forMs + AWAY_KEPT_MS);
    },
  };
}
