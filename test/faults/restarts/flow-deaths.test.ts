import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { expect, it, onTestFinished } from "vitest";
import { createSluice, type JobGroup } from "sluice";
import { children, type Child } from "../../support/children/child.ts";
import { reportFigures } from "../../support/docs/report-figures.ts";
import { portOf, startOwnRedis } from "../../support/redis/for-one-test.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const GROUPS = 4;
const BATCHES = 12;
const PER_BATCH = 25;
const ALL = GROUPS * BATCHES * PER_BATCH;
const QUEUES = ["items", "others", "finals"];
const AOF = ["--appendonly", "yes", "--appendfsync", "always"];
const SILENT = { warn: () => {}, error: () => {} };

const processes = children();

it("a final job starts once, after all jobs of its group, when workers and Redis are killed", async () => {
  const dir = await mkdtemp(join(tmpdir(), "sluice-flows-"));
  onTestFinished(() => rm(dir, { recursive: true, force: true }));
  const first = await startOwnRedis({ args: AOF, dir });
  let redis = first;
  const file = join(dir, "runs.log");
  await writeFile(file, "");
  const readRuns = async (): Promise<string[]> =>
    (await readFile(file, "utf8")).split("\n").filter((line) => line !== "");

  const start = (): Child =>
    processes.start("flow-worker.ts", [first.url, "flows", file, ...QUEUES]);
  const workers = [start(), start()];
  let kills = 0;
  async function killWorker(): Promise<void> {
    const index = kills % workers.length;
    kills += 1;
    workers[index]!.signal("SIGKILL");
    await workers[index]!.ended;
    workers[index] = start();
  }
  async function killRedis(): Promise<void> {
    kills += 1;
    process.kill(redis.pid!, "SIGKILL");
    await redis.stop();
    redis = await startOwnRedis({ args: AOF, dir, port: portOf(first) });
  }

  const sluice = createSluice({ redis: first.url, prefix: "flows", logger: SILENT });
  onTestFinished(() => sluice.close());
  const bucket = sluice.bucket("flows", { rate: "400/s" });
  const [items, others, finals] = QUEUES.map((name) =>
    sluice.queue<string, unknown, string>(name, { bucket, keepDone: { count: 5 } }),
  );
  /** Repeats a call until it succeeds. All jobs have ids, so this stores none of them twice. */
  async function untilDone<Value>(call: () => Promise<Value>): Promise<Value> {
    let value: { readonly it: Value } | undefined;
    await waitUntil(async () => {
      value = await call().then(
        (it) => ({ it }),
        () => undefined,
      );
      return value !== undefined;
    }, "Redis has confirmed a call");
    return value!.it;
  }

  const groups: JobGroup<string, unknown, string>[] = [];
  for (let group = 0; group < GROUPS; group++) {
    const then = { queue: finals!, data: `final-${group}`, options: { id: `final-${group}` } };
    groups.push(await untilDone(() => items!.enqueueGroup([], { then, open: true })));
  }
  for (let batch = 0; batch < BATCHES; batch++) {
    for (const [index, group] of groups.entries()) {
      const names = Array.from(
        { length: PER_BATCH },
        (_, item) => `item-${index}-${batch}-${item}`,
      );
      const into = batch % 2 === 0 ? group : others!.group(group.final);
      await untilDone(() => into.add(names, (name) => ({ id: name })));
    }
    const before = (await readRuns()).length;
    if (batch % 4 === 2) await killRedis();
    await waitUntil(async () => (await readRuns()).length > before, "jobs run");
    await killWorker();
  }
  expect((await readRuns()).filter((line) => line.startsWith("final"))).toEqual([]);
  for (const group of groups) await untilDone(() => group.close());
  for (let more = 0; more < 3; more++) {
    const before = new Set(await readRuns()).size;
    if (before > ALL - 100) break;
    await waitUntil(async () => new Set(await readRuns()).size > before, "jobs run");
    await killWorker();
  }

  const finalsOf = (runs: readonly string[]): string[] =>
    runs.filter((line) => line.startsWith("final"));
  await waitUntil(
    async () => finalsOf(await readRuns()).length >= GROUPS,
    "all final jobs have run",
  );
  await waitUntil(async () => {
    const counts = await Promise.all([items!, others!, finals!].map((queue) => queue.counts()));
    return counts.every(({ waiting, active, delayed }) => waiting + active + delayed === 0);
  }, "no job is left");

  const runs = await readRuns();
  const early = Array.from({ length: GROUPS }, (_, index) => {
    const at = runs.findIndex((line) => line.startsWith(`final-${index} `));
    const later = runs.slice(at).filter((line) => line.startsWith(`item-${index}-`));
    // A job runs again if its worker was killed before its outcome was stored.
    return later.filter((line) => !runs.slice(0, at).includes(line)).length;
  });
  const items1 = new Set(runs.filter((line) => line.startsWith("item")));
  reportFigures("workers and Redis are killed while groups of jobs run", {
    jobs: ALL,
    kills,
    lost: ALL - items1.size,
    finals: finalsOf(runs).length,
  });
  expect(items1.size).toBe(ALL);
  expect(early).toEqual(Array.from({ length: GROUPS }, () => 0));
  expect(finalsOf(runs).toSorted()).toEqual(
    Array.from({ length: GROUPS }, (_, index) => `final-${index} ${BATCHES * PER_BATCH}`),
  );
});
