import { expect, it } from "vitest";
import { NO_POSITION } from "../../../../src/core/store.ts";
import { createWaitPositions } from "../../../../src/throttle/waiting/draw-request.ts";

const turn = { turnUs: 5, sinceUs: 2, leaseOrder: 0 };
const wait = { turnUs: 0, sinceUs: 0, leaseOrder: 7 };

it.each([turn, wait])("keeps the place of a key that is waited for: %j", (position) => {
  const positions = createWaitPositions();

  positions.keep("a", position);

  expect([positions.of("a"), positions.of("b")]).toEqual([position, NO_POSITION]);
});

it("keeps nothing of a key in which nothing is waited for any more", () => {
  const positions = createWaitPositions();
  positions.keep("a", turn);

  positions.keep("a", { ...NO_POSITION });

  // The very same: one of its own would be kept for every key that ever came.
  expect(positions.of("a")).toBe(NO_POSITION);
});

it("forgets the turn in the line of the bucket itself, but not since when a lease is waited for", () => {
  const positions = createWaitPositions();
  positions.shared = { ...turn, leaseOrder: 7 };

  positions.forgetSharedTurn();

  expect(positions.shared).toEqual(wait);
});

it("keeps the turns of keys, which no generation ends", () => {
  const positions = createWaitPositions();
  positions.keep("a", turn);

  positions.forgetSharedTurn();

  expect(positions.of("a")).toEqual(turn);
});
