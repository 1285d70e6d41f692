import { expect, it } from "vitest";
import { jittered } from "../../../src/webhooks/sending/jobs.ts";

it.each([
  [0, 800],
  [0.5, 1_000],
  [1, 1_200],
])("a wait of the schedule is a fifth more or less: at %d of the way %d", (random, expected) => {
  expect(jittered(1_000, () => random)).toBe(expected);
});
