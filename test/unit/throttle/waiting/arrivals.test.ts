import { expect, it } from "vitest";
import { createArrivals } from "../../../../src/throttle/waiting/line.ts";

it("puts calls that come together a millisecond apart, and those that come later where they came", () => {
  const queuedAtMs = createArrivals();

  const together = [10, 10, 10.2].map((nowMs) => queuedAtMs(2, nowMs));

  expect(together).toEqual([10, 11, 12]);
  expect(queuedAtMs(2, 20)).toBe(20);
});

it("puts calls of each priority apart by themselves", () => {
  const queuedAtMs = createArrivals();

  const places = [2, 0, 2, 0].map((rank) => queuedAtMs(rank, 10));

  expect(places).toEqual([10, 10, 11, 11]);
});

it("puts no call off by more than 200 ms, however many come together", () => {
  const queuedAtMs = createArrivals();

  const places = Array.from({ length: 5_000 }, () => queuedAtMs(1, 10));

  expect(places.slice(199, 202)).toEqual([209, 210, 210]);
  expect(places.at(-1)).toBe(210);
});
