import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { drain, type LaneLoad, type Phase } from "../../../../src/queue/forecast/drain.ts";

/** How small the steps of the slow reckoning are, in ms. */
const STEP_MS = 0.02;

const load = fc.record({
  calls: fc.integer({ min: 0, max: 20 }),
  weight: fc.constantFrom(0.5, 1, 2, 3),
  mostPerMs: fc.constantFrom(0.1, 0.5, 1, Infinity),
  fromMs: fc.constantFrom(0, 0, 3, 10),
});

function steady(perMs: number): Phase[] {
  return [{ fromMs: 0, perMs }];
}

/** Pours out one step's capacity: by weight, and what one cannot take goes to the others. */
function pour(lanes: readonly LaneLoad[], left: number[], nowMs: number, perMs: number): void {
  let rest = perMs * STEP_MS;
  const taken = lanes.map(() => 0);
  for (;;) {
    const open = lanes.flatMap(({ fromMs, mostPerMs }, index) => {
      const mayTakeMore = Math.min(left[index]!, mostPerMs * STEP_MS - taken[index]!) > 1e-12;
      return fromMs <= nowMs + 1e-9 && mayTakeMore ? [index] : [];
    });
    if (open.length === 0 || rest < 1e-12) return;
    const weights = open.reduce((sum, index) => sum + lanes[index]!.weight, 0);
    const shared = rest;
    for (const index of open) {
      const { weight, mostPerMs } = lanes[index]!;
      const share = (shared * weight) / weights;
      const most = Math.min(left[index]!, mostPerMs * STEP_MS - taken[index]!);
      const poured = Math.min(share, most);
      taken[index]! += poured;
      left[index]! -= poured;
      rest -= poured;
    }
  }
}

/** When each job of each lane starts, one job after the other, in start-time fair queueing. */
function startsOneByOne(lanes: readonly LaneLoad[], perMs: number): number[][] {
  const starts: number[][] = lanes.map(() => []);
  const total = lanes.reduce((sum, { calls }) => sum + calls, 0);
  for (let slot = 0; slot < total; slot++) {
    let next = -1;
    const tagOf = (index: number): number => starts[index]!.length / lanes[index]!.weight;
    for (const [index, { calls }] of lanes.entries()) {
      if (starts[index]!.length === calls) continue;
      if (next < 0 || tagOf(index) < tagOf(next)) next = index;
    }
    starts[next]!.push(slot / perMs);
  }
  return starts;
}

describe("the drain of a backlog", () => {
  it("equals that of a fluid poured out in small steps", () => {
    fc.assert(
      fc.property(
        fc.array(load, { minLength: 1, maxLength: 5 }),
        fc.constantFrom(0.5, 1, 2),
        (lanes, perMs) => {
          const { lastMs, startMs } = drain(lanes, steady(perMs));
          // What one step puts into the wrong lane, for each time at which rates change.
          const slack = (2 * lanes.length + 1) * perMs * STEP_MS * 2;

          const left = lanes.map(({ calls }) => calls);
          const checks = lanes.flatMap(({ calls }, lane) =>
            Array.from({ length: calls }, (_, before) => ({
              lane,
              before,
              atMs: startMs(lane, before),
            })),
          );
          const inOrder = checks.toSorted((a, b) => a.atMs - b.atMs);
          let nowMs = 0;
          for (const { lane, before, atMs } of inOrder) {
            for (; nowMs < atMs; nowMs += STEP_MS) pour(lanes, left, nowMs, perMs);
            expect(Math.abs(lanes[lane]!.calls - left[lane]! - before)).toBeLessThan(slack);
          }
          for (; nowMs < lastMs; nowMs += STEP_MS) pour(lanes, left, nowMs, perMs);
          const rest = left.reduce((sum, each) => sum + each, 0);
          expect(Math.abs(rest - (inOrder.length > 0 ? 1 : 0))).toBeLessThan(slack);
        },
      ),
      { numRuns: 100 },
    );
  });

  it("is off by at most one job for each lane, when jobs start one by one in fair turns", () => {
    const plain = load.map(({ calls, weight }) => ({
      calls,
      weight,
      mostPerMs: Infinity,
      fromMs: 0,
    }));
    fc.assert(
      fc.property(
        fc.array(plain, { minLength: 1, maxLength: 6 }),
        fc.constantFrom(0.01, 1, 5),
        (lanes, perMs) => {
          const { startMs } = drain(lanes, steady(perMs));

          for (const [lane, starts] of startsOneByOne(lanes, perMs).entries()) {
            for (const [before, atMs] of starts.entries()) {
              const apart = Math.abs(startMs(lane, before) - atMs) * perMs;
              expect(apart).toBeLessThanOrEqual(lanes.length + 1e-6);
            }
          }
        },
      ),
    );
  });

  it("starts each job of a single lane in turn, the last one an interval before the end", () => {
    const { lastMs, startMs } = drain(
      [{ calls: 100, weight: 1, mostPerMs: Infinity, fromMs: 0 }],
      steady(0.1),
    );

    expect(lastMs).toBeCloseTo(990);
    expect(startMs(0, 0)).toBeCloseTo(0);
    expect(startMs(0, 50)).toBeCloseTo(500);
  });

  it("gives others the share that a slow key cannot use", () => {
    const slow = { calls: 10, weight: 1, mostPerMs: 0.01, fromMs: 0 };
    const fast = { calls: 90, weight: 1, mostPerMs: Infinity, fromMs: 0 };

    const { lastMs, startMs } = drain([slow, fast], steady(0.1));

    expect(startMs(1, 45)).toBeCloseTo(500);
    expect(startMs(0, 5)).toBeCloseTo(500);
    expect(lastMs).toBeCloseTo(990);
  });

  it("can be faster for some time, and then continues", () => {
    const lanes = [10, 30].map((calls) => ({ calls, weight: 1, mostPerMs: Infinity, fromMs: 0 }));

    const { lastMs, startMs, servedBy } = drain(lanes, [
      { fromMs: 0, perMs: 10 },
      { fromMs: 1, perMs: 2 },
    ]);

    expect([startMs(0, 4), startMs(0, 5), startMs(0, 6)]).toEqual([0.8, 1, 2]);
    expect([servedBy(1, 0.5), servedBy(1, 2), servedBy(0, 100)]).toEqual([2.5, 6, 10]);
    expect(lastMs).toBeCloseTo(15.5);
  });

  it("never ends where nothing may start", () => {
    const stuck = { calls: 1, weight: 1, mostPerMs: 0, fromMs: 0 };
    const barred = { calls: 1, weight: 1, mostPerMs: 1, fromMs: Infinity };
    const free = { calls: 10, weight: 1, mostPerMs: Infinity, fromMs: 0 };

    const { lastMs, startMs } = drain([stuck, barred, free], steady(1));

    expect(lastMs).toBe(Infinity);
    expect([startMs(0, 0), startMs(1, 0)]).toEqual([Infinity, Infinity]);
    expect(startMs(2, 9)).toBeCloseTo(9);
  });

  it("ends immediately for an empty backlog, and asks nothing of a missing lane", () => {
    const { lastMs, startMs } = drain([], steady(1));

    expect(lastMs).toBe(0);
    expect(startMs(3, 0)).toBe(Infinity);
  });
});
