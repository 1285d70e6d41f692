import { randomUUID } from "node:crypto";
import RealBottleneck from "bottleneck";
import { describe, expect, inject, it } from "vitest";
import Bottleneck from "sluice/bottleneck";
import { createBench, SCENARIOS, type LimiterClass, type Scenario } from "./scenarios.ts";

async function runOn(Limiter: LimiterClass, common: object, scenario: Scenario): Promise<unknown> {
  const bench = createBench(Limiter, common);
  try {
    return JSON.parse(JSON.stringify(await scenario(bench)));
  } finally {
    await bench.close();
  }
}

describe("a limiter of sluice/bottleneck", () => {
  for (const [name, scenario] of Object.entries(SCENARIOS)) {
    describe.concurrent(`the scenario: ${name}`, () => {
      it("does the same as Bottleneck, in memory", async () => {
        const expected = await runOn(RealBottleneck as unknown as LimiterClass, {}, scenario);
        const actual = await runOn(Bottleneck, {}, scenario);

        expect(actual).toEqual(expected);
      });

      it("does the same as Bottleneck, on Redis", async () => {
        const shared = {
          id: `t${randomUUID()}`,
          datastore: "ioredis",
          clientOptions: { url: inject("redisUrl") },
        };
        const expected = await runOn(RealBottleneck as unknown as LimiterClass, {}, scenario);
        const actual = await runOn(Bottleneck, shared, scenario);

        expect(actual).toEqual(expected);
      });
    });
  }
});
