import { createSluice, leakyBucket, slidingLog } from "sluice";
import type { Contender } from "./contender.ts";
import { keepNoting } from "./keep-calling.ts";

/** The limits of the part `limits`: typical limits of a language model's API. */
export const LIMITS = {
  calls: { perSecond: 500, burst: 1 },
  tokens: { perSecond: 90_000, burst: 4_000, leastOfCall: 50, mostOfCall: 300 },
  log: { calls: 600, windowMs: 1_000 },
  key: { perSecond: 5, burst: 1, keys: 1_000 },
} as const;

/** One bucket with three shared limits and one limit per key. Each call has a random key and cost. */
export const sluiceLimits: Contender = {
  title: "Sluice, many limits",
  async connect({ redisUrl, callers }) {
    const { calls, tokens, log, key } = LIMITS;
    const opened = createSluice({ redis: redisUrl });
    const bucket = opened.bucket("bench", {
      limits: [
        leakyBucket(`${calls.perSecond}/s`),
        leakyBucket(`${tokens.perSecond}/s`, { unit: "tokens", burst: tokens.burst }),
        slidingLog(log.calls, `${log.windowMs / 1_000}s`),
      ],
      perKey: { rate: `${key.perSecond}/s` },
    });
    await bucket.draw({ key: "warm-up", cost: { tokens: 1 } });

    const calling = keepNoting({
      callers,
      async call() {
        const number = Math.floor(Math.random() * key.keys);
        const cost = randomWithin(tokens.leastOfCall, tokens.mostOfCall);
        const slot = await bucket.draw({ key: `k${number}`, cost: { tokens: cost } });
        return [number, cost, slot.atMs];
      },
    });
    return { ...calling, close: () => opened.close() };
  },
};

function randomWithin(least: number, most: number): number {
  return least + Math.floor(Math.random() * (most - least + 1));
}
