import { expect, it } from "vitest";
import { concurrency, leakyBucket, slidingLog } from "../../../../src/core/policy/limit-makers.ts";
import type { Limit } from "../../../../src/core/limits/rule.ts";
import { callTermsOf } from "../../../../src/throttle/costs.ts";
import { mostLateMs } from "../../../../src/throttle/waiting/lateness.ts";

const NONE: readonly Limit[] = [];
const [fast, fair, slow] = [leakyBucket("1000/s"), leakyBucket("40/s"), leakyBucket("1/s")];
const fastest = leakyBucket("10000/s");

it.each([
  ["half an interval", [fair], NONE, 1, 12.5],
  ["half of what a costly call takes", [fair], NONE, 2, 25],
  ["5 ms at least, by which timers are off", [fast], NONE, 1, 5],
  ["what a second has room for, where slots are dense", [fastest], NONE, 1, 5.8],
  ["a horizon at most", [slow], NONE, 1, 100],
  ["by the interval that others are spaced by, not by its key's", [fair], [slow], 1, 12.5],
  ["by its key's interval, when nothing is shared", NONE, [fair], 1, 12.5],
  ["a horizon where nothing is evenly spaced", [slidingLog(1_000, "1s")], NONE, 1, 100],
  ["by the limit that spaces, among those that do not", [concurrency(5), fair], NONE, 1, 12.5],
])("a slot may be late: %s", (_which, shared, keyLimits, cost, expectedMs) => {
  const costs = [...shared, ...keyLimits].map(() => cost);

  const callTerms = callTermsOf({ shared, scopeLimits: [keyLimits], costs, whose: [], text: "" });
  expect(mostLateMs(callTerms)).toBe(expectedMs);
});
