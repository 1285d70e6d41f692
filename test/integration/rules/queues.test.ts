import { expect, inject, it } from "vitest";
import { scriptProcesses } from "../../support/children/script-process.ts";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { heardLog, rulesFiles } from "../../support/rules/rules-files.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const files = rulesFiles();
const processes = scriptProcesses();

it("apply in a process without the file when it uses the queue, until the file omits the queue", async () => {
  const write = (text: string): string => files.write("sluice.yaml", `${text}\nbuckets: {}`);
  const file = write("version: 1\nqueues: { jobs: { defaults: { attempts: 7 } } }");
  const { logger, lines } = heardLog();
  const sluice = sluices.open({ rules: file, logger });
  const args = [inject("redisUrl"), sluices.prefix()];
  const member = processes.start("test/support/processes/rules-queue.ts", { args });
  const tells = (text: string): Promise<void> =>
    waitUntil(async () => member.stdout.trimEnd().endsWith(text), text);
  await tells("attempts 7");

  write("version: 2\nqueues:\n  jobs: { defaults: { attempts: 9 }, paused: true }");
  await waitUntil(async () => lines.length === 1, "the log says that the file is broken");
  expect(lines[0]).toMatch(
    /^The rules file has an error, and the previous rules stay in force: .*:3:38: option "queues\.jobs\.paused" is true; pause and resume it with/,
  );

  const queue = sluice.queue<number>("jobs", { bucket: sluice.bucket("downstream") });
  await queue.enqueue(1, { delayMs: 3_600_000 });
  write("version: 3\nqueues: { jobs: { maxBacklog: 1 } }");
  await tells("full at 1");
  write("version: 4");
  await tells("attempts 3");

  expect(member.stdout.match(/(attempts|full at) \d+/g)?.slice(-3)).toEqual([
    // Before the first rules it may have had those of its code.
    "attempts 7",
    "full at 1",
    "attempts 3",
  ]);
  await waitUntil(
    async () => (await sluice.changes({ queue: "jobs" })).length === 3,
    "the log has all changes",
  );
  const changes = await sluice.changes({ queue: "jobs" });
  expect(changes.map(({ by, action, before, after }) => [by, action, before, after])).toEqual([
    ["rules", "rules", { maxBacklog: 1 }, {}],
    ["rules", "rules", { "defaults.attempts": 7 }, { maxBacklog: 1 }],
    ["rules", "rules", {}, { "defaults.attempts": 7 }],
  ]);
  expect(await sluice.changes({ bucket: "jobs" })).toEqual([]);
  // Only the file changes what a file says.
  expect(await queue.undo()).toBeUndefined();
  const refused = await rejectionOf(queue.undo({ id: changes[0]!.id }));
  expect(refused).toMatchObject({
    code: "ERR_CANNOT_UNDO",
    why: expect.stringMatching(/rules file/),
  });
});

it("set what workers keep, and the weights of keys; the status shows who set what", async () => {
  const entry = `{ keepDone: { count: 2 }, keepFailed: { forMs: 60000 }, maxBacklog: { perKey: 40 }, weights: { acme: 5 } }`;
  const rules = files.write("sluice.yaml", `version: 5\nbuckets: {}\nqueues: { jobs: ${entry} }`);
  const sluice = sluices.open();
  const bucket = sluice.bucket("downstream", { rate: "1000/s" });
  const code = { weights: (key: string) => (key === "rest" ? 2 : 1), maxBacklog: 500 };
  const queue = sluice.queue<number>("jobs", { bucket, ...code });
  sluices.open({ rules });
  await waitUntil(async () => (await queue.status()).rulesVersion === 5, "in force");

  expect((await queue.status()).settings).toEqual([
    { name: "maxBacklog.all", value: 500, setBy: "code" },
    { name: "maxBacklog.perKey", value: 40, setBy: "rules" },
    { name: "keepDone.count", value: 2, setBy: "rules" },
    { name: "keepDone.forMs", value: 86_400_000, setBy: "code" },
    { name: "keepFailed.forMs", value: 60_000, setBy: "rules" },
    { name: "weights.acme", value: 5, setBy: "rules" },
  ]);
  for (const key of ["acme", "rest", "other"]) await queue.enqueue(1, { key });
  const { lanes } = await queue.status();
  expect(lanes.map(({ key, weight }) => `${String(key)} ${weight}`).toSorted()).toEqual([
    "acme 5",
    "other 1",
    "rest 2",
  ]);

  sluice.worker(queue, async () => undefined);
  await waitUntil(async () => {
    const { waiting, active, done } = await queue.counts();
    return waiting + active === 0 && done === 2;
  }, "the third one is forgotten");
});

it("are refused for the queue of a webhook sender, and change nothing", async () => {
  const { createWebhooks } = await import("sluice/webhooks");
  const keys = `k1:${Buffer.alloc(32, 1).toString("base64")}`;
  const sluice = sluices.open();
  createWebhooks(sluice, { keys });
  await waitUntil(async () => (await sluice.overview()).queues.length === 1, "it is told of");
  const rules = files.write(
    "sluice.yaml",
    "version: 1\nbuckets: { api: { rate: 5/s } }\nqueues: { webhooks: { maxBacklog: 1 } }",
  );
  const { logger, lines } = heardLog();

  const bucket = sluices.open({ rules, logger }).bucket("api", { rate: "10/s" });

  await waitUntil(async () => lines.length > 0, "the log says why");
  expect(lines[0]).toMatch(
    /not put in force: .*queues\.webhooks.*queue belongs to a webhook sender/,
  );
  expect(await sluice.changes()).toEqual([]);
  expect((await bucket.status()).rulesVersion).toBeUndefined();
});
