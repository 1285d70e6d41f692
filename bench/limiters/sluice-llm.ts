import { setTimeout as pause } from "node:timers/promises";
import { importBuild } from "../compare/import-build.ts";
import type { Contender } from "./contender.ts";
import { keepCalling } from "./keep-calling.ts";

/** How long a call runs: its lease is released after this time. */
const CALL_MS = 20;
const TOKENS = { least: 50, most: 300 } as const;

/** Calls, tokens and concurrency, as an API of a language model limits them; the cap counts calls. */
export const sluiceLlm: Contender = llm("Sluice, calls, tokens and concurrency", {
  tokensPerSecond: 150_000,
  burst: 4_000,
  concurrency: 200,
});
/** The same, with limits that no load reaches. */
export const sluiceLlmUnlimited: Contender = llm("Sluice, the same with the cap out of reach", {
  tokensPerSecond: 1_000_000_000,
  burst: 10_000_000,
  concurrency: 100_000,
});

interface LlmLimits {
  readonly tokensPerSecond: number;
  readonly burst: number;
  readonly concurrency: number;
}

function llm(title: string, limits: LlmLimits): Contender {
  return {
    title,
    async connect({ redisUrl, cap, callers, build }) {
      const { createSluice, concurrency, leakyBucket } = await importBuild(build);
      const opened = createSluice({ redis: redisUrl });
      const bucket = opened.bucket("bench", {
        limits: [
          leakyBucket(`${cap}/s`),
          leakyBucket(`${limits.tokensPerSecond}/s`, { unit: "tokens", burst: limits.burst }),
          concurrency(limits.concurrency),
        ],
      });
      (await bucket.draw({ cost: { tokens: 1 } })).release();

      const calling = keepCalling({
        callers,
        async call() {
          const range = TOKENS.most - TOKENS.least + 1;
          const tokens = TOKENS.least + Math.floor(Math.random() * range);
          const slot = await bucket.draw({ cost: { tokens } });
          setTimeout(() => slot.release(), CALL_MS);
        },
      });
      return {
        ...calling,
        async close() {
          await pause(2 * CALL_MS);
          await opened.close();
        },
      };
    },
  };
}
