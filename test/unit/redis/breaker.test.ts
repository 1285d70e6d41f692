import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { createBreaker, type BreakerOptions } from "../../../src/stores/redis/requests/breaker.ts";

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

/** A breaker, its probes, and what it told. */
function open(options: BreakerOptions = {}) {
  const states: string[] = [];
  const probes: { resolve: (value: unknown) => void; reject: (reason: Error) => void }[] = [];
  const breaker = createBreaker(options, {
    probe() {
      return new Promise((resolve, reject) => void probes.push({ resolve, reject }));
    },
    onChange: (state) => void states.push(state),
  });
  /** Questions one after the other that all fail. */
  function fail(times: number): void {
    for (let each = 0; each < times; each++) {
      vi.advanceTimersByTime(1);
      breaker.fail(performance.now());
    }
  }
  return { breaker, states, probes, fail };
}

describe("a breaker", () => {
  it("opens after three failures in a row", () => {
    const { breaker, states, fail } = open();

    fail(2);
    expect(breaker.isOpen).toBe(false);
    fail(1);

    expect(breaker.isOpen).toBe(true);
    expect(states).toEqual(["down"]);
  });

  it("stays closed when a reply comes in between", () => {
    const { breaker, fail } = open();

    fail(2);
    breaker.succeed();
    fail(2);

    expect(breaker.isOpen).toBe(false);
  });

  it("counts requests that failed together once", () => {
    const { breaker } = open();
    const askedAtMs = performance.now();
    vi.advanceTimersByTime(5);

    for (let each = 0; each < 10; each++) breaker.fail(askedAtMs);

    expect(breaker.isOpen).toBe(false);
  });

  it("lets one probe through about every 30 s, not before 22 s and not after 38 s", () => {
    const { probes, fail } = open();
    fail(3);

    vi.advanceTimersByTime(22_400);
    expect(probes).toHaveLength(0);
    vi.advanceTimersByTime(15_200);

    expect(probes).toHaveLength(1);
  });

  it("closes when the probe gets a reply, and opens again at the first failure", async () => {
    const { breaker, states, probes, fail } = open({ probeMs: 100 });
    fail(3);
    vi.advanceTimersByTime(130);
    probes[0]!.resolve(1);
    await vi.advanceTimersByTimeAsync(0);
    expect(breaker.isOpen).toBe(false);

    fail(1);

    expect(breaker.isOpen).toBe(true);
    expect(states).toEqual(["down", "up", "down"]);
  });

  it("keeps probing while Redis does not reply, and stays open", async () => {
    const { breaker, states, probes, fail } = open({ probeMs: 100 });
    fail(3);

    for (let each = 0; each < 4; each++) {
      await vi.advanceTimersByTimeAsync(130);
      expect(breaker.isOpen).toBe(true);
      probes.at(-1)!.reject(new Error("no"));
      await vi.advanceTimersByTimeAsync(0);
    }

    expect(probes).toHaveLength(4);
    expect(states).toEqual(["down"]);
  });

  it("probes a server that rejects requests after a second, and then less and less often", async () => {
    const { breaker, probes, states } = open();
    const refusal = Object.assign(new Error("READONLY"), { name: "ReplyError" });
    for (let each = 0; each < 3; each++) {
      vi.advanceTimersByTime(1);
      breaker.fail(performance.now(), refusal);
    }
    const waitsMs: number[] = [];

    for (let each = 0; each < 8; each++) {
      const fromMs = performance.now();
      await vi.advanceTimersToNextTimerAsync();
      waitsMs.push(performance.now() - fromMs);
      probes.at(-1)!.reject(refusal);
      await vi.advanceTimersByTimeAsync(0);
    }

    expect(breaker.refusal).toBe(refusal);
    expect(states).toEqual(["down"]);
    const usualMs = [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000];
    for (const [index, ms] of usualMs.entries()) {
      expect(Math.abs(waitsMs[index]! - ms)).toBeLessThanOrEqual(ms / 4);
    }
  });

  it("probes immediately when a connection is ready again", () => {
    const { breaker, probes, fail } = open();
    fail(3);

    breaker.ready();

    expect(probes).toHaveLength(1);
  });

  it("does not alternate on a server that accepts connections and only answers probes", async () => {
    const { breaker, probes, fail } = open();
    fail(3);
    breaker.ready();
    probes[0]!.resolve(1);
    await vi.advanceTimersByTimeAsync(0);
    fail(1);

    breaker.ready();

    expect(probes).toHaveLength(1);
    expect(breaker.isOpen).toBe(true);
  });

  it("uses the numbers in its options", () => {
    const { breaker, fail } = open({ failures: 1 });

    fail(1);

    expect(breaker.isOpen).toBe(true);
  });

  it("leaves no timer behind", async () => {
    const { breaker, probes, fail, states } = open();
    fail(3);

    breaker.close();
    fail(3);

    expect(vi.getTimerCount()).toBe(0);
    expect(probes).toHaveLength(0);
    expect(states).toEqual(["down"]);
  });
});
