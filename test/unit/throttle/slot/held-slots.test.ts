import { describe, expect, it } from "vitest";
import type { Granted } from "../../../../src/core/store.ts";
import { createHeldSlots } from "../../../../src/throttle/slot/held-slots.ts";

function listed(...slotsUs: readonly number[]): Granted {
  const nothing = { notBeforeUs: 0, bindsAt: 0, soonestUs: 0, statuses: [], positions: [] };
  return { slotsUs, run: undefined, ...nothing };
}

/** Five slots, 1 ms apart. */
function runFrom(atUs: number): Granted {
  const run = { count: 5, atUs, excess: 0, step: 1_000, drain: 1 };
  return { ...listed(), run };
}

describe("slots that are held", () => {
  it("start calls in the order of their times, also after returned slots arrive", () => {
    const held = createHeldSlots();
    held.add(runFrom(20_000), 0, 0, 2);
    held.add(listed(11_000, 12_000), 0, 0, 2);

    const next = [held.nextAtMs, held.take().slotUs, held.take().slotUs, held.take().slotUs];

    expect(next).toEqual([11, 11_000, 12_000, 20_000]);
    expect(held.size).toBe(4);
  });

  it("are returned from the end, so that the remaining calls lose no time", () => {
    const held = createHeldSlots();
    held.add(listed(11_000, 12_000), 7, 0, 2);
    held.add(runFrom(20_000), 0, 0, 2);

    const latest = held.takeLatest(6);

    expect(latest.map(({ slotUs }) => slotUs)).toEqual([
      24_000, 23_000, 22_000, 21_000, 20_000, 12_000,
    ]);
    expect(latest.at(-1)!.lease).toBe(8);
    expect([held.size, held.lastAtMs]).toEqual([1, 11]);
  });
});
