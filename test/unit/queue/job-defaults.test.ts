import { expect, it } from "vitest";
import { withDefaults } from "../../../src/queue/options.ts";

it.each([
  [{}, { baseMs: 50, maxMs: 900 }],
  [{ backoff: { baseMs: 7 } }, { baseMs: 7, maxMs: 900 }],
  [{ backoff: { maxMs: 8 } }, { baseMs: 50, maxMs: 8 }],
])("the backoff of %j is completed from the queue's, part by part", (options, backoff) => {
  const defaults = { backoff: { baseMs: 50, maxMs: 900 } };

  expect(withDefaults(options, defaults)).toMatchObject({ backoff });
});
