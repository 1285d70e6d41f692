import { Redis } from "ioredis";
import { RateLimiterQueue, RateLimiterRedis } from "rate-limiter-flexible";
import type { Contender } from "./contender.ts";
import { keepCalling } from "./keep-calling.ts";

export const rateLimiterFlexible: Contender = {
  title: "rate-limiter-flexible",
  async connect({ redisUrl, cap, callers }) {
    const redis = new Redis(redisUrl);
    const limiter = new RateLimiterRedis({ storeClient: redis, points: cap, duration: 1 });
    const queue = new RateLimiterQueue(limiter);
    await queue.removeTokens(1);
    const calling = keepCalling({ callers, call: () => queue.removeTokens(1) });
    return { ...calling, close: async () => redis.disconnect() };
  },
};
