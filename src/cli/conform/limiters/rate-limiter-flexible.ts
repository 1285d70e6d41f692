import { Redis } from "ioredis";
import { callerOf, lacksPool, type Limiter } from "./contract.ts";
import { importPeer } from "./import-peer.ts";

const PACKAGE = "rate-limiter-flexible";

/** Its queue, in which calls wait for points of a window in Redis. */
export const rateLimiterFlexible: Limiter = {
  title: "rate-limiter-flexible",
  package: PACKAGE,
  missingFeature: lacksPool,
  async open(setup) {
    const { RateLimiterQueue, RateLimiterRedis } =
      await importPeer<typeof import("rate-limiter-flexible")>(PACKAGE);
    const storeClient = new Redis(setup.redisUrl);
    storeClient.on("error", () => undefined);
    return {
      doesCoolDown: false,
      call: callerOf(setup, (name, { calls, seconds }) => {
        const keyPrefix = `${setup.prefix}-${name}`;
        const points = { points: calls, duration: seconds };
        const queue = new RateLimiterQueue(
          new RateLimiterRedis({ storeClient, keyPrefix, ...points }),
        );
        return async (run) => {
          await queue.removeTokens(1);
          return run();
        };
      }),
    };
  },
};
