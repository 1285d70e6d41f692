import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import {
  NO_POSITION,
  type Drawn,
  type Granted,
  type WaitPosition,
} from "../../../../src/core/store.ts";
import { createAskTimes } from "../../../../src/throttle/waiting/ask-times.ts";
import { callTermsOf } from "../../../../src/throttle/costs.ts";
import { Group, type Caller } from "../../../../src/throttle/waiting/group.ts";
import type { SlotContext } from "../../../../src/throttle/slot/slot.ts";

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

/** The times of a process in which one call waits, and how far off the next one is, in ms. */
function setUp({ isWaiting = true, leadMs = 0 } = {}) {
  const conditions = callTermsOf({ shared: [], scopeLimits: [], costs: [], whose: [], text: "" });
  const group = new Group(conditions, {
    keeper: {} as SlotContext,
    name: "",
    scopes: [],
  });
  if (isWaiting) group.line.push({ priority: "normal" } as Caller);
  const askTimes = createAskTimes(new Set([group]), { leadMs });
  const nextInMs = (lastSharedInMs = -Infinity): number =>
    askTimes.nextAtMs(performance.now(), false, performance.now() + lastSharedInMs) -
    performance.now();
  /** A reply that came just now; the bucket's clock goes as this process's does. */
  const answer = (position: Partial<WaitPosition> = {}): void => {
    const arrivedMs = performance.now();
    const reply = { nowUs: arrivedMs * 1_000, position: { ...NO_POSITION, ...position } } as Drawn;
    askTimes.replyReceived(reply, { arrivedMs, offsetMs: 0, isStale: false }, undefined);
  };
  return { askTimes, group, nextInMs, answer };
}

/** The same moment on the bucket's clock. */
const inMs = (ms: number): number => (performance.now() + ms) * 1_000;

describe("a process asks", () => {
  it("never, while no call is pending", () => {
    expect(setUp({ isWaiting: false }).nextInMs()).toBe(Infinity);
  });

  it("at once for who comes first", () => {
    expect(setUp().nextInMs()).toBe(0);
  });

  it("for newcomers together, while it holds slots for a while", () => {
    const { askTimes, group, nextInMs } = setUp();
    group.line.push({ priority: "normal" } as Caller);
    group.held.add({ slotsUs: [inMs(50)] } as Partial<Granted> as Granted, 0, 0, 2);

    askTimes.requestSent(performance.now());

    expect(nextInMs()).toBe(10);
  });

  it("for newcomers of all keys together, while it holds shared slots for a while", () => {
    const { askTimes, nextInMs } = setUp();

    askTimes.requestSent(performance.now());

    expect(nextInMs(50)).toBe(10);
    expect(nextInMs(5)).toBe(0);
  });

  it("when its turn comes", () => {
    const { askTimes, nextInMs, answer } = setUp();

    answer({ turnUs: inMs(80) });

    expect(nextInMs()).toBeCloseTo(80);
    expect(askTimes.turnAtMs).toBeCloseTo(performance.now() + 80);
  });

  it("so much sooner as a question and its reply take", () => {
    const { nextInMs, answer } = setUp({ leadMs: 30 });

    answer({ turnUs: inMs(80) });

    expect(nextInMs()).toBeCloseTo(50);
  });

  it.each([
    ["whose turn is far off", { turnUs: 60_000_000 }],
    ["that waits for a lease", { leaseOrder: 1 }],
  ])("every half second in a place %s", (_which, position) => {
    const { nextInMs, answer } = setUp();

    answer(position);

    expect(nextInMs()).toBeCloseTo(500);
  });

  it("a second later when the store has not responded, or as soon as there is a change", () => {
    const { askTimes, nextInMs } = setUp();

    askTimes.retryLater();
    const withoutNews = nextInMs();
    askTimes.retryNow();

    expect(withoutNews).toBe(1_000);
    expect(nextInMs()).toBe(0);
  });
});

it("the store owes an answer since the first question that it has left open", () => {
  const { askTimes, answer } = setUp();

  askTimes.requestSent(performance.now());
  vi.advanceTimersByTime(30);
  askTimes.requestSent(performance.now());
  vi.advanceTimersByTime(30);
  const owedMs = askTimes.silentMs;
  answer();

  expect(owedMs).toBe(60);
  expect(askTimes.silentMs).toBe(0);
});
