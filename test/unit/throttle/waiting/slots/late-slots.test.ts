import { describe, expect, it, vi } from "vitest";
import { createLateSlots, createStaleCheck } from "../../../../../src/throttle/waiting/lateness.ts";
import { fakeTimers } from "../../../../support/async/fake-timers.ts";
import { createFarStore } from "../../../../support/draws/far-store.ts";
import { createTestBucket } from "../../../../support/draws/test-bucket.ts";

/** Looks at slots that are so late, one after the other; which of them may go. */
function lookAt(lateSlots: ReturnType<typeof createLateSlots>, ...lateMs: number[]): boolean[] {
  lateSlots.beginRound();
  return lateMs.map((each) => lateSlots.mayUse(each, 5));
}

/** Late slots of a process that has found nothing but such at three looks. */
function afterThreeLost() {
  const lateSlots = createLateSlots();
  for (let look = 0; look < 3; look++) expect(lookAt(lateSlots, 12, 6)).toEqual([false, false]);
  return lateSlots;
}

describe("createLateSlots", () => {
  it("lets those go that are in time", () => {
    expect(lookAt(createLateSlots(), 0, 5, 5.1)).toEqual([true, true, false]);
  });

  it("does not also count a look that found one in time", () => {
    const lateSlots = createLateSlots();

    expect(lookAt(lateSlots, 0, 12)).toEqual([true, false]);
    for (const may of [false, false, false, true]) expect(lookAt(lateSlots, 12)).toEqual([may]);
  });

  it("lets one go at each look, after three that found only late ones", () => {
    const lateSlots = afterThreeLost();

    expect(lookAt(lateSlots, 12, 7)).toEqual([true, false]);
    expect(lookAt(lateSlots, 12, 7)).toEqual([true, false]);
  });

  it("lets none go that is more than a horizon late", () => {
    expect(lookAt(afterThreeLost(), 101, 100)).toEqual([false, true]);
  });

  it("begins anew once a slot is in time", () => {
    const lateSlots = afterThreeLost();

    expect(lookAt(lateSlots, 3)).toEqual([true]);
    expect(lookAt(lateSlots, 12)).toEqual([false]);
  });

  it("counts no look that found no slot", () => {
    const lateSlots = createLateSlots();
    lookAt(lateSlots, 12);

    for (let look = 0; look < 5; look++) lookAt(lateSlots);

    expect(lookAt(lateSlots, 12)).toEqual([false]);
  });
});

describe("a process that is busy whenever a reply comes", () => {
  const advance = fakeTimers({ leavesNone: true });

  it("draws for a call four times at most", async () => {
    const way = { thereMs: 0, backMs: 0 };
    const store = createFarStore(way);
    const { bucket } = createTestBucket({ rate: "200/s" }, { store });
    await bucket.draw();
    way.backMs = 12;
    const draw = vi.spyOn(store, "draw");

    const drawing = bucket.draw();
    await advance(3_000);
    await drawing;

    expect(draw).toHaveBeenCalledTimes(4);
    await bucket.close();
  });
});

describe("createStaleCheck", () => {
  it("takes a reply for stale that took more than a horizon longer than the quickest", () => {
    const isStale = createStaleCheck();

    expect([30, 10, 110, 110.1].map(isStale)).toEqual([false, false, false, true]);
  });

  it("takes a slower network for usual after one reply", () => {
    const isStale = createStaleCheck();

    expect([10, 300, 300, 400, 401].map(isStale)).toEqual([false, true, false, false, true]);
  });
});
