import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { createClock } from "../../../src/stores/redis/queue/clock.ts";

const START_MS = 1_800_000_000_000;
const HOUR_MS = 3_600_000;
const TRIP_MS = 4;

beforeEach(() => vi.useFakeTimers({ toFake: ["performance", "Date", "setTimeout"] }));
afterEach(() => vi.useRealTimers());

/** A clock of a server that is `aheadMs` ahead, a round trip away, and how often it was asked. */
function openClock(aheadMs = 0) {
  const server = { aheadMs, asked: 0, lateMs: 0 };
  const clock = createClock(async () => {
    server.asked += 1;
    vi.advanceTimersByTime(TRIP_MS / 2);
    const us = serverMs() * 1_000;
    vi.advanceTimersByTime(TRIP_MS / 2 + server.lateMs);
    server.lateMs = 0;
    return us;
  });
  const serverMs = (): number => START_MS + performance.now() + server.aheadMs;

  /** Whether the server's time lies between the two that are known, and these so near each other. */
  function isRight(withinMs = TRIP_MS): boolean {
    const [earliestMs, latestMs] = [clock.earliestMs(), clock.latestMs()];
    const isBetween = earliestMs <= serverMs() && serverMs() <= latestMs;
    return isBetween && latestMs - earliestMs <= withinMs + 1;
  }
  return { clock, server, serverMs, isRight };
}

describe("the clock of a server", () => {
  it("is read once, and known between two bounds from then on", async () => {
    const { clock, server, isRight } = openClock(3 * HOUR_MS);

    await clock.ready();
    vi.advanceTimersByTime(5_000);

    expect(isRight()).toBe(true);
    expect(clock.ready()).toBeUndefined();
    expect(server.asked).toBe(1);
  });

  it("is read in the background after ten seconds, and before use after a minute", async () => {
    const { clock, server } = openClock();

    await clock.ready();
    vi.advanceTimersByTime(11_000);
    expect(clock.ready()).toBeUndefined();
    expect(server.asked).toBe(2);
    await vi.advanceTimersByTimeAsync(61_000);

    expect(clock.ready()).toBeInstanceOf(Promise);
    expect(server.asked).toBe(3);
  });

  it("is read once more if this process was busy when the first reply arrived", async () => {
    const { clock, server, isRight } = openClock();
    server.lateMs = 500;

    await clock.ready();

    expect(isRight()).toBe(true);
    expect(server.asked).toBe(2);
  });

  it("does not follow a step of this process's wall clock, and is read again", async () => {
    const { clock, isRight } = openClock();

    await clock.ready();
    vi.setSystemTime(Date.now() - 3 * HOUR_MS);

    expect(isRight()).toBe(true);
    expect(clock.ready()).toBeInstanceOf(Promise);
  });

  it("belongs to another server once the connection was lost", async () => {
    const { clock, server, isRight } = openClock();

    await clock.ready();
    clock.distrust();
    server.aheadMs = -3 * HOUR_MS;
    await clock.ready();

    expect(isRight()).toBe(true);
  });

  it("ignores a reply that has waited for a new connection", async () => {
    const { clock, serverMs, isRight } = openClock();
    await clock.ready();
    clock.distrust();
    const sentMs = performance.now();
    vi.advanceTimersByTime(5_000);
    clock.distrust();
    const ms = serverMs();
    clock.sample({ sentMs, arrivedMs: performance.now(), fromMs: ms, toMs: ms });

    const knowing = clock.ready();

    expect(knowing).toBeInstanceOf(Promise);
    await knowing;
    expect(isRight()).toBe(true);
  });

  it("is followed when it steps", async () => {
    const { clock, server, serverMs, isRight } = openClock();

    await clock.ready();
    server.aheadMs = 3 * HOUR_MS;
    const sentMs = performance.now();
    const ms = serverMs();
    clock.sample({ sentMs, arrivedMs: performance.now(), fromMs: ms, toMs: ms });

    expect(isRight()).toBe(true);
  });

  it("is as exact as the quickest reply", async () => {
    const { clock, serverMs, isRight } = openClock();

    await clock.ready();
    const sentMs = performance.now();
    const ms = serverMs();
    vi.advanceTimersByTime(500);
    clock.sample({ sentMs, arrivedMs: performance.now(), fromMs: ms, toMs: ms });

    expect(isRight(TRIP_MS + 1)).toBe(true);
  });
});
