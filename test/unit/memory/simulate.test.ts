import { describe, expect, it, vi } from "vitest";
import { fixedWindow, InvalidOptionError } from "sluice";
import { simulate, type SimulatedOutcome } from "sluice/simulate";
import { worstWindow } from "../../../src/entries/testing/worst-window.ts";

const LOAD = { ratePerSecond: 150, durationMs: 4_000 };

function outcomesOf(options: Parameters<typeof simulate>[0]): SimulatedOutcome[] {
  const outcomes: SimulatedOutcome[] = [];
  simulate({ ...options, onCall: (call) => void outcomes.push({ ...call }) });
  return outcomes;
}

describe("simulate()", () => {
  it("lets no window see more calls than the rate, over four replicas", () => {
    const left = outcomesOf({ policy: { rate: "100/s" }, arrivals: LOAD, replicas: 4 });

    const times = left.map(({ startedMs }) => startedMs);
    expect(times.length).toBeGreaterThan(500);
    expect(worstWindow(times, 1_000)).toBeLessThanOrEqual(101);
    expect(times).toEqual(times.toSorted((a, b) => a - b));
  });

  it("gives the same result for the same seed, and another for another", () => {
    const options = { policy: { rate: "100/s" }, arrivals: LOAD, replicas: 2 };

    const [one, two, other] = [5, 5, 6].map((seed) => simulate({ ...options, seed }));

    expect(two).toEqual(one);
    expect(other!.waits).not.toEqual(one!.waits);
  });

  it("gives the same result however fast the machine is", () => {
    const arrivals = [
      { ratePerSecond: 60, durationMs: 4_000, keys: 3 },
      { ratePerSecond: 60, durationMs: 4_000 },
    ];
    const found = [0, 3_600_000].map((eachMs) => {
      let nowMs = 0;
      const clock = vi.spyOn(performance, "now").mockImplementation(() => (nowMs += eachMs));
      const outcomes = outcomesOf({ policy: { rate: "100/s" }, arrivals, replicas: 2 });
      clock.mockRestore();
      return outcomes;
    });

    expect(found[1]).toEqual(found[0]);
  });

  it("counts every call once, and says how much of a limit was used", () => {
    const found = simulate({ policy: { rate: "100/s" }, arrivals: LOAD, replicas: 2 });

    expect(found.started).toBe(found.calls);
    expect(found.waiting).toBe(0);
    expect(found.waits.calls).toBe(found.calls);
    expect(found.limits).toEqual([{ limit: "100/s", used: expect.closeTo(1, 2) as number }]);
    expect(found.bindings[0]!.binding).toBe("100/s");
  });

  it("ends at untilMs, with the calls that still wait", () => {
    const found = simulate({ policy: { rate: "10/s" }, arrivals: LOAD, untilMs: 2_000 });

    expect(found.endMs).toBeLessThanOrEqual(2_000);
    expect(found.started + found.waiting).toBe(found.calls);
    expect(found.waiting).toBeGreaterThan(200);
  });

  it("lets urgent calls wait less, and shows the waits of each priority and key", () => {
    const arrivals = { ...LOAD, keys: { a: 3, b: 1 }, priorities: { critical: 1, low: 9 } };

    const { byPriority, byKey } = simulate({ policy: { rate: "100/s" }, arrivals, replicas: 2 });

    expect(byPriority.critical!.p99Ms).toBeLessThan(byPriority.low!.p50Ms);
    expect(byKey.map(({ key }) => key)).toEqual(["a", "b"]);
  });

  it("names the limit of a key, and holds leases as long as calls run", () => {
    const policy = { rate: "1000/s", concurrency: 2, perKey: { rate: "100/s" } };
    const arrivals = { ratePerSecond: 100, durationMs: 2_000, keys: ["a", "b"] };

    const found = simulate({ policy, arrivals, downstream: { latencyMs: 100 } });

    // Two calls at once of 100 ms each leave time for 20 a second.
    expect(found.endMs).toBeGreaterThan((found.calls / 20) * 1_000 - 200);
    expect(found.bindings[0]!.binding).toBe("2 at once");
    expect(found.limits[1]!.used).toBeGreaterThan(0.9);
  });

  it.each([
    ["the limit that all keys share, if each key is far below its own", 20, "100/s"],
    ["the limit of a key, if one key makes all calls", 1, "20/s"],
  ])("names %s", (_what, keys, limit) => {
    const found = simulate({
      policy: { rate: "100/s", perKey: { rate: "20/s" } },
      arrivals: { ratePerSecond: 120, durationMs: 4_000, keys },
      replicas: 4,
    });

    const [most] = found.bindings;
    expect(most!.binding).toBe(limit);
    expect(most!.calls).toBeGreaterThan(0.9 * found.calls);
  });

  it("cools the bucket down when the API refuses calls", () => {
    const options = { policy: { rate: "100/s" }, arrivals: LOAD, replicas: 2 };
    const downstream = { limit: "50/s", latencyMs: 10 };

    const refusing = simulate({ ...options, downstream });
    const accepting = simulate(options);

    expect(accepting.downstream.refusals).toBe(0);
    expect(refusing.downstream.refusals).toBeGreaterThan(0);
    expect(refusing.endMs).toBeGreaterThan(accepting.endMs);
    expect(refusing.bindings.map(({ binding }) => binding)).toContain("reduced rate");
  });

  it.each([
    // Two windows touch, so one second around their edge may see both.
    ["fixed", 100],
    ["sliding", 50],
    ["bucket", 100],
  ] as const)("accepts what a %s window of 50/s accepts", (window, most) => {
    const accepted = outcomesOf({
      policy: { limits: [fixedWindow(1_000, "1s")] },
      arrivals: { ratePerSecond: 400, durationMs: 3_000, pattern: "even" },
      downstream: { limit: "50/s", window, retryAfter: false, latencyMs: 100_000 },
    }).filter(({ status }) => status === 200);

    const worst = worstWindow(
      accepted.map(({ startedMs }) => startedMs),
      1_000,
    );
    expect(worst).toBeLessThanOrEqual(most);
    expect(worst).toBeGreaterThanOrEqual(50);
  });

  it("follows changes of the API's limit", () => {
    const changes = [{ atMs: 1_000, limit: "10/s" }];
    const refusedMs = outcomesOf({
      policy: { limits: [fixedWindow(1_000, "1s")] },
      arrivals: { ratePerSecond: 50, durationMs: 2_000, pattern: "even" },
      downstream: { limit: "100/s", changes, retryAfter: false, latencyMs: 100_000 },
    })
      .filter(({ status }) => status === 429)
      .map(({ startedMs }) => startedMs);

    expect(refusedMs.length).toBeGreaterThan(30);
    expect(Math.min(...refusedMs)).toBeGreaterThan(1_000);
  });

  it("draws arrivals from the counts of a history: what started, and what joined the line", () => {
    const history = {
      stepMs: 10_000,
      points: [
        { atMs: 1_790_000_000_000, started: 1_000, waiting: {} },
        { atMs: 1_790_000_010_000, started: 500, waiting: { normal: 500 } },
        { atMs: 1_790_000_020_000, started: 500, waiting: {} },
      ],
    };

    const arrivedMs = outcomesOf({ policy: { rate: "1000/s" }, history }).map(
      ({ arrivedMs: ms }) => ms,
    );

    const inStep = [0, 1, 2].map(
      (step) => arrivedMs.filter((ms) => Math.floor(ms / 10_000) === step).length,
    );
    expect(inStep[0]).toBeGreaterThan(900);
    expect(inStep[1]).toBeGreaterThan(900);
    expect(inStep[2]).toBe(0);
  });

  it("spaces even arrivals evenly, and lets those of a burst arrive together", () => {
    const arrivedMs = (pattern: "even" | "bursts") =>
      outcomesOf({
        policy: { rate: "1000/s" },
        arrivals: { ratePerSecond: 20, durationMs: 1_000, pattern, burst: 5 },
      }).map((call) => call.arrivedMs);

    expect(arrivedMs("even").slice(0, 3)).toEqual([0, 50, 100]);
    expect(arrivedMs("even")).toHaveLength(20);
    const times = arrivedMs("bursts");
    expect(times).toHaveLength(new Set(times).size * 5);
  });

  it.each([
    ["policy", { arrivals: LOAD }],
    ["rate", { policy: { rate: "many" }, arrivals: LOAD }],
    ["arrivals", { policy: { rate: "1/s" } }],
    ["arrivals", { policy: { rate: "1/s" }, arrivals: 7 }],
    ["ratePerSecond", { policy: { rate: "1/s" }, arrivals: { ratePerSecond: -1, durationMs: 1 } }],
    ["burts", { policy: { rate: "1/s" }, arrivals: { ...LOAD, burts: 1 } }],
    ["history", { policy: { rate: "1/s" }, arrivals: LOAD, history: { stepMs: 1, points: [] } }],
    ["replicas", { policy: { rate: "1/s" }, arrivals: LOAD, replicas: 0 }],
    ["replica", { policy: { rate: "1/s" }, arrivals: LOAD, replica: 1 }],
    ["downstream.limit", { policy: { rate: "1/s" }, arrivals: LOAD, downstream: { limit: "x" } }],
    ["downstream.window", { policy: { rate: "1/s" }, arrivals: LOAD, downstream: { window: "x" } }],
    ["arrivals[1].atMs", { policy: { rate: "1/s" }, arrivals: [{ atMs: 5 }, { atMs: 4 }] }],
    ["arrivals[0].priority", { policy: { rate: "1/s" }, arrivals: [{ atMs: 5, priority: "x" }] }],
    ["arrivals[0].cost", { policy: { rate: "1/s" }, arrivals: [{ atMs: 5, cost: -1 }] }],
    ["arrivals[0].key", { policy: { rate: "1/s" }, arrivals: [{ atMs: 5, key: 7 }] }],
    ["arrivals[0].replica", { policy: { rate: "1/s" }, arrivals: [{ atMs: 5, replica: 1 }] }],
  ])("refuses a wrong %s by its name", (option, options) => {
    const call = (): unknown => simulate(options as never);

    expect(call).toThrow(InvalidOptionError);
    expect(call).toThrow(expect.objectContaining({ option }) as Error);
  });
});
