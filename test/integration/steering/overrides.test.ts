import { expect, it } from "vitest";
import { CannotUndoError, ChangedError, InvalidOptionError, type Queue } from "sluice";
import { createWebhooks } from "sluice/webhooks";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { heardLog, rulesFiles } from "../../support/rules/rules-files.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { LOCAL } from "../../support/webhooks/open-hooks.ts";

const sluices = realSluices();
const files = rulesFiles();
const LATER = { delayMs: 3_600_000 };

function openQueue(rules?: string) {
  const file = rules === undefined ? {} : { rules: files.write("sluice.yaml", rules) };
  const sluice = sluices.open({ ...file, logger: heardLog().logger });
  const queue = sluice.queue<number>("jobs", {
    bucket: sluice.bucket("api", { rate: "1000/s" }),
    defaults: { attempts: 3, priority: "low" },
  });
  return { sluice, queue };
}

/** Each value that holds, and who set it: `"defaults.attempts 3 code"`. */
async function setOf(queue: Queue<number>): Promise<readonly string[]> {
  const { settings } = await queue.status();
  return settings.map(({ name, value, setBy }) => `${name} ${value} ${setBy}`);
}

it("overrides rules, which override the code, in all processes; then ends by itself", async () => {
  const rules = "buckets: {}\nqueues: { jobs: { defaults: { attempts: 7 }, maxBacklog: 9 } }";
  const { queue } = openQueue(rules);
  const other = openQueue().queue;
  const has = (setting: string) => async () => (await setOf(other)).includes(setting);
  await waitUntil(has("defaults.attempts 7 rules"), "the rules are in force");

  await queue.set({ maxBacklog: 1, defaults: { attempts: 5 }, by: "ann", reason: "429s" });

  await waitUntil(has("defaults.attempts 5 override"), "the other process follows");
  expect((await other.enqueue(1, LATER)).attempts).toBe(5);
  const full = await rejectionOf(other.enqueue(2, LATER));
  expect(full).toMatchObject({ code: "ERR_QUEUE_FULL", limit: 1 });
  expect(await setOf(other)).toEqual(
    expect.arrayContaining([
      "maxBacklog.all 1 override",
      "defaults.attempts 5 override",
      "defaults.priority low code",
    ]),
  );
  await queue.set({ maxBacklog: "code" });
  await queue.set({ defaults: { attempts: 6 }, forMs: 60_000, by: "bob" });
  const { settings } = await queue.status();
  expect(settings.find(({ name }) => name === "defaults.attempts")?.override).toMatchObject({
    by: "bob",
    reason: undefined,
    endsInMs: expect.any(Number),
  });
  await queue.set({ defaults: { attempts: 4 }, forMs: 300 });
  await waitUntil(async () => {
    const now = await setOf(other);
    return now.includes("defaults.attempts 7 rules") && now.includes("maxBacklog.all 9 rules");
  }, "the rules hold again");
});

it("is logged with the state before and after, and can be undone", async () => {
  const { sluice, queue } = openQueue();
  await queue.set({ maxBacklog: 5, by: "ann" });
  await queue.set({ maxBacklog: { perKey: 2 }, weights: { acme: 3 }, by: "bob", forMs: 60_000 });
  await queue.pause({ by: "cem" });

  const [, second, first] = await sluice.changes({ queue: "jobs" });
  expect(first).toMatchObject({ action: "set", before: {}, after: { "maxBacklog.all": 5 } });
  expect(second).toMatchObject({
    by: "bob",
    forMs: 60_000,
    before: { "maxBacklog.all": 5 },
    after: { "maxBacklog.perKey": 2, "weights.acme": 3 },
  });
  expect(second).not.toHaveProperty("was");

  expect(await rejectionOf(queue.undo({ id: first!.id }))).toBeInstanceOf(CannotUndoError);
  await queue.undo({ id: second!.id, by: "dan" });
  expect(await setOf(queue)).toContain("maxBacklog.all 5 override");
  expect((await setOf(queue)).join()).not.toContain("acme");
  expect(await queue.paused()).toHaveLength(1);
  expect(await queue.undo()).toMatchObject({ action: "pause", by: "cem" });
  expect(await queue.paused()).toEqual([]);
  await queue.undo();
  expect((await setOf(queue)).join()).not.toContain("maxBacklog");
  expect(await queue.undo()).toBeUndefined();
});

it.each<[string, (queue: Queue<number>, generation: number) => Promise<unknown>]>([
  ["a pause", (queue, generation) => queue.pause({ generation })],
  ["a pause of a key", (queue, generation) => queue.pause({ key: "acme", generation })],
  ["a resume", (queue, generation) => queue.resume({ generation })],
  ["a setting", (queue, generation) => queue.set({ maxBacklog: 1, generation })],
  ["an undo", (queue, generation) => queue.undo({ generation })],
])("refuses %s that is based on an older generation, and changes nothing", async (_what, make) => {
  const { queue } = openQueue();
  await queue.pause({ forMs: 3_600_000 });
  const { generation } = await queue.status();
  await queue.set({ maxBacklog: 5 });
  const [before, pauses] = [await setOf(queue), (await queue.paused()).length];

  const error = await rejectionOf(make(queue, generation));

  expect(error).toBeInstanceOf(ChangedError);
  expect(error).toMatchObject({ queue: "jobs", since: generation });
  expect(await setOf(queue)).toEqual(before);
  expect(await queue.paused()).toHaveLength(pauses);
  await make(queue, (await queue.status()).generation);
});

it("accepts one of two changes of the same state", async () => {
  const { queue } = openQueue();
  const { generation } = await queue.status();

  const made = await Promise.allSettled(
    [1, 2, 3].map((maxBacklog) => queue.set({ maxBacklog, generation })),
  );

  expect(made.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
});

it.each([
  ["nothing", {}, "options"],
  ["no setting", { by: "ann" }, "options"],
  ["a wrong value", { maxBacklog: 0 }, "maxBacklog"],
  ["a wrong part", { defaults: { attempts: "many" } }, "defaults.attempts"],
  ["an unknown part", { keepDone: { counts: 1 } }, "keepDone.counts"],
  ["a time of none", { maxBacklog: 1, forMs: 0 }, "forMs"],
  ["an end of no setting", { reason: 1, maxBacklog: "code" }, "reason"],
])("refuses %s, and changes nothing", async (_what, given, option) => {
  const { sluice, queue } = openQueue();

  const error = await rejectionOf(queue.set(given as never));

  expect(error).toBeInstanceOf(InvalidOptionError);
  expect(error).toMatchObject({ option });
  expect(await sluice.changes()).toEqual([]);
  expect((await queue.status()).generation).toBe(0);
});

it("is refused for the queue of a webhook sender, whose retries would be lost", async () => {
  const hooks = createWebhooks(sluices.open(), LOCAL);

  const error = await rejectionOf(hooks.queue.set({ maxBacklog: 5 }));

  expect(error).toMatchObject({ code: "ERR_INVALID_OPTION", option: "maxBacklog" });
});
