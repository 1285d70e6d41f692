import { describe, expect, inject, it } from "vitest";
import { children } from "../../support/children/child.ts";
import { startFakeLlm } from "../../support/llm/reach-fake.ts";
import { flowing, sliding, windowed, type Quota } from "../../support/llm/quotas.ts";
import type { LlmCallerConfig, LlmCallerReport } from "../../support/processes/llm-caller.ts";
import { fakeApis } from "../../support/servers/fake-api.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const processes = children();
const sluices = realSluices();
const apis = fakeApis();

const PROCESSES = 4;
/** How many answers are waited for: the limits in tokens have been used up by then. */
const ANSWERS = 150;

interface Case {
  readonly provider: LlmCallerConfig["provider"];
  readonly limits: Readonly<Record<string, string>>;
  readonly quotas: () => Readonly<Record<string, readonly Quota[]>>;
  readonly sizes: { readonly least: number; readonly most: number };
}

const SIZES = { least: 4, most: 4_000 };

/** A process that stands still for so long on a busy machine sends what came due meanwhile late, beside what is on time. */
const STANDSTILL_S = 0.1;
const cases: readonly Case[] = [
  {
    provider: "openai",
    limits: { requests: "240/4s", tokens: "80000/4s" },
    quotas: () => ({ calls: [flowing(240, 4)], tokens: [flowing(80_000, 4)] }),
    sizes: SIZES,
  },
  {
    provider: "anthropic",
    limits: { requests: "240/4s", input: "60000/4s", output: "40000/4s" },
    quotas: () => ({
      calls: [flowing(240, 4)],
      input: [flowing(60_000, 4)],
      output: [flowing(40_000, 4)],
    }),
    sizes: SIZES,
  },
  {
    provider: "azure",
    limits: { requests: "3000/min", tokens: "160000/8s" },
    quotas: () => ({
      calls: [sliding(50, 1 - STANDSTILL_S), sliding(500, 10 - STANDSTILL_S)],
      tokens: [windowed(160_000, 8)],
    }),
    sizes: { least: 3, most: 3_000 },
  },
  {
    provider: "bedrock",
    limits: { requests: "240/4s", tokens: "120000/4s" },
    quotas: () => ({ calls: [flowing(240, 4)], tokens: [flowing(120_000, 4)] }),
    sizes: SIZES,
  },
];

describe("four processes of calls of 1 to 1,000 sizes", () => {
  it.each(cases)(
    "keep the limits of $provider through its official client, without a rejection",
    async ({ provider, limits, quotas, sizes }) => {
      const api = await startFakeLlm(apis, { provider, quotas: quotas() });
      const where = { redis: inject("redisUrl"), prefix: sluices.prefix(), url: api.url };
      const callers = Array.from({ length: PROCESSES }, (_, seed) => {
        const config: LlmCallerConfig = { ...where, provider, limits, ...sizes, atOnce: 25, seed };
        return processes.start("llm-caller.ts", [JSON.stringify(config)]);
      });
      await waitUntil(
        () => callers.every(({ messages }) => messages.length === 1),
        "all are ready",
      );

      for (const caller of callers) caller.send("go");
      await waitUntil(() => api.taken.length >= ANSWERS, "enough have come");
      for (const caller of callers) caller.send("stop");
      await Promise.all(callers.map((caller) => caller.success()));

      const reports = callers.map(({ messages }) => messages[1] as LlmCallerReport);
      expect(reports.flatMap(({ failures }) => failures)).toEqual([]);
      expect(api.refusals).toEqual([]);
    },
  );
});
