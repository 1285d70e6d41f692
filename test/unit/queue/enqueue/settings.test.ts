import { expect, it } from "vitest";
import type { RuledPolicy } from "../../../../src/core/stores/insight/rules.ts";
import type { HandSettings } from "../../../../src/stores/redis/scripts/queue/steering.ts";
import { createSettings } from "../../../../src/queue/enqueue/settings.ts";
import { deferred } from "../../../support/async/deferred.ts";

/** What was set by hand: `setting("maxBacklog", 5)`, or with a text that is no JSON. */
function setting(name: string, value: unknown, text = JSON.stringify({ value, by: "ann" })) {
  return { name, text, atMs: 1, forMs: Infinity };
}

function open(
  byHand: () => Promise<HandSettings>,
  rules: () => Promise<RuledPolicy | undefined> = async () => undefined,
) {
  const warnings: string[] = [];
  const settings = createSettings({
    code: { maxBacklog: 10 },
    weightsOf: () => undefined,
    read: { rules, byHand },
    logger: { warn: (_facts, text) => void warnings.push(text) },
  });
  return { settings, warnings };
}

it("does not overwrite a local change with an older reading", async () => {
  const [asked, slow] = [deferred(), deferred()];
  let kept: HandSettings["settings"] = [setting("maxBacklog", 1)];
  let reads = 0;
  const { settings } = open(async () => {
    const answer = { generation: 1, settings: kept };
    if (++reads === 1) {
      asked.resolve();
      await slow.promise;
    }
    return answer;
  });
  const first = settings.current();
  await asked.promise;

  kept = [setting("maxBacklog", 2)];
  settings.forget();
  const after = await settings.current();
  slow.resolve();
  await first;

  expect(after.maxBacklog).toEqual({ all: 2 });
  expect((await settings.current()).maxBacklog).toEqual({ all: 2 });
  expect(reads).toBe(2);
});

it("skips settings that cannot be read, logs that once, and uses the rest", async () => {
  let hand = [setting("maxBacklog", 0, "{"), setting("defaults", { attempts: 3 })];
  const { settings, warnings } = open(
    async () => ({ generation: 1, settings: hand }),
    async () => ({ text: "null", version: 4 }) as RuledPolicy,
  );

  for (let time = 0; time < 3; time++) {
    settings.forget();
    expect(await settings.current()).toMatchObject({
      maxBacklog: { all: 10 },
      defaults: { attempts: 3 },
    });
  }
  const { settings: seen, rulesVersion } = await settings.status();
  hand = [setting("maxBacklog", 7)];
  settings.forget();

  expect(seen).toMatchObject([
    { name: "maxBacklog.all", value: 10, setBy: "code" },
    { name: "keepDone.count" },
    { name: "keepDone.forMs" },
    { name: "defaults.attempts", setBy: "override", override: { by: "ann" } },
  ]);
  expect(rulesVersion).toBeUndefined();
  expect(warnings).toEqual([
    "Settings of a queue (rules) cannot be read.",
    "Settings of a queue (maxBacklog by hand) cannot be read.",
  ]);
  expect((await settings.current()).maxBacklog).toEqual({ all: 7 });
});
