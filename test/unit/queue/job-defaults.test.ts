import { expect, it } from "vitest";
import { completeSettings, mergeSettings } from "../../../src/core/input/queue-settings.ts";
import { withDefaults } from "../../../src/queue/options.ts";

it.each([
  [{}, { baseMs: 50, maxMs: 900 }],
  [{ backoff: { baseMs: 7 } }, { baseMs: 7, maxMs: 900 }],
  [{ backoff: { maxMs: 8 } }, { baseMs: 50, maxMs: 8 }],
])("the backoff of %j is completed from the queue's, part by part", (options, backoff) => {
  const defaults = { backoff: { baseMs: 50, maxMs: 900 } };

  expect(withDefaults(options, defaults)).toMatchObject({ backoff });
});

it("a rule of one part of the backoff keeps the other parts of the code", () => {
  const code = { defaults: { attempts: 8, backoff: { baseMs: 50, maxMs: 900 } } };
  const rules = { defaults: { backoff: { maxMs: 8 } } };
  const byHand = { defaults: { attempts: 3, backoff: {} } };

  const { defaults } = mergeSettings(completeSettings(code), rules, byHand);

  expect(defaults).toEqual({ attempts: 3, backoff: { baseMs: 50, maxMs: 8 } });
});
