import { describe, expect, it } from "vitest";
import { createRecentCalls } from "../../../src/insight/reporter.ts";

const EVERY_MS = 1_000;

describe("the calls of the last ten seconds", () => {
  it.each([
    [3, 1_000],
    [3, 1_050],
    [10, 1_013],
    [100, 1_101],
    [2, 3_400],
  ])(
    "count no more than a bucket of %i/s starts in that time, read each %i ms",
    (rate, everyMs) => {
      const recent = createRecentCalls(EVERY_MS);
      const seen: number[] = [];
      let startedBefore = 0;

      for (let atMs = everyMs; atMs <= 60_000; atMs += everyMs) {
        const started = Math.floor((atMs * rate) / 1_000);
        recent.add(atMs, started - startedBefore);
        startedBefore = started;
        if (atMs > 20_000) seen.push(recent.count());
      }

      expect(Math.max(...seen)).toBeLessThanOrEqual(rate * 10);
      expect(Math.min(...seen)).toBeGreaterThanOrEqual(rate * 10 - 1 - rate / 10);
    },
  );

  it("count a call after an idle time for ten seconds, and no longer", () => {
    const recent = createRecentCalls(EVERY_MS);
    recent.add(0, 0);

    const counts = [60_000, 65_000, 69_000, 70_500].map((atMs, index) => {
      recent.add(atMs, index === 0 ? 1 : 0);
      return recent.count();
    });

    expect(counts).toEqual([1, 1, 1, 0]);
  });

  it("count a burst as a whole", () => {
    const recent = createRecentCalls(EVERY_MS);

    recent.add(50, 500);

    expect(recent.count()).toBe(500);
  });
});
