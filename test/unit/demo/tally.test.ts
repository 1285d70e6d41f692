import { expect, it } from "vitest";
import { createTally, type Tally } from "../../../examples/demo/tally.ts";

/** A report of calls, with the downstream's longest standstill since the report before. */
function report(tally: Tally, nowMs: number, stalledMs: number, timesMs: readonly number[]): void {
  const calls = timesMs.map((atMs) => ({ atMs, delivery: `${atMs}`, worker: "w", status: 200 }));
  tally.add({ kind: "report", nowMs, calls, stalledMs, isLast: false });
}

it("counts the worst second as seen, and without calls that a standstill may have delayed", () => {
  const tally = createTally();

  report(tally, 1_000, 0, [10, 500]);
  report(tally, 1_100, 20, []);
  report(tally, 1_200, 0, [1_000]);

  expect(tally.worstSecond).toBe(3);
  expect(tally.surelyInWorstSecond).toBe(2);
  expect(tally.stalledMs).toBe(20);
});

it("allows for a standstill only in its own second", () => {
  const tally = createTally();

  report(tally, 1_000, 20, []);
  report(tally, 3_000, 0, []);
  report(tally, 4_000, 0, [3_000, 3_500, 3_990]);

  expect(tally.surelyInWorstSecond).toBe(3);
});
