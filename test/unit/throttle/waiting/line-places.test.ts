import { expect, it } from "vitest";
import { NO_PLACE } from "../../../../src/core/store.ts";
import { createLinePlaces } from "../../../../src/throttle/waiting/draw-request.ts";

const turn = { turnUs: 5, sinceUs: 2, leaseOrder: 0 };
const wait = { turnUs: 0, sinceUs: 0, leaseOrder: 7 };

it.each([turn, wait])("keeps the place of a key that is waited for: %j", (place) => {
  const places = createLinePlaces();

  places.keep("a", place);

  expect([places.of("a"), places.of("b")]).toEqual([place, NO_PLACE]);
});

it("keeps nothing of a key in which nothing is waited for any more", () => {
  const places = createLinePlaces();
  places.keep("a", turn);

  places.keep("a", { ...NO_PLACE });

  // The very same: one of its own would be kept for every key that ever came.
  expect(places.of("a")).toBe(NO_PLACE);
});

it("forgets the turn in the line of the bucket itself, but not since when a lease is waited for", () => {
  const places = createLinePlaces();
  places.shared = { ...turn, leaseOrder: 7 };

  places.forgetSharedTurn();

  expect(places.shared).toEqual(wait);
});

it("keeps the turns of keys, which no generation ends", () => {
  const places = createLinePlaces();
  places.keep("a", turn);

  places.forgetSharedTurn();

  expect(places.of("a")).toEqual(turn);
});
