import { setTimeout as pause } from "node:timers/promises";
import { importBuild } from "../compare/import-build.ts";
import type { Contender } from "./contender.ts";
import { keepCalling } from "./keep-calling.ts";

/** The duration of a call. Its lease is released after this time. */
const CALL_MS = 20;
const TOKENS = { least: 50, most: 300 } as const;

/**
 * Limits calls, tokens and concurrency, as a language model's API does. The cap counts calls. The other limits grow
 * with the cap, so that they never restrict the calls.
 */
export const sluiceLlm: Contender = {
  title: "Sluice, calls, tokens and concurrency",
  async connect({ redisUrl, cap, callers, build }) {
    const { createSluice, concurrency, leakyBucket } = await importBuild(build);
    const opened = createSluice({ redis: redisUrl });
    const bucket = opened.bucket("bench", {
      limits: [
        leakyBucket(`${cap}/s`),
        leakyBucket(`${cap * TOKENS.most}/s`, { unit: "tokens", burst: 4_000 }),
        concurrency(20 * cap * (CALL_MS / 1_000)),
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
