import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { createRecentCount } from "../../../../src/queue/lanes/fetcher.ts";

const WITHIN_MS = 800;
const STEP_MS = 100;

describe("the count of recent events", () => {
  it("covers the last seven eighths of its time, and nothing older than that time", () => {
    const step = fc.record({
      passMs: fc.oneof(fc.nat(150), fc.constantFrom(0, 100, 700, 799, 800, 801, 100_000)),
      isAsked: fc.boolean(),
    });
    fc.assert(
      fc.property(fc.nat(5_000), fc.array(step, { maxLength: 60 }), (startMs, steps) => {
        const recent = createRecentCount(WITHIN_MS);
        const happenedMs: number[] = [];
        let nowMs = startMs;
        for (const { passMs, isAsked } of steps) {
          nowMs += passMs;
          if (!isAsked) {
            recent.add(nowMs);
            happenedMs.push(nowMs);
            continue;
          }
          const within = (ms: number): number =>
            happenedMs.filter((atMs) => nowMs - atMs < ms).length;
          const counted = recent.count(nowMs);

          expect(counted).toBeGreaterThanOrEqual(within(WITHIN_MS - STEP_MS));
          expect(counted).toBeLessThanOrEqual(within(WITHIN_MS));
        }
      }),
    );
  });

  it("is zero before the first event", () => {
    expect(createRecentCount(WITHIN_MS).count(12_345)).toBe(0);
  });
});
