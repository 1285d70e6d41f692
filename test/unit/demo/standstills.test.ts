import { expect, it } from "vitest";
import { createStandstills } from "../../../examples/demo/standstills.ts";

/** A bell that should ring every 2 ms, and a clock that is set by hand. */
function openAt(atMs: number) {
  let nowMs = atMs;
  const standstills = createStandstills(2, () => nowMs);
  const ringAt = (ms: number): void => {
    nowMs = ms;
    standstills.ring();
  };
  return { standstills, ringAt, wait: (ms: number) => (nowMs += ms) };
}

it("finds no standstill when the timer fires in time", () => {
  const { standstills, ringAt } = openAt(0);

  for (const ms of [2, 4, 6]) ringAt(ms);

  expect(standstills.longestOfLastSecondMs()).toBe(0);
});

it("measures a standstill when the timer fires late", () => {
  const { standstills, ringAt } = openAt(0);

  ringAt(18);
  ringAt(25);

  expect(standstills.longestOfLastSecondMs()).toBe(16);
});

it("counts a standstill that still lasts", () => {
  const { standstills, wait } = openAt(0);

  wait(12);

  expect(standstills.longestOfLastSecondMs()).toBe(10);
});

it("forgets a standstill after a second", () => {
  const { standstills, ringAt } = openAt(0);
  ringAt(18);

  for (let ms = 20; ms <= 1_016; ms += 2) ringAt(ms);
  expect(standstills.longestOfLastSecondMs()).toBe(16);
  ringAt(1_018);
  expect(standstills.longestOfLastSecondMs()).toBe(0);
});
