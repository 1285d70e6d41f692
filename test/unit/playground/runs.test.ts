import { describe, expect, it } from "vitest";
import {
  drawCalls,
  figuresOf,
  fixedWindow,
  minTimePerProcess,
  reservoirPerProcess,
  runAll,
  tokenBucket,
  type Call,
  type Simulate,
} from "../../../docs/.vitepress/theme/playground/runs.ts";
import { DEFAULTS, type Settings } from "../../../docs/.vitepress/theme/playground/settings.ts";

/** When calls of the first process leave that arrive at these times. */
function leaveTimes(leave: (call: Call) => number, ...arrivalsMs: readonly number[]): number[] {
  return arrivalsMs.map((atMs) => leave({ atMs, tenant: 0, replica: 0 }));
}

/** A simulation in which no call leaves. */
const withoutCalls: Simulate = ({ arrivals }) => ({ waiting: arrivals.length });

/** The figures of a model. */
function figures(name: string, changed: Partial<Settings>) {
  const runs = runAll({ ...DEFAULTS, ...changed }, withoutCalls);
  return figuresOf(runs.find((run) => run.name === name)!);
}

describe("the calls of the playground", () => {
  it("are the same for the same seed, and others for another", () => {
    expect(drawCalls(DEFAULTS)).toEqual(drawCalls(DEFAULTS));
    expect(drawCalls({ ...DEFAULTS, seed: 2 })).not.toEqual(drawCalls(DEFAULTS));
  });

  it("arrive in order, at about the chosen rate, in all processes", () => {
    const calls = drawCalls(DEFAULTS);
    const times = calls.map(({ atMs }) => atMs);

    expect(times).toEqual(times.toSorted((a, b) => a - b));
    expect(Math.abs(calls.length - 600)).toBeLessThan(100);
    expect(new Set(calls.map(({ replica }) => replica))).toEqual(new Set([0, 1, 2, 3]));
  });

  it("give the first tenant its part", () => {
    const calls = drawCalls({ ...DEFAULTS, tenants: 4, loud: 85 });
    const ofFirst = calls.filter(({ tenant }) => tenant === 0).length;

    expect(Math.abs(ofFirst / calls.length - 0.85)).toBeLessThan(0.05);
  });
});

describe("a fixed window", () => {
  it("lets the rate through at once, and others at the start of the next second", () => {
    const leave = fixedWindow({ ...DEFAULTS, rate: 2 });

    expect(leaveTimes(leave, 900, 910, 920, 930, 940)).toEqual([900, 910, 1_000, 1_000, 2_000]);
  });

  it("starts to count anew in each second", () => {
    const leave = fixedWindow({ ...DEFAULTS, rate: 2 });

    expect(leaveTimes(leave, 900, 910, 1_000, 1_010, 1_020)).toEqual([
      900, 910, 1_000, 1_010, 2_000,
    ]);
  });
});

describe("minTime per process", () => {
  it("spaces the calls of one process by one interval of the rate", () => {
    const leave = minTimePerProcess({ ...DEFAULTS, rate: 10 });

    expect(leaveTimes(leave, 0, 0, 50, 900)).toEqual([0, 100, 200, 900]);
  });

  it("does not know of other processes, so four of them exceed the rate", () => {
    const { worstSecond } = figures("Bottleneck: minTime", { traffic: 200, api: 0 });

    expect(worstSecond).toBeGreaterThan(3 * DEFAULTS.rate);
  });
});

describe("a reservoir per process", () => {
  it("lets the rate through at once, and again at each refresh", () => {
    const leave = reservoirPerProcess({ ...DEFAULTS, rate: 2, replicas: 1 });

    expect(leaveTimes(leave, 900, 910, 920, 1_950, 1_960, 5_000)).toEqual([
      900, 910, 1_000, 1_950, 2_000, 5_000,
    ]);
  });

  it("is refreshed at other times in other processes, so four of them exceed the rate", () => {
    const leave = reservoirPerProcess({ ...DEFAULTS, rate: 1, replicas: 4 });
    const times = [0, 1, 2, 3].flatMap((replica) =>
      [0, 0].map((atMs) => leave({ atMs, tenant: 0, replica })),
    );

    expect(times).toEqual([0, 250, 0, 500, 0, 750, 0, 1_000]);
  });
});

describe("a token bucket", () => {
  it("starts full, and then lets one call through for each new token", () => {
    const leave = tokenBucket({ ...DEFAULTS, rate: 2 });

    expect(leaveTimes(leave, 0, 0, 0, 0)).toEqual([0, 0, 500, 1_000]);
  });

  it("holds the calls of one second at most", () => {
    const leave = tokenBucket({ ...DEFAULTS, rate: 2 });

    expect(leaveTimes(leave, 9_000, 9_000, 9_000)).toEqual([9_000, 9_000, 9_500]);
  });
});

describe("the API", () => {
  it("refuses what exceeds its number in any second", () => {
    const all = figures("Bottleneck: minTime", { traffic: 200, api: 0 });
    const some = figures("Bottleneck: minTime", { traffic: 200, api: 50 });

    expect(all.refused).toBe(0);
    expect(some.left).toBe(all.left);
    expect(some.left - some.refused).toBeLessThanOrEqual(12 * 50);
  });

  it("refuses more if it halves its quota for three seconds", () => {
    const steady = figures("Token bucket", { traffic: 50 });
    const dipped = figures("Token bucket", { traffic: 50, dip: 1 });

    expect(dipped.refused).toBeGreaterThan(steady.refused);
  });
});

describe("the figures", () => {
  it("count the calls that start within any second, not those of a second of the clock", () => {
    const departures = [100, 900, 950, 1_050, 1_890].map((atMs) => {
      return { atMs, arrivedMs: 100, tenant: 0, isRefused: false };
    });

    const found = figuresOf({ name: "a", about: "b", departures, waiting: 3 });

    expect(found).toMatchObject({ left: 5, waiting: 3, worstSecond: 4, medianMs: 850 });
    expect(found.quietMs).toBeUndefined();
  });
});
