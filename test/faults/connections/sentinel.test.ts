import { describe, expect, it, onTestFinished } from "vitest";
import { StoreUnavailableError, type Bucket } from "sluice";
import { openSluice } from "../../support/redis/for-one-test.ts";
import { reportFigures } from "../../support/docs/report-figures.ts";
import { startSentinels, type SentinelGroup } from "../../support/redis/sentinel.ts";
import { drawSteadily, figuresOf, timesOf } from "../../support/draws/steady-draws.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const RATE = 200;
/** What a horizon of 100 ms holds, which a failover may hand out twice. */
const HORIZON_CALLS = RATE / 10;

function openBuckets({ redis }: SentinelGroup, count: number): Bucket[] {
  const sluices = Array.from({ length: count }, () => openSluice({ redis, prefix: "s" }));
  return sluices.map((sluice) => sluice.bucket("b", { rate: `${RATE}/s` }));
}

const strikes: [string, NodeJS.Signals][] = [
  ["is killed", "SIGKILL"],
  ["stands still", "SIGSTOP"],
];

describe("behind Sentinel, when the primary", () => {
  it.each(strikes)(
    "%s, the new primary serves the calls, with at most a horizon of extra calls",
    async (name, signal) => {
      const sentinels = await startSentinels();
      onTestFinished(() => sentinels.stop());
      const calls = drawSteadily(openBuckets(sentinels, 3), { callers: 20 });
      await waitUntil(() => calls.slots.length > 200, "calls leave");
      const before = await sentinels.primaryPort();

      // With it goes the sentinel beside it, which clients ask first.
      for (const pid of [sentinels.first.pid!, sentinels.firstSentinelPid])
        process.kill(pid, signal);
      const struckMs = performance.now();
      await waitUntil(
        async () => (await sentinels.primaryPort()) !== before,
        "there is a new primary",
      );
      const newPrimaryMs = performance.now();
      const reached = calls.slots.length;
      await waitUntil(() => calls.slots.length > reached + 2 * RATE, "calls leave again");
      await calls.stop();

      const { slots, errors } = calls;
      const figures = {
        ...figuresOf(timesOf(slots), RATE),
        "ms until there is a new primary": newPrimaryMs - struckMs,
        "calls refused": errors.length,
      };
      reportFigures(`behind Sentinel, the primary ${name}`, figures);
      expect(errors.filter((error) => !(error instanceof StoreUnavailableError))).toEqual([]);
      expect(figures.extra).toBeLessThanOrEqual(HORIZON_CALLS);
    },
  );
});
