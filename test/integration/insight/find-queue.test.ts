import { describe, expect, it } from "vitest";
import { leakyBucket, type Queue, type Sluice } from "sluice";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { children } from "../../support/children/child.ts";
import { startMember } from "../../support/jobs/queue-members.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const processes = children();

const INVALID = "ERR_INVALID_OPTION";

async function found(operator: Sluice, name: string): Promise<Queue<unknown>> {
  await waitUntil(async () => (await operator.findQueue(name)) !== undefined, "it is told of");
  return (await operator.findQueue(name))!;
}

describe("a queue of which only other processes have the code", () => {
  it("can be read and changed as there, and its jobs run", async () => {
    const operator = sluices.open();
    const prefix = sluices.prefix();
    const service = await startMember(processes, { prefix, worker: { concurrency: 2 } });
    const queue = await found(operator, "jobs");
    expect(await operator.findQueue("jobs")).toBe(queue);
    expect(queue.bucket.name).toBe("downstream");

    const job = await queue.enqueue({ name: "from afar" }, { key: "acme" });

    await waitUntil(async () => (await job.state()) === "done", "it is done");
    expect(service.attempts).toMatchObject([{ name: "from afar" }]);
    await queue.pause();
    await queue.enqueue({ name: "later" });
    expect(await queue.counts()).toMatchObject({ waiting: 1, done: 1 });
    await waitUntil(async () => (await queue.status()).workers === 1, "its worker is told of");
    const { jobs } = await queue.jobs({ state: "waiting" });
    expect(await jobs[0]!.explain()).toMatchObject({ waitsFor: "queue paused" });
    await queue.resume();
    await waitUntil(() => service.attempts.length === 2, "it has begun");
  });

  it("can be read while jobs wait whose limits only its code knows", async () => {
    const [service, operator] = [sluices.open(), sluices.open()];
    const perKey = [() => ({ rate: "1/h" }), () => ({ concurrency: 1 })] as const;
    const bucket = service.bucket("api", { rate: "1/s", perKey });
    const own = service.queue<number>("mails", { bucket });
    const [first] = await own.enqueueMany([1, 2, 3], { key: ["acme", "billing"] });
    const queue = await found(operator, "mails");

    const job = await queue.job(first!.id);

    expect(await queue.status()).toMatchObject({ jobs: { waiting: 3 }, reason: "no worker" });
    expect(await queue.forecast()).toMatchObject({ waiting: 3 });
    expect(await job!.explain()).toMatchObject({ waitsFor: "no worker" });
    expect(await queue.bucket.peek({ key: ["acme", "billing"] })).toMatchObject({ pausedForMs: 0 });
  });

  it("follows its code for jobs: defaults, bounds and order", async () => {
    const [service, operator] = [sluices.open(), sluices.open()];
    const bucket = service.bucket("api", { rate: "1000/s", perKey: { rate: "500/s" } });
    const own = service.queue<number>("mails", {
      bucket,
      ordered: { stuck: "hold" },
      defaults: { attempts: 7, priority: "high" },
      maxBacklog: { perKey: 2 },
      maxJobBytes: 20,
    });
    const queue = await found(operator, "mails");

    const [first] = await queue.enqueueMany([1, 2], { key: "acme" });

    expect(await own.job(first!.id)).toMatchObject({ attempts: 7, priority: "high" });
    const full = await rejectionOf(queue.enqueue(3, { key: "acme" }));
    expect(full).toMatchObject({ code: "ERR_QUEUE_FULL" });
    const large = await rejectionOf(queue.enqueue("x".repeat(30), { key: "acme" }));
    expect(large).toMatchObject({ code: INVALID });
    expect(await rejectionOf(queue.enqueue(4))).toMatchObject({ code: INVALID, option: "key" });
    await own.removeJobs({});
    await queue.enqueue("dies", { key: "acme", attempts: 1 });
    await queue.enqueue("waits", { key: "acme" });
    let done = 0;
    service.worker(own, () => {
      done += 1;
      throw new Error("no");
    });
    await waitUntil(async () => (await own.counts()).failed === 1, "the first is a dead letter");
    expect(await queue.counts()).toMatchObject({ waiting: 1 });
    expect(done).toBe(1);
  });

  it("refuses jobs that need its code, and stores none", async () => {
    const [service, operator] = [sluices.open(), sluices.open()];
    const limits = [leakyBucket("100/s"), leakyBucket("9000/s", { unit: "tokens", burst: 9 })];
    const costly = service.bucket("llm", { limits, cost: () => ({ tokens: 5 }) });
    const own = service.queue("prompts", { bucket: costly, ordered: (key) => key === "acme" });
    const queue = await found(operator, "prompts");
    const cost = { tokens: 5 };

    const withoutCost = await rejectionOf(queue.enqueue(1));
    const withKey = await rejectionOf(queue.enqueueMany([1], { key: "acme", cost }));

    expect(withoutCost).toMatchObject({ code: INVALID, option: "cost" });
    expect(withKey).toMatchObject({ code: INVALID, option: "key" });
    expect(await own.counts()).toMatchObject({ waiting: 0 });
    await queue.enqueue(1, { cost });
    expect(await own.counts()).toMatchObject({ waiting: 1 });
    expect(() => operator.worker(queue, () => undefined)).toThrow(
      "give what queue() of this sluice returned",
    );
  });

  it("does not exist if no process had it open, or the sluice is in memory", async () => {
    const operator = sluices.open();

    expect(await operator.findQueue("missing")).toBeUndefined();
    expect(await sluices.open({ redis: "memory" }).findQueue("missing")).toBeUndefined();
    expect(await rejectionOf(operator.findQueue(""))).toMatchObject({ code: INVALID });
    await operator.close();
    expect(await rejectionOf(operator.findQueue("missing"))).toMatchObject({ code: "ERR_CLOSED" });
  });
});
