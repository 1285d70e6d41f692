import { writeFile, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, inject, it, onTestFinished } from "vitest";
import { createWebhooks } from "sluice/webhooks";
import { scriptProcesses } from "../../support/children/script-process.ts";
import { LOCAL, startReceiver } from "../../support/webhooks/open-hooks.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const processes = scriptProcesses();

const MODULE = `
export default (sluice) => {
  const bucket = sluice.bucket("api", { rate: "1000/s" });
  const queue = sluice.queue("charges", { bucket });
  sluice.worker(queue, async ({ data }) => {
    console.log("did", data);
    console.error("did", data);
    return data;
  });
};`;

it("sluice worker ends no job early when the output of its handlers is not read", async () => {
  const folder = await mkdtemp(join(tmpdir(), "sluice-worker-"));
  onTestFinished(() => rm(folder, { recursive: true }));
  const module = join(folder, "w.mjs");
  await writeFile(module, MODULE);
  const service = sluices.open();
  const queue = service.queue("charges", { bucket: service.bucket("api", { rate: "1000/s" }) });
  const worker = processes.start("src/cli/main.ts", {
    args: ["--prefix", sluices.prefix(), "worker", module],
    env: { REDIS_URL: inject("redisUrl") },
  });
  await queue.enqueue(0);
  await waitUntil(() => worker.stdout.includes("did 0"), "it works");

  worker.readNoMore();
  const jobs = await Promise.all([1, 2, 3, 4, 5].map((data) => queue.enqueue(data)));
  const results = await Promise.all(jobs.map((job) => job.finished()));
  worker.signal("SIGTERM");

  expect(results).toEqual([1, 2, 3, 4, 5]);
  expect(await worker.ended).toBe(0);
});

/** A module with two queues, which leaves a timer open. A job of the first queue enqueues one in the second. */
const TWO_QUEUES = `
export default (sluice) => {
  setInterval(() => {}, 1000);
  const bucket = sluice.bucket("api", { rate: "100/s" });
  const orders = sluice.queue("orders", { bucket });
  const mails = sluice.queue("mails", { bucket });
  const handle = async ({ data }, { signal }) => {
    if (data.waits) await new Promise((resolve) => signal.addEventListener("abort", resolve));
    if (data.isBad) throw new Error("bad");
    if (data.mail) await mails.enqueue({});
  };
  const options = { lockMs: 1000, closeDeadlineMs: 100 };
  sluice.worker(orders, async (...given) => { console.log("took"); return handle(...given); }, options);
  sluice.worker(mails, handle, options);
};`;

interface Order {
  readonly mail?: boolean;
  readonly isBad?: boolean;
  readonly waits?: boolean;
}

describe("sluice worker --until-empty", () => {
  async function open(code = TWO_QUEUES) {
    const folder = await mkdtemp(join(tmpdir(), "sluice-worker-"));
    onTestFinished(() => rm(folder, { recursive: true }));
    const module = join(folder, "w.mjs");
    await writeFile(module, code);
    const service = sluices.open();
    const bucket = service.bucket("api", { rate: "100/s" });
    const orders = service.queue<Order>("orders", { bucket });
    const start = (args: readonly string[] = ["--idle", "300ms"], redisUrl = inject("redisUrl")) =>
      processes.start("src/cli/main.ts", {
        args: ["--prefix", sluices.prefix(), "worker", module, "--until-empty", ...args],
        env: { REDIS_URL: redisUrl },
      });
    return { service, bucket, orders, start };
  }

  it("runs the jobs of all queues, also those that the jobs enqueue, and exits with 0", async () => {
    const { service, bucket, orders, start } = await open();
    await orders.enqueueMany([{ mail: true }, { mail: true }, {}]);
    await orders.enqueue({}, { delayMs: 3_600_000 });

    const worker = start();

    expect(await worker.ended).toBe(0);
    expect(worker.stdout).toContain("No job is left that could run.");
    expect(worker.stdout).toContain("5 done, 0 failed for good");
    expect(worker.stdout).toContain("left: 0 blocked, 1 due later.");
    expect((await service.queue("mails", { bucket }).counts()).done).toBe(2);
  });

  it("exits with 6 if a job has failed for good, and prints the facts as JSON", async () => {
    const { orders, start } = await open();
    await orders.enqueueMany([{ isBad: true }, {}], { attempts: 1 });

    const worker = start(["--idle", "300ms", "--json"]);

    expect(await worker.ended).toBe(6);
    const facts = worker.stdout.split("\n").find((line) => line.startsWith("{"))!;
    expect(JSON.parse(facts)).toMatchObject({ reason: "empty", done: 1, failed: 1 });
  });

  it("exits with 7 if a pause blocks jobs", async () => {
    const { orders, start } = await open();
    await orders.enqueue({}, { key: "acme" });
    await orders.pause({ key: "acme" });

    const worker = start();

    expect(await worker.ended).toBe(7);
    expect(worker.stdout).toContain("left: 1 blocked");
  });

  it.each([
    ["SIGTERM", 143],
    ["SIGINT", 130],
  ] as const)("closes gracefully on %s, and exits with %i", async (signal, code) => {
    const { orders, start } = await open();
    await orders.enqueueMany([{}, { waits: true }]);
    const worker = start();
    await waitUntil(() => worker.stdout.split("took").length === 3, "both jobs have begun");

    worker.signal(signal);

    expect(await worker.ended).toBe(code);
    expect(worker.stdout).toContain("Stopped before all jobs were done.");
    expect(worker.stdout).toContain("1 done, 0 failed for good");
  });

  it("sends the webhooks of a module that starts a webhook worker", async () => {
    const { service, start } = await open(`
import { createWebhooks } from ${JSON.stringify(join(inject("builtRoot"), "dist/webhooks.js"))};
export default (sluice) => {
  createWebhooks(sluice, ${JSON.stringify(LOCAL)}).worker();
};`);
    const receiver = await startReceiver();
    const hooks = createWebhooks(service, LOCAL);
    await hooks.endpoints.put({ tenant: "acme", id: "a", url: receiver.url });
    await hooks.send({ tenant: "acme", type: "note.made", data: 1 });

    const worker = start();

    expect(await worker.ended).toBe(0);
    expect(receiver.arrivals).toHaveLength(1);
    expect(worker.stdout).toContain("1 done");
  });

  it("runs the job of a killed worker once its lock has expired", async () => {
    const { orders, start } = await open();
    await orders.enqueue({ waits: true });
    const killed = start();
    await waitUntil(() => killed.stdout.includes("took"), "the job has begun");
    const worker = start();
    await waitUntil(() => worker.stderr.includes("Working"), "the other one works");
    const [job] = (await orders.jobs({ state: "active" })).jobs;
    killed.signal("SIGKILL");
    await waitUntil(() => worker.stdout.includes("took"), "the job runs again");
    await orders.cancel(job!.id);

    expect(await worker.ended).toBe(6);
    expect(worker.stdout).toContain("0 done, 1 failed for good");
  });

  it("exits with 4 if Redis does not answer, with 2 for a wrong use, and with 1 if the module fails", async () => {
    const { start } = await open();
    const broken = await open('export default () => { throw new Error("no config"); };');
    const none = await open("export default () => {};");

    const unreachable = start([], "redis://127.0.0.1:1");
    const zero = start(["--idle", "soon"]);
    const failing = broken.start();
    const idle = none.start();

    expect(await unreachable.ended).toBe(4);
    expect(await zero.ended).toBe(2);
    expect(zero.stderr).toContain('option "--idle" is "soon"; give a time');
    expect(await failing.ended).toBe(1);
    expect(failing.stderr).toContain("no config");
    expect(await idle.ended).toBe(2);
    expect(idle.stderr).toContain("it started no worker");
  });
});

it("sluice worker refuses --idle without --until-empty", async () => {
  const worker = processes.start("src/cli/main.ts", {
    args: ["worker", "none.mjs", "--idle", "5s"],
    env: { REDIS_URL: inject("redisUrl") },
  });

  expect(await worker.ended).toBe(2);
  expect(worker.stderr).toContain("add --until-empty");
});
