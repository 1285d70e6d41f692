import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, inject, it, onTestFinished } from "vitest";
import { InvalidOptionError, type EnqueueOptions, type Queue } from "sluice";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { scriptProcesses } from "../../support/children/script-process.ts";
import { openQueue } from "../../support/jobs/open-queue.ts";
import { ownRedisServers } from "../../support/redis/own-redis.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const servers = ownRedisServers();
const processes = scriptProcesses();

const NEWEST = { key: "acme", keep: "newest" } as const;
const OLDEST = { key: "acme", keep: "oldest" } as const;

async function waiting(queue: Queue<string>): Promise<string[]> {
  const { jobs } = await queue.jobs({ state: "waiting" });
  return jobs.map(({ data }) => data);
}

describe('keep: "newest"', () => {
  it("removes the oldest waiting jobs of the key, whatever their priority, and no others", async () => {
    const { sluice, queue } = openQueue<string>(sluices);
    await queue.enqueue("other", { key: "umbrella" });
    await queue.enqueue("below", { key: ["acme", "a"] });
    await queue.enqueue("later", { key: "acme", delayMs: 3_600_000 });
    const old = await queue.enqueue("1", { ...NEWEST, keepAtMost: 2 });
    await queue.enqueue("2", { ...NEWEST, keepAtMost: 2, priority: "low" });
    await queue.enqueue("3", { ...NEWEST, keepAtMost: 2, priority: "high" });
    const last = await queue.enqueue("4", { ...NEWEST, keepAtMost: 2 });

    expect((await waiting(queue)).toSorted()).toEqual(["3", "4", "below", "other"]);
    expect(last.isNew).toBe(true);
    expect(await old.state()).toBe(undefined);
    expect(await rejectionOf(old.finished())).toMatchObject({ code: "ERR_JOB_MISSING" });

    const runs: string[] = [];
    const worker = sluice.worker(queue, ({ data }) => void runs.push(data));
    await worker.drain({ idleMs: 200 });
    expect(runs.toSorted()).toEqual(["3", "4", "below", "other"]);
  });

  it("bounds the jobs of a key over several producers, and the newest one stays", async () => {
    const producers = [1, 2, 3].map(() => openQueue<string>(sluices).queue);
    const { queue } = openQueue<string>(sluices);
    for (let round = 0; round < 10; round++) {
      await Promise.all(producers.map((each, at) => each.enqueue(`${round} ${at}`, NEWEST)));
    }
    await producers[0]!.enqueue("last", NEWEST);

    expect(await waiting(queue)).toEqual(["last"]);
    expect(await queue.counts()).toMatchObject({ waiting: 1, delayed: 0 });
  });

  it("keeps a job that waits for its second attempt", async () => {
    const sluice = sluices.open();
    const bucket = sluice.bucket("b", { rate: "1000/s", perKey: { rate: "100/s" } });
    const queue = sluice.queue<string>("jobs", { bucket });
    const runs: string[] = [];
    const job = await queue.enqueue("1", { key: "acme", attempts: 2, backoff: { baseMs: 1 } });
    const worker = sluice.worker(queue, async ({ data }) => {
      runs.push(data);
      if (runs.length > 1) return;
      await bucket.pause({ key: "acme", by: "test" });
      throw new Error("fails once");
    });
    await waitUntil(() => runs.length === 1, "the first attempt has failed");
    await waitUntil(async () => (await job.state()) === "waiting", "the job waits again");
    // To fetch this job, the worker moves the other one into its lane.
    await queue.enqueue("no key");
    await waitUntil(() => runs.length === 2, "the worker has fetched jobs");
    await waitUntil(async () => (await job.state()) === "waiting", "the job is in its lane");

    const newer = await queue.enqueue("2", NEWEST);
    await queue.enqueue("3", NEWEST);
    await bucket.resume({ key: "acme", by: "test" });
    await worker.drain({ idleMs: 200 });

    expect(await newer.state()).toBe(undefined);
    expect(runs.toSorted()).toEqual(["1", "1", "3", "no key"]);
  });

  it("rejects the wait of another process for a removed job", async () => {
    const { queue } = openQueue<string>(sluices);
    const { queue: other } = openQueue<string>(sluices);
    const job = await queue.enqueue("1", NEWEST);
    const ended = rejectionOf((await other.job(job.id))!.finished());

    await queue.enqueue("2", NEWEST);

    expect(await ended).toMatchObject({ code: "ERR_JOB_MISSING" });
  });

  it("keeps the turns of tenants, and goes on in ordered keys", async () => {
    const sluice = sluices.open();
    const bucket = sluice.bucket("b", { rate: "50/s" });
    const queue = sluice.queue<string>("jobs", { bucket, ordered: true });
    await queue.enqueueMany([...Array(30).keys()].map(String), { key: "large" });
    for (const data of ["1", "2", "3", "4"])
      await queue.enqueue(data, { ...NEWEST, keepAtMost: 2 });
    const runs: string[] = [];

    const worker = sluice.worker(
      queue,
      ({ data, key }) => void runs.push(`${String(key)} ${data}`),
    );
    await worker.drain({ idleMs: 300 });

    const ofAcme = runs.filter((run) => run.startsWith("acme"));
    expect(ofAcme).toEqual(["acme 3", "acme 4"]);
    expect(runs.indexOf("acme 4")).toBeLessThan(15);
    expect(runs).toHaveLength(32);
  });

  it("counts no job that a worker has fetched", async () => {
    const { sluice, queue } = openQueue<string>(sluices);
    let goOn = (): void => {};
    const held = new Promise<void>((resolve) => (goOn = resolve));
    const runs: string[] = [];
    const worker = sluice.worker(
      queue,
      async ({ data }) => {
        runs.push(data);
        if (data === "running") await held;
      },
      { concurrency: 1 },
    );
    await queue.enqueue("running", NEWEST);
    await waitUntil(() => runs.length === 1, "it runs");
    for (const data of ["1", "2"]) await queue.enqueue(data, NEWEST);
    goOn();
    await worker.drain({ idleMs: 200 });

    expect(runs).toEqual(["running", "2"]);
  });
});

describe('keep: "oldest"', () => {
  it("stores no job if keepAtMost jobs wait, and resolves with the last of these", async () => {
    const { sluice, queue } = openQueue<string>(sluices);
    await queue.enqueue("1", { ...OLDEST, keepAtMost: 2 });
    const second = await queue.enqueue("2", { ...OLDEST, keepAtMost: 2 });
    const third = await queue.enqueue("3", { ...OLDEST, keepAtMost: 2 });
    await queue.enqueue("other", { ...OLDEST, key: "umbrella" });

    expect(third).toMatchObject({ id: second.id, isNew: false, data: "2" });
    expect((await waiting(queue)).toSorted()).toEqual(["1", "2", "other"]);

    await sluice.worker(queue, () => {}).drain({ idleMs: 200 });
    expect((await openQueue<string>(sluices).queue.enqueue("4", OLDEST)).isNew).toBe(true);
  });
});

describe("keep, with faults,", () => {
  const MODULE = `
export default (sluice) => {
  const queue = sluice.queue("jobs", { bucket: sluice.bucket("downstream", { rate: "1000/s" }) });
  sluice.worker(queue, async ({ data }, { signal }) => {
    console.log("ran " + data);
    if (data === "held") await new Promise((resolve) => signal.addEventListener("abort", resolve));
  }, { lockMs: 1000, concurrency: 1 });
};`;

  it("holds when a worker is killed: its job and the newest one run", async () => {
    const folder = await mkdtemp(join(tmpdir(), "sluice-keep-"));
    onTestFinished(() => rm(folder, { recursive: true }));
    const module = join(folder, "w.mjs");
    await writeFile(module, MODULE);
    const { queue } = openQueue<string>(sluices);
    const start = () =>
      processes.start("src/cli/main.ts", {
        args: ["--prefix", sluices.prefix(), "worker", module],
        env: { REDIS_URL: inject("redisUrl") },
      });
    const killed = start();
    const held = await queue.enqueue("held", NEWEST);
    await waitUntil(() => killed.stdout.includes("ran held"), "it runs");
    for (const data of ["1", "2", "3"]) await queue.enqueue(data, NEWEST);
    killed.signal("SIGKILL");
    await killed.ended;

    const worker = start();
    await waitUntil(() => worker.stdout.includes("ran held"), "the first one runs again");
    await queue.cancel(held.id);
    await waitUntil(() => worker.stdout.includes("ran 3"), "the newest one runs");

    expect(worker.stdout.match(/ran \d/g)).toEqual(["ran 3"]);
  });

  it("holds after a restart of Redis", async () => {
    const redis = await servers.start(["--appendonly", "yes", "--appendfsync", "always"]);
    const sluice = redis.open();
    const queue = sluice.queue<string>("jobs", { bucket: sluice.bucket("b", { rate: "100/s" }) });
    await queue.enqueue("1", NEWEST);
    await redis.crash();
    await queue.enqueue("2", NEWEST);

    expect(await waiting(queue)).toEqual(["2"]);
  });
});

it.each<[object, string, string]>([
  [{ keep: "newest" }, "keep", "give a key, too"],
  [{ key: "a", keep: "last" }, "keep", 'give "newest" or "oldest"'],
  [{ key: "a", keepAtMost: 2 }, "keepAtMost", 'set keep: "newest" or "oldest", too'],
  [{ ...NEWEST, keepAtMost: 0 }, "keepAtMost", "give a whole number"],
  [{ ...NEWEST, delayMs: 5 }, "delayMs", "leave it or keep out"],
  [{ ...NEWEST, at: new Date() }, "at", "leave it or keep out"],
  [{ ...NEWEST, dedupeId: "x" }, "dedupeId", "leave it or keep out"],
])("refuses %j by name", async (options, option, remedy) => {
  const { queue } = openQueue<string>(sluices);

  const error = await rejectionOf(queue.enqueue("a", options as EnqueueOptions));

  expect(error).toBeInstanceOf(InvalidOptionError);
  expect(error).toMatchObject({ option, message: expect.stringContaining(remedy) });
  expect(await queue.counts()).toMatchObject({ waiting: 0, delayed: 0 });
});
