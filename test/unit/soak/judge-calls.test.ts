import { describe, expect, it } from "vitest";
import { toMachineTime } from "../../soak/clocks.ts";
import {
  arrivalsOf,
  lagCap,
  lagOf,
  lateCalls,
  mostExtra,
  slotsOf,
} from "../../soak/judge/judge-calls.ts";
import { ratePhases } from "../../soak/judge/judge-calls.ts";
import { recoveries } from "../../soak/judge/judge-calls.ts";
import type { Call, Struck } from "../../soak/records.ts";
import { callAt, momentAt, struckBy } from "./records.ts";

const PER_SECOND = 100;
const EVERY_MS = 1_000 / PER_SECOND;
const toMachineMs = toMachineTime([momentAt(0), momentAt(1_000)]);

/** So many calls, evenly. */
const evenly = (count: number, fromMs = 0): Call[] =>
  Array.from({ length: count }, (_, index) => callAt(fromMs + index * EVERY_MS));

const extraSlots = (calls: readonly Call[], struck: readonly Struck[] = [], burst = 1): number =>
  mostExtra(slotsOf(calls), { phases: ratePhases(PER_SECOND, struck, "wallMs"), burst });

function extraArrivals(calls: readonly Call[]): number {
  const lags = calls.map((call) => lagOf(call, toMachineMs));
  const timed = arrivalsOf(calls, { lags, perSecond: PER_SECOND, capAt: lagCap(PER_SECOND, []) });
  return mostExtra(timed, { phases: ratePhases(PER_SECOND, [], "ms"), burst: 1 });
}

function late(calls: readonly Call[]): readonly Call[] {
  const lags = calls.map((call) => lagOf(call, toMachineMs));
  return lateCalls(calls, { lags, capAt: lagCap(PER_SECOND, []), perSecond: PER_SECOND });
}

describe("the judge of calls", () => {
  it("finds nothing in calls that keep the rate, nor in an allowed burst", () => {
    const burst = [callAt(0), callAt(0), callAt(0)];

    expect(extraSlots(evenly(500))).toBe(0);
    expect(extraSlots([...burst, ...evenly(400, EVERY_MS)], [], 3)).toBe(0);
  });

  it("finds two calls on one slot", () => {
    expect(extraSlots([...evenly(100), callAt(50 * EVERY_MS)])).toBe(1);
  });

  it("finds a rate that is a little too high in its longest window", () => {
    const fast = Array.from({ length: 500 }, (_, index) => callAt(index * EVERY_MS * 0.99));

    expect(extraSlots(fast)).toBeGreaterThan(0);
  });

  it("finds a clump of arrivals with good slots", () => {
    const clump = evenly(60).map((call) => ({ ...call, leftMs: 1_000, arrivedMs: 1_000 }));

    expect(extraArrivals(evenly(60))).toBe(0);
    expect(extraArrivals(clump)).toBeGreaterThan(0);
    expect(late(clump)).not.toEqual([]);
  });

  it("allows for the measured travel time of calls", () => {
    const slow = evenly(20).map((call) => ({ ...call, arrivedMs: 200 }));

    expect(extraArrivals(slow)).toBe(0);
  });

  it("knows only to a millisecond how late a call started, by the wall clock", () => {
    const called = (slotMs: number, leftMs: number) => ({
      ...callAt(slotMs),
      leftMs,
      arrivedMs: leftMs,
    });

    expect(extraArrivals([called(0, 8.8), called(10, 9.7)])).toBe(0);
    expect(extraArrivals([called(0, 6.8), called(10, 7.7)])).toBe(1);
  });

  it("allows a process that stood still the call of that instant, and no more", () => {
    const frozen = (slotMs: number) => ({ ...callAt(slotMs), leftMs: 3_001, arrivedMs: 3_001 });

    expect(late([frozen(99)])).toEqual([]);
    expect(late([frozen(99), frozen(109)])).toHaveLength(1);
    expect(late([frozen(99), { ...frozen(109), pid: 2 }])).toEqual([]);
  });

  it("applies a change of the rate from its time on, and allows no call in a pause", () => {
    const pause = (toMs: number): Struck => ({
      ...struckBy("bucket paused", { fromMs: 1_000, toMs }),
      rate: {
        perSecond: 0,
        askedAt: momentAt(1_000),
        heldFrom: momentAt(1_010),
        heldTo: momentAt(toMs - 10),
        goneAt: momentAt(toMs),
      },
    });
    const calls = [...evenly(110), callAt(1_500), ...evenly(50, 2_000)];

    expect(extraSlots(calls, [pause(1_400)])).toBe(0);
    expect(extraSlots(calls, [pause(1_990)])).toBe(1);
  });
});

describe("the time of recovery", () => {
  it("is that of the last replica, and of the first job; and has no end without one", () => {
    const struck = [struckBy("READONLY", { fromMs: 0, toMs: 1_000 })];
    const calls = [callAt(1_100), callAt(1_700, { pid: 2 }), callAt(1_300, { job: 5, pid: 3 })];

    const [of2] = recoveries(calls, { struck, replicas: [1, 2] });
    const [of3] = recoveries(calls, { struck, replicas: [1, 2, 4] });

    expect(of2).toMatchObject({ callsMs: 700, jobsMs: 300 });
    expect(of3!.callsMs).toBe(Infinity);
  });
});
