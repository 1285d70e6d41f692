import { expect, it } from "vitest";
import { createTally, type Tally } from "../../../examples/demo/tally.ts";

const CALL = { customer: "acme", worker: "w", isVerified: true, status: 200 };

/** A report of calls, with the downstream's longest standstill since the report before. */
function report(
  tally: Tally,
  nowMs: number,
  stalledMs: number,
  timesMs: readonly number[],
  workersStalledMs = 0,
): void {
  const calls = timesMs.map((atMs) => ({ ...CALL, atMs, delivery: `${atMs}` }));
  tally.add({ kind: "report", nowMs, calls, stalledMs, workersStalledMs, isLast: false });
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

it("allows for a worker's standstill, also if it is reported after the calls", () => {
  const tally = createTally();

  report(tally, 1_000, 0, [20, 500]);
  report(tally, 1_100, 0, [1_010]);
  report(tally, 1_200, 0, [], 20);

  expect(tally.worstSecond).toBe(3);
  expect(tally.surelyInWorstSecond).toBe(2);
  expect(tally.workersStalledMs).toBe(20);
});

it("allows for a standstill only in its own second", () => {
  const tally = createTally();

  report(tally, 1_000, 20, []);
  report(tally, 3_000, 0, []);
  report(tally, 4_000, 0, [3_000, 3_500, 3_990]);

  expect(tally.surelyInWorstSecond).toBe(3);
});

it("counts what was not verified, what came again after a 503, and the pace of each customer", () => {
  const tally = createTally();
  const calls = [
    { ...CALL, atMs: 10, delivery: "a", status: 503 },
    { ...CALL, atMs: 20, delivery: "b", status: 503 },
    { ...CALL, atMs: 30, delivery: "c", status: 400, isVerified: false },
    { ...CALL, atMs: 40, delivery: "d", customer: "other" },
    { ...CALL, atMs: 1_020, delivery: "a" },
  ];

  tally.add({
    kind: "report",
    nowMs: 1_100,
    calls,
    stalledMs: 0,
    workersStalledMs: 0,
    isLast: false,
  });

  const { failed, cameAgain, unverified, delivered } = tally;
  expect({ failed, cameAgain, unverified, delivered }).toEqual({
    failed: 2,
    cameAgain: 1,
    unverified: 1,
    delivered: 2,
  });
  expect(tally.paceOf("acme").worstSecond).toBe(3);
  expect(tally.paceOf("other").worstSecond).toBe(1);
  expect(tally.deliveredTo("acme")).toBe(1);
});
