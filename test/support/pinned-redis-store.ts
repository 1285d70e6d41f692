import type { Redis } from "ioredis";
import { withResets } from "../../src/core/align.ts";
import type { KnownTerms, Store, Wish } from "../../src/core/store.ts";
import { runScript } from "../../src/redis/script.ts";
import { bucketPeek } from "../../src/redis/scripts/bucket-peek.ts";
import { bucketSteer } from "../../src/redis/scripts/bucket-steer.ts";
import { costsSettle } from "../../src/redis/scripts/costs-settle.ts";
import { leasesRelease, leasesRenew } from "../../src/redis/scripts/leases.ts";
import { slotsDraw } from "../../src/redis/scripts/slots-draw.ts";
import { slotsReturn } from "../../src/redis/scripts/slots-return.ts";

/** The store in Redis, with the server's clock pinned to a clock of the test's. */
export function createPinnedRedisStore(
  redis: Redis,
  { prefix, nowUs }: { prefix: string; nowUs: () => number },
): Store {
  const pinned = (): { prefix: string; pinnedUs: number } => ({ prefix, pinnedUs: nowUs() });
  const reckon = <T extends { terms: KnownTerms }>(request: T): T => ({
    ...request,
    terms: { ...request.terms, limits: withResets(request.terms.limits, nowUs()) },
  });
  const reckonWish = (wish: Wish): Wish => ({
    ...wish,
    keyLimits: withResets(wish.keyLimits, nowUs()),
  });
  return {
    async draw(request) {
      const wishes = request.wishes.map(reckonWish);
      const reply = await runScript(redis, slotsDraw, { ...reckon(request), wishes, ...pinned() });
      return { ...reply, sentAtMs: performance.now() };
    },
    giveBack: (request) => runScript(redis, slotsReturn, { ...reckon(request), ...pinned() }),
    settle: (request) => runScript(redis, costsSettle, { ...reckon(request), ...pinned() }),
    renew: (request) => runScript(redis, leasesRenew, { ...reckon(request), ...pinned() }),
    release: (request) => runScript(redis, leasesRelease, { ...reckon(request), ...pinned() }),
    steer: (request) => runScript(redis, bucketSteer, { ...reckon(request), ...pinned() }),
    peek: (request) => runScript(redis, bucketPeek, { ...reckon(request), ...pinned() }),
    listen: () => undefined,
    close: async () => undefined,
  };
}
