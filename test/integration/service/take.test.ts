import { describe, expect, it } from "vitest";
import { concurrency, leakyBucket, tokenBucket, type BucketOptions, type Queue } from "sluice";
import { z } from "zod";
import { encryption } from "sluice/codec";
import { worstWindow } from "sluice/testing";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { ACT, CALL, openServers, VIEW, ask } from "../../support/server/open-server.ts";
import { services, type Service } from "../../support/server/service.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const sluices = realSluices();
const servers = services();
const guarded = openServers();

const MAIL = "/v1/queues/mail";

interface Opened {
  readonly queue: Queue<unknown>;
  readonly service: Service;
  /** Starts another server of the same fleet. */
  readonly another: () => Promise<Service>;
}

/** A queue that one process declares, and a server that does not have its code. */
async function open(policy: BucketOptions = { rate: "1000/s" }): Promise<Opened> {
  const owner = sluices.open();
  const queue = owner.queue("mail", { bucket: owner.bucket("mail", policy) });
  await queue.bucket.peek();
  const another = async (): Promise<Service> => {
    const sluice = sluices.open();
    await waitUntil(async () => (await sluice.findQueue("mail")) !== undefined, "it is known");
    return servers.start(sluice);
  };
  return { queue, service: await another(), another };
}

// oxlint-disable-next-line typescript/no-explicit-any
type Json = any;

async function takeOne(service: Service, given: object = {}): Promise<Json> {
  const { status, json } = await service.post(`${MAIL}/take`, { waitMs: 20_000, ...given });
  expect(status).toBe(200);
  expect(json.jobs).toHaveLength(1);
  return json.jobs[0];
}

async function complete(service: Service, body: object): Promise<Json> {
  return (await service.post(`${MAIL}/complete`, body)).json;
}

describe("POST /v1/queues/{queue}/take", () => {
  it("gives a job with what a worker needs, and complete stores its result", async () => {
    const { queue, service } = await open();
    const { id } = await queue.enqueue({ to: "ann" }, { key: "acme", name: "hello", attempts: 3 });

    const job = await takeOne(service);
    const ended = await complete(service, { receipt: job.receipt, result: { sent: 1 } });

    expect(job).toMatchObject({
      id,
      data: { to: "ann" },
      key: "acme",
      name: "hello",
      attempt: 1,
      attempts: 3,
      lockMs: 30_000,
      slot: { bucket: "mail", hasLease: false },
    });
    expect(ended).toEqual({ id, state: "done" });
    expect(await (await queue.job(id))!.finished()).toEqual({ sent: 1 });
  });

  it("waits for a job that comes later, and answers with none after waitMs", async () => {
    const { queue, service } = await open();

    const empty = await service.post(`${MAIL}/take`, { waitMs: 10 });
    const waiting = takeOne(service);
    await queue.enqueue(1);

    expect(empty.json).toEqual({ jobs: [] });
    expect((await waiting).data).toBe(1);
  });

  it("gives many jobs in one response, and ends each of many by itself", async () => {
    const { queue, service } = await open();
    await queue.enqueueMany(Array.from({ length: 20 }, (_, index) => index));
    const taken: Json[] = [];

    while (taken.length < 20) {
      const { json } = await service.post(`${MAIL}/take`, { max: 20, waitMs: 20_000 });
      taken.push(...json.jobs);
    }
    const jobs = taken.map(({ receipt, data }) => ({ receipt, result: data }));
    await complete(service, jobs[0]!);
    const { results } = await complete(service, { jobs });

    expect(taken.map(({ data }) => data).toSorted((a, b) => a - b)).toEqual([...Array(20).keys()]);
    expect(results[0].problem).toMatchObject({ status: 409, code: "ERR_JOB_LOST" });
    expect(results.slice(1).map(({ state }: Json) => state)).toEqual(Array(19).fill("done"));
    expect(await queue.counts()).toMatchObject({ done: 20, active: 0, waiting: 0 });
  });

  it("draws a slot for each job that it gives, and only while a client waits", async () => {
    const { queue, service } = await open({
      limits: [tokenBucket({ capacity: 3, refill: "1/h" })],
    });
    await queue.enqueueMany([1, 2, 3, 4, 5]);

    await takeOne(service);
    const one = (await queue.bucket.peek()).limits[0]!.remaining;
    await takeOne(service);
    await takeOne(service);
    const empty = await service.post(`${MAIL}/take`, { waitMs: 300 });

    expect(one).toBe(2);
    expect(empty.json).toEqual({ jobs: [] });
    await waitUntil(async () => (await queue.counts()).waiting === 2, "the others wait");
    expect((await queue.bucket.peek()).limits[0]!.remaining).toBe(0);
  });

  it("returns the job and the slot of a client that hangs up before its response", async () => {
    const { queue, service } = await open({
      limits: [tokenBucket({ capacity: 3, refill: "1/h" }), concurrency(1)],
    });
    const waiting = service.ask(`${MAIL}/take`, { waitMs: 20_000 });
    await queue.enqueue("first");
    const held = (await waiting.answer).json.jobs[0];
    const leaving = service.ask(`${MAIL}/take`, { waitMs: 20_000 });
    leaving.answer.catch(() => undefined);
    await queue.enqueue("second");
    await waitUntil(async () => (await queue.counts()).active === 2, "the job waits for its lease");
    leaving.hangUp();
    await waitUntil(async () => (await queue.counts()).waiting === 1, "the job is back");
    await complete(service, { receipt: held.receipt });

    const job = await takeOne(service);

    expect(job).toMatchObject({ data: "second", attempt: 1 });
    expect((await queue.bucket.peek()).limits[0]!.remaining).toBe(1);
  });

  it("holds a lease until the job ends, whichever server ends it", async () => {
    const { queue, service, another } = await open({ limits: [concurrency(1)] });
    const other = await another();
    await queue.enqueueMany([1, 2]);

    const first = await takeOne(service);
    const none = await other.post(`${MAIL}/take`, { waitMs: 200 });
    const ended = await complete(other, { receipt: first.receipt });
    const second = await takeOne(service);

    expect(none.json).toEqual({ jobs: [] });
    expect(ended).toEqual({ id: first.id, state: "done" });
    expect(second.data).toBe(2);
  });

  it("never exceeds the rate with three clients on two servers", async () => {
    const RATE = 40;
    const { queue, service, another } = await open({ limits: [leakyBucket(`${RATE}/s`)] });
    const services = [service, await another(), service];
    await queue.enqueueMany(Array.from({ length: 60 }, (_, index) => index));
    const slots: number[] = [];

    await Promise.all(
      services.map(async (each) => {
        while (slots.length < 60) {
          const { json } = await each.post(`${MAIL}/take`, { max: 10, waitMs: 100 });
          if (json.jobs.length === 0) continue;
          slots.push(...json.jobs.map(({ slot }: Json) => slot.atMs));
          await complete(each, { jobs: json.jobs.map(({ receipt }: Json) => ({ receipt })) });
        }
      }),
    );

    expect(slots).toHaveLength(60);
    expect(worstWindow(slots, 500)).toBeLessThanOrEqual(RATE / 2 + 1);
    expect(await queue.counts()).toMatchObject({ done: 60, waiting: 0, active: 0 });
  });
});

describe("jobs of a queue with a codec", () => {
  const codec = encryption({ keys: { current: "k1", k1: Buffer.alloc(32, 7) } });

  it("are decoded for a client of a server with the codec, and their results are encoded", async () => {
    const owner = sluices.open();
    const queue = owner.queue<unknown>("mail", {
      bucket: owner.bucket("mail", { rate: "1000/s" }),
      codec,
    });
    const service = await servers.start(owner);
    const job = await queue.enqueue({ to: "ann" });

    const taken = await takeOne(service);
    const ended = await complete(service, { receipt: taken.receipt, result: { sent: "bo" } });

    expect(taken.data).toEqual({ to: "ann" });
    expect(ended).toEqual({ id: job.id, state: "done" });
    expect(await (await queue.job(job.id))!.finished()).toEqual({ sent: "bo" });
    const plain = sluices.open();
    await waitUntil(async () => (await plain.findQueue("mail")) !== undefined, "it is known");
    const [seen] = (await (await plain.findQueue("mail"))!.jobs({ state: "done" })).jobs;
    expect(seen).toMatchObject({ id: job.id, data: undefined, result: undefined });
  });

  it("stay in the queue if the server does not have the codec", async () => {
    const owner = sluices.open();
    const queue = owner.queue<unknown>("mail", {
      bucket: owner.bucket("mail", { rate: "1000/s" }),
      codec,
    });
    const { id } = await queue.enqueue({ to: "ann" });
    const other = sluices.open();
    await waitUntil(async () => (await other.findQueue("mail")) !== undefined, "it is known");
    const service = await servers.start(other);

    const refused = await service.post(`${MAIL}/take`, { waitMs: 10 });

    expect(refused.status).toBe(400);
    expect(refused.json).toMatchObject({ code: "ERR_INVALID_OPTION", option: "queue" });
    expect(refused.json.detail).toContain("does not have it");
    expect(await (await queue.job(id))!.state()).toBe("waiting");
  });
});

describe("a job that a client has taken", () => {
  it("runs again after its client let the lock expire, and the late client is refused", async () => {
    const { queue, service } = await open();
    const { id } = await queue.enqueue("again");

    const first = await takeOne(service, { lockMs: 1_000 });
    const second = await takeOne(service, { waitMs: 60_000 });
    const late = await service.post(`${MAIL}/complete`, { receipt: first.receipt, result: "late" });
    const lateExtend = await service.post(`${MAIL}/extend`, { receipt: first.receipt });
    const receipts = [first.receipt, second.receipt];
    const both = await service.post(`${MAIL}/extend`, { receipts });
    await complete(service, { receipt: second.receipt, result: "in time" });

    expect(second).toMatchObject({ id, attempt: 1 });
    expect(late.status).toBe(409);
    expect(late.json.code).toBe("ERR_JOB_LOST");
    expect(lateExtend.json).toEqual({ jobs: [{ id, state: "lost" }] });
    expect(both.json.jobs).toEqual([
      { id, state: "lost" },
      { id, state: "held" },
    ]);
    expect(await (await queue.job(id))!.finished()).toBe("in time");
  }, 60_000);

  it("stays with its client while the client extends the lock, through any server", async () => {
    const { queue, service, another } = await open();
    const other = await another();
    const { id } = await queue.enqueue("long");

    const job = await takeOne(service, { lockMs: 1_000 });
    const extended = await other.post(`${MAIL}/extend`, {
      receipts: [job.receipt],
      lockMs: 600_000,
    });
    const none = await other.post(`${MAIL}/take`, { waitMs: 4_000 });
    const ended = await complete(service, { receipt: job.receipt });

    expect(extended.json).toEqual({ jobs: [{ id, state: "held" }] });
    expect(none.json).toEqual({ jobs: [] });
    expect(ended).toEqual({ id, state: "done" });
  }, 30_000);

  it("is retried at the time that fail names, and becomes a dead letter after its attempts", async () => {
    const { queue, service } = await open();
    const { id } = await queue.enqueue(1, { attempts: 2 });

    const first = await takeOne(service);
    const retried = await service.post(`${MAIL}/fail`, {
      receipt: first.receipt,
      error: "not now",
      retryAfterMs: 1,
    });
    const second = await takeOne(service);
    const failed = await service.post(`${MAIL}/fail`, {
      receipt: second.receipt,
      error: { message: "no such account", code: "E_ACCOUNT" },
    });

    expect(retried.json).toEqual({ id, state: "retried" });
    expect(second).toMatchObject({ id, attempt: 2 });
    expect(failed.json).toEqual({ id, state: "failed" });
    const [dead] = await queue.failed();
    expect(dead).toMatchObject({ id, reason: "no such account" });
  });

  it("becomes a dead letter at once if fail discards it", async () => {
    const { queue, service } = await open();
    const { id } = await queue.enqueue(1);
    const { receipt } = await takeOne(service);

    const { json } = await service.post(`${MAIL}/fail`, { receipt, error: "gone", discard: true });

    expect(json).toEqual({ id, state: "failed" });
    expect((await queue.failed())[0]).toMatchObject({ id, reason: "gone" });
  });

  it("cools the whole bucket down if the downstream asked to wait", async () => {
    const { queue, service } = await open();
    await queue.enqueue(1);
    const { receipt } = await takeOne(service);

    const error = { message: "too many requests", status: 429 };
    const { json } = await service.post(`${MAIL}/fail`, { receipt, error, retryAfterMs: 600_000 });

    expect(json.state).toBe("retried");
    await waitUntil(
      async () => (await queue.bucket.peek()).coolingForMs > 500_000,
      "it cools down",
    );
  });

  it("books the actual cost of the call", async () => {
    const tokens = tokenBucket({ capacity: 1_000, refill: "1/h", unit: "tokens" });
    const { queue, service } = await open({ limits: [tokens] });
    await queue.enqueue(1, { cost: { tokens: 400 } });
    const { receipt } = await takeOne(service);

    await complete(service, { receipt, cost: { tokens: 100 } });

    expect((await queue.bucket.peek()).limits[0]!.remaining).toBe(900);
  });

  it("is reported to its client as cancelled, and ends as cancelled", async () => {
    const { queue, service } = await open();
    const handle = await queue.enqueue(1);
    const { receipt, id } = await takeOne(service);
    await handle.cancel();

    const extended = await service.post(`${MAIL}/extend`, { receipt });
    const ended = await service.post(`${MAIL}/complete`, { receipt, result: 1 });

    expect(extended.json).toEqual({ jobs: [{ id, state: "cancelled" }] });
    expect([ended.status, ended.json.code]).toEqual([409, "ERR_JOB_CANCELLED"]);
    expect((await queue.failed())[0]).toMatchObject({ id });
  });

  it("keeps the jobs of an ordered key in their order", async () => {
    const owner = sluices.open();
    const bucket = owner.bucket("mail", { rate: "1000/s" });
    const queue = owner.queue("mail", { bucket, ordered: true });
    await queue.enqueueMany([1, 2, 3], () => ({ key: "acme" }));
    const service = await servers.start(owner);
    const seen: unknown[] = [];

    for (let count = 0; count < 3; count++) {
      const job = await takeOne(service);
      const beside = await service.post(`${MAIL}/take`, { max: 5 });
      seen.push(job.data, ...beside.json.jobs);
      await complete(service, { receipt: job.receipt });
    }

    expect(seen).toEqual([1, 2, 3]);
  });

  it("lets the jobs start that run after it", async () => {
    const { queue, service } = await open();
    const parent = await queue.enqueue("parent");
    await queue.enqueue("child", { after: [parent] });

    const first = await takeOne(service);
    const beside = await service.post(`${MAIL}/take`, { waitMs: 200 });
    await complete(service, { receipt: first.receipt });
    const second = await takeOne(service);

    expect(beside.json.jobs).toEqual([]);
    expect([first.data, second.data]).toEqual(["parent", "child"]);
  });

  it("is a run of a schedule, whose next run follows", async () => {
    const { queue, service } = await open();
    await queue.enqueue("tick", { every: 100, dedupeId: "ticks" });

    const first = await takeOne(service);
    await complete(service, { receipt: first.receipt });
    const second = await takeOne(service);

    expect(first.dedupeId).toBe("ticks");
    expect(second.id).not.toBe(first.id);
  });
});

describe("the time limit of a taken job", () => {
  /** The same receipt, as if the attempt had begun long ago. */
  function longAgo(receipt: string): string {
    const [id, token, slotId, [timeoutMs]] = JSON.parse(
      Buffer.from(receipt, "base64url").toString(),
    );
    return Buffer.from(JSON.stringify([id, token, slotId, [timeoutMs, 1]])).toString("base64url");
  }

  it("fails the attempt when it ends, and the late client is refused", async () => {
    const { queue, service } = await open({ limits: [concurrency(1)] });
    const { id } = await queue.enqueue(1, { timeoutMs: 50, attempts: 2, backoff: { baseMs: 1 } });

    const first = await takeOne(service, { lockMs: 86_400_000 });
    const second = await takeOne(service, { lockMs: 86_400_000 });
    const late = await service.post(`${MAIL}/complete`, { receipt: first.receipt });
    await waitUntil(async () => (await queue.counts()).failed === 1, "its last attempt has failed");

    expect([first.attempt, second.attempt]).toEqual([1, 2]);
    expect([late.status, late.json.code]).toEqual([409, "ERR_JOB_LOST"]);
    const [dead] = await queue.failed();
    expect(dead!.id).toBe(id);
    expect(dead!.reason).toMatch(/^The handler took longer than 50 ms/);
  });

  it("counts for any other server after its own server has ended", async () => {
    const { queue, service, another } = await open();
    const other = await another();
    const options = { timeoutMs: 600_000, attempts: 3, backoff: { baseMs: 1 } };
    const { id } = await queue.enqueue(1, options);

    const first = longAgo((await takeOne(service)).receipt);
    const extended = await other.post(`${MAIL}/extend`, { receipt: first });
    const second = longAgo((await takeOne(service)).receipt);
    const completed = await complete(other, { receipt: second, result: "late" });
    const third = await takeOne(service);
    const noted = await other.post(`${MAIL}/log`, {
      receipt: longAgo(third.receipt),
      lines: ["x"],
    });

    expect(extended.json).toEqual({ jobs: [{ id, state: "lost" }] });
    expect(completed).toEqual({ id, state: "retried" });
    expect(third.attempt).toBe(3);
    expect(noted.json).toEqual({ jobs: [{ id, state: "lost" }] });
    expect((await queue.failed())[0]!.reason).toMatch(/^The handler took longer than 600000 ms/);
  });

  it("leaves a job alone that ended in time", async () => {
    const { queue, service } = await open({ limits: [concurrency(1)] });
    const handle = await queue.enqueue("done", { timeoutMs: 600_000 });

    const job = await takeOne(service);
    const extended = await service.post(`${MAIL}/extend`, { receipt: job.receipt });
    await complete(service, { receipt: job.receipt, result: 1 });

    expect(extended.json.jobs[0].state).toBe("held");
    expect(await handle.finished()).toBe(1);
  });
});

describe("a queue with a schema, whose server has it", () => {
  it("gives out checked data, and makes a dead letter of a job with other data", async () => {
    const owner = sluices.open();
    const bucket = owner.bucket("mail", { rate: "1000/s" });
    const schema = z.object({ to: z.string(), copies: z.number().default(1) });
    owner.queue("mail", { bucket, schema });
    const stranger = sluices.open();
    const unchecked = stranger.queue<unknown>("mail", {
      bucket: stranger.bucket("mail", { rate: "1000/s" }),
    });
    const service = await servers.start(owner);
    const bad = await unchecked.enqueue({ to: 5 });
    await unchecked.enqueue({ to: "ann" });

    const job = await takeOne(service);
    await waitUntil(async () => (await unchecked.counts()).failed === 1, "the other has failed");

    expect(job.data).toEqual({ to: "ann", copies: 1 });
    const [dead] = await unchecked.failed();
    expect(dead!.id).toBe(bad.id);
    expect(dead!.reason).toMatch(/^Invalid: data\.to is refused by the queue's schema/);
  });
});

describe("log lines and progress of taken jobs", () => {
  it("are stored with the job, through any server, for one job or many", async () => {
    const { queue, service, another } = await open();
    const other = await another();
    const handles = await queue.enqueueMany([1, 2]);
    const jobs: Json[] = [await takeOne(service), await takeOne(service)];

    const one = await other.post(`${MAIL}/log`, { receipt: jobs[0].receipt, lines: ["a", "b"] });
    await other.post(`${MAIL}/log`, {
      jobs: jobs.map(({ receipt, id }) => ({ receipt, lines: [`job ${id}`] })),
    });
    await service.post(`${MAIL}/progress`, { receipt: jobs[0].receipt, value: 10 });
    const many = await other.post(`${MAIL}/progress`, {
      jobs: jobs.map(({ receipt, data }) => ({ receipt, value: { half: data } })),
    });

    expect(one.json).toEqual({ jobs: [{ id: jobs[0].id, state: "held" }] });
    expect(many.json.jobs).toEqual(jobs.map(({ id }) => ({ id, state: "held" })));
    const [first, second] = jobs.map(({ id }) => handles.find((handle) => handle.id === id)!);
    expect(await first!.logs()).toEqual(["a", "b", `job ${first!.id}`]);
    expect(await second!.logs()).toEqual([`job ${second!.id}`]);
    expect(await first!.progress()).toEqual({ half: jobs[0].data });
  });

  it("are not stored once the lock is lost, and say when the job was cancelled", async () => {
    const { queue, service } = await open();
    const handle = await queue.enqueue(1);
    const { receipt, id } = await takeOne(service);
    await handle.cancel();

    const cancelled = await service.post(`${MAIL}/progress`, { receipt, value: 1 });
    await complete(service, { receipt });
    const lost = await service.post(`${MAIL}/progress`, { receipt, value: 2 });
    const lostLines = await service.post(`${MAIL}/log`, { receipt, lines: ["late"] });

    expect(cancelled.json).toEqual({ jobs: [{ id, state: "cancelled" }] });
    expect(lost.json).toEqual({ jobs: [{ id, state: "lost" }] });
    expect(lostLines.json).toEqual({ jobs: [{ id, state: "lost" }] });
    expect(await handle.progress()).toBe(1);
    expect(await handle.logs()).toEqual([]);
  });

  it("are encoded as the queue's data is", async () => {
    const owner = sluices.open();
    const bucket = owner.bucket("mail", { rate: "1000/s" });
    const codec = encryption({ keys: { current: "k1", k1: Buffer.alloc(32, 7) } });
    const queue = owner.queue<unknown>("mail", { bucket, codec });
    const service = await servers.start(owner);
    const handle = await queue.enqueue(1);
    const { receipt } = await takeOne(service);

    await service.post(`${MAIL}/progress`, { receipt, value: { secret: "bo" } });

    expect(await handle.progress()).toEqual({ secret: "bo" });
    const plain = sluices.open();
    await waitUntil(async () => (await plain.findQueue("mail")) !== undefined, "it is known");
    const seen = (await (await plain.findQueue("mail"))!.job(handle.id))!;
    await expect(seen.progress()).rejects.toMatchObject({ code: "ERR_CODEC" });
  });
});

describe("a request of a worker that can never work", () => {
  it.each([
    ["take", { max: 0 }, "max"],
    ["take", { waitMs: 60_001 }, "waitMs"],
    ["take", { lockMs: 999 }, "lockMs"],
    ["take", { wait: 1 }, "wait"],
    ["extend", {}, "receipt"],
    ["extend", { receipts: ["bm9uZQ"] }, "receipts.0"],
    ["complete", { result: 1 }, "receipt"],
    ["complete", { receipt: "no receipt" }, "receipt"],
    // The name of another key of the queue, in place of a job's id.
    ["complete", { receipt: "WyJtZXRhIiwgInQiXQ" }, "receipt"],
    ["complete", { receipt: "WyJhIl0", reslt: 1 }, "reslt"],
    ["complete", { jobs: [{ receipt: "WyJhIl0" }], result: 1 }, "result"],
    ["complete", { jobs: [{ result: 1 }] }, "jobs.0.receipt"],
    ["complete", { jobs: [] }, "jobs"],
    ["extend", { receipts: ["WyJhIl0"], receipt: "WyJhIl0" }, "receipt"],
    ["fail", { receipt: "WyJhIl0" }, "error"],
    ["progress", { value: 1 }, "receipt"],
    ["progress", { receipt: "WyJhIiwidCJd" }, "value"],
    ["progress", { jobs: [{ receipt: "WyJhIl0", value: 1 }] }, "jobs.0.receipt"],
    ["log", { receipt: "WyJhIiwidCJd", lines: [] }, "lines"],
    ["log", { jobs: [{ receipt: "WyJhIiwidCJd", lines: ["x"] }], lines: ["x"] }, "lines"],
    // A time limit that no server can have written.
    ["extend", { receipt: "WyJhIiwidCIsbnVsbCxbIngiLDFdXQ" }, "receipt"],
    ["fail", { receipt: "WyJhIl0", error: { code: "E" } }, "error"],
  ])("%s %j is refused by the name of the field", async (verb, body, option) => {
    const { service } = await open();

    const { status, json } = await service.post(`${MAIL}/${verb}`, body);

    expect([status, json.code]).toEqual([400, "ERR_INVALID_OPTION"]);
    expect(json.option).toBe(option);
  });

  it("is refused without a queue of that name, and without the right to see data", async () => {
    const { queue } = await open();
    await queue.enqueue(1);
    const sluice = sluices.open();
    const tokens = [
      { token: VIEW, role: "view" as const },
      { token: CALL, role: "call" as const },
      { token: ACT, role: "work" as const, queues: ["mail"] },
    ];
    const { url } = await guarded.open(sluice, { tokens });
    const take = (name: string, token: string): Promise<Json> =>
      ask(`${url}/v1/queues/${name}/take`, { token, body: { waitMs: 20_000 } });

    const answers = await Promise.all([take("mail", VIEW), take("mail", CALL), take("other", ACT)]);
    const allowed = await take("mail", ACT);
    const { service } = await open();
    const missing = await service.post("/v1/queues/none/take", {});

    expect(answers.map(({ status }) => status)).toEqual([403, 403, 403]);
    expect(allowed.json.jobs).toHaveLength(1);
    expect([missing.status, missing.json.code]).toEqual([404, "ERR_QUEUE_MISSING"]);
  });

  it("names the progress that is too long, and its position among several", async () => {
    const { service } = await open();
    const jobs = [1, "x".repeat(10_000)].map((value) => ({ receipt: "WyJhIiwidCJd", value }));

    const { status, json } = await service.post(`${MAIL}/progress`, { jobs });

    expect([status, json.option]).toEqual([400, "jobs.1.value"]);
  });

  it("names both fields of a fail that discards and retries", async () => {
    const { queue, service } = await open();
    await queue.enqueue(1);
    const { receipt } = await takeOne(service);

    const body = { receipt, error: "no", discard: true, retryAfterMs: 1 };
    const { status, json } = await service.post(`${MAIL}/fail`, body);

    expect([status, json.option]).toEqual([400, "retryAfterMs"]);
    expect(await complete(service, { receipt })).toMatchObject({ state: "done" });
  });
});

describe("operators", () => {
  it("see a client beside other workers, with the jobs that it holds", async () => {
    const { queue, service } = await open();
    await queue.enqueueMany([1, 2]);
    await takeOne(service, { worker: "reports-1" });
    await takeOne(service, { worker: "reports-1" });

    await waitUntil(async () => {
      const { json } = await service.get("/api/v1/workers");
      return json.workers.some(
        ({ client, running, queue: name, state }: Json) =>
          client === "reports-1" && running === 2 && name === "mail" && state === "running",
      );
    }, "the client is listed");

    expect((await queue.status()).workers).toBeGreaterThan(0);
  });
});
