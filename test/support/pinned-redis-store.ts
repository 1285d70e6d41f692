import type { Redis } from "ioredis";
import type { Store } from "../../src/core/store.ts";
import { runScript } from "../../src/redis/script.ts";
import { slotsDraw } from "../../src/redis/scripts/slots-draw.ts";
import { slotsReturn } from "../../src/redis/scripts/slots-return.ts";

/** The store in Redis, with the server's clock pinned to a clock of the test's. */
export function createPinnedRedisStore(
  redis: Redis,
  { prefix, nowUs }: { prefix: string; nowUs: () => number },
): Store {
  return {
    async draw(request) {
      const reply = await runScript(redis, slotsDraw, { ...request, prefix, pinnedUs: nowUs() });
      return { ...reply, sentAtMs: performance.now() };
    },
    giveBack: (request) => runScript(redis, slotsReturn, { ...request, prefix, pinnedUs: nowUs() }),
    close: async () => undefined,
  };
}
