/** Four replicas in time that stands still between events: what is used of a provider's limits then depends on no machine. */
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { anthropic, azure, bedrock, gemini, openai, type LlmBucket } from "sluice/llm";
import { createMemoryStore } from "../../../src/stores/memory/memory-store.ts";
import { fakeTimers } from "../../support/async/fake-timers.ts";
import { createTestBucket } from "../../support/draws/test-bucket.ts";
import {
  createFakeProvider,
  type FakeProvider,
  type Provider,
} from "../../support/llm/fake-llm.ts";
import { watchEstimates } from "../../support/llm/estimate-errors.ts";
import { fetchFrom } from "../../support/llm/reach-fake.ts";
import { flowing, sliding, windowed, type Quota } from "../../support/llm/quotas.ts";
import {
  markedForAnthropic,
  markedForBedrock,
  sizedCalls,
  type SizedCall,
} from "../../support/llm/sizes.ts";

const advance = fakeTimers();
const REPLICAS = 4;
const AT_ONCE = 10;
const FOR_MS = 4_000;
/** Estimates are judged after so many answers. */
const LEARNING = 100;
const text = readFileSync("bench/README.md", "utf8");

interface Case {
  readonly provider: Provider;
  readonly preset: () => LlmBucket;
  readonly quotas: () => Readonly<Record<string, readonly Quota[]>>;
  /** What is to be used up, per second. */
  readonly binds: Readonly<Record<string, number>>;
  readonly most: number;
}

const cases: readonly Case[] = [
  {
    provider: "openai",
    preset: () => openai({ requests: "3600/min", tokens: "1200000/min" }),
    quotas: () => ({
      calls: [flowing(3_600, 60)],
      tokens: [flowing(1_200_000, 60), windowed(1_200_000, 60)],
    }),
    binds: { tokens: 20_000 },
    most: 4_000,
  },
  {
    provider: "anthropic",
    preset: () => anthropic({ requests: "3600/min", input: "900000/min", output: "600000/min" }),
    quotas: () => ({
      calls: [flowing(3_600, 60)],
      input: [flowing(900_000, 60)],
      output: [flowing(600_000, 60)],
    }),
    binds: { input: 15_000 },
    most: 4_000,
  },
  {
    provider: "azure",
    preset: () => azure({ requests: "600/min", tokens: "6000000/min" }),
    quotas: () => ({
      calls: [sliding(10, 1), sliding(100, 10)],
      tokens: [windowed(6_000_000, 60)],
    }),
    binds: { calls: 10 },
    most: 1_000,
  },
  {
    provider: "bedrock",
    preset: () => bedrock({ requests: "3600/min", tokens: "1800000/min" }),
    quotas: () => ({ calls: [flowing(3_600, 60)], tokens: [flowing(1_800_000, 60)] }),
    binds: { tokens: 30_000 },
    most: 4_000,
  },
  {
    provider: "gemini",
    preset: () => gemini({ requests: "3600/min", input: "600000/min" }),
    quotas: () => ({ calls: [flowing(3_600, 60)], input: [windowed(600_000, 60)] }),
    binds: { input: 10_000 },
    most: 4_000,
  },
];

function bodyOf(provider: Provider, call: SizedCall): object {
  const { prompt, maxTokens, cached, isStreamed: stream } = call;
  if (provider === "gemini") {
    return {
      contents: [{ parts: [{ text: prompt }] }],
      generationConfig: { maxOutputTokens: maxTokens },
    };
  }
  if (provider === "bedrock") {
    const messages = [{ role: "user", content: [{ text: prompt }] }];
    const system = cached === undefined ? {} : { system: markedForBedrock(cached) };
    return { messages, inferenceConfig: { maxTokens }, ...system };
  }
  const messages = [{ role: "user", content: prompt }];
  const isCached = provider === "anthropic" && cached !== undefined;
  const own = isCached ? { system: markedForAnthropic(cached) } : {};
  return { model: "m", messages, max_tokens: maxTokens, stream, ...own };
}

const PATHS: Readonly<Record<Provider, string>> = {
  openai: "/v1/chat/completions",
  azure: "/openai/deployments/gpt/chat/completions",
  anthropic: "/v1/messages",
  bedrock: "/model/anthropic.claude-test/converse",
  gemini: "/v1beta/models/gemini-test:generateContent",
};

function usedPerS({ taken }: FakeProvider, unit: string): number {
  const fromMs = taken[0]!.atMs;
  const used = taken
    .filter(({ atMs }) => atMs < fromMs + FOR_MS)
    .reduce((sum, { amounts }) => sum + (amounts[unit] ?? 0), 0);
  return (used / FOR_MS) * 1_000;
}

describe("four replicas with calls of 1 to 1,000 sizes", () => {
  it.each(cases)(
    "use all of $provider's $binds, none is refused, and estimates are off by less than a tenth",
    async ({ provider: name, preset, quotas, binds, most }) => {
      const provider = createFakeProvider({ provider: name, quotas: quotas() });
      const store = createMemoryStore();
      const estimates = watchEstimates(preset());
      let isOver = false;
      const buckets = Array.from(
        { length: REPLICAS },
        () => createTestBucket(estimates.options, { store }).bucket,
      );
      const callers = buckets.flatMap((bucket, seed) => {
        const fetch = bucket.fetch.with({ fetch: fetchFrom(provider), tries: 1 });
        const next = sizedCalls(text, { least: most / 1_000, most, seed });
        return Array.from({ length: AT_ONCE }, async () => {
          while (!isOver) {
            const body = JSON.stringify(bodyOf(name, next()));
            const response = await fetch(`http://api.test${PATHS[name]}`, { method: "POST", body });
            await response.text();
            if (estimates.answers() <= LEARNING) estimates.reset();
          }
        });
      });
      const calling = Promise.allSettled(callers);

      await advance(FOR_MS + 1_000);
      isOver = true;
      const closing = Promise.all(buckets.map((bucket) => bucket.close()));
      await advance(5_000);
      await Promise.all([closing, calling]);

      expect(provider.refusals).toEqual([]);
      for (const [unit, perS] of Object.entries(binds)) {
        expect(usedPerS(provider, unit) / perS).toBeGreaterThanOrEqual(0.95);
      }
      for (const { off, taken } of Object.values(estimates.errors())) {
        expect(off / taken).toBeLessThanOrEqual(0.1);
      }
    },
  );
});
