import { AsyncLocalStorage } from "node:async_hooks";
import { describe, expect, it, onTestFinished } from "vitest";
import { InvalidOptionError, MiddlewareError, type EnqueueMiddleware } from "sluice";
import * as z from "zod";
import { deferred } from "../../support/async/deferred.ts";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { openQueue } from "../../support/jobs/open-queue.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();

describe("middleware around enqueue", () => {
  it("changes the data and options of all jobs, from the sluice to the queue", async () => {
    const { sluice, queue } = openQueue<string>(sluices);
    const tenant = new AsyncLocalStorage<string>();
    sluice.use({
      enqueue: ({ jobs }, next) =>
        next(
          jobs.map(({ data, options }) => ({
            data: `${data as string} by sluice`,
            options: { ...options, key: tenant.getStore() },
          })),
        ),
    });
    queue.use({
      enqueue: ({ queue: name, jobs }, next) =>
        next(jobs.map((job) => ({ ...job, data: `${job.data} and ${name}` }))),
    });

    const one = await tenant.run("acme", () => queue.enqueue("a", { priority: "high" }));
    const many = await tenant.run("umbrella", () => queue.enqueueMany(["b", "c"]));

    expect(one).toMatchObject({ data: "a by sluice and jobs", key: "acme", priority: "high" });
    expect(many.map(({ data, key }) => `${data}, ${key as string}`)).toEqual([
      "b by sluice and jobs, umbrella",
      "c by sluice and jobs, umbrella",
    ]);
    expect((await queue.job(one.id))?.data).toBe("a by sluice and jobs");
  });

  it("runs once for each call, with the options of each job", async () => {
    const { queue } = openQueue<number>(sluices);
    const calls: unknown[] = [];
    queue.use({
      enqueue(call, next) {
        calls.push(call);
        return next();
      },
    });
    await queue.enqueueMany([1, 2], (data) => ({ id: `order-${data}` }));
    await queue.enqueueMany([3], { priority: "low" });
    await queue.enqueueMany([]);
    await queue.enqueue(4);

    expect(calls).toEqual([
      {
        queue: "jobs",
        jobs: [
          { data: 1, options: { id: "order-1" } },
          { data: 2, options: { id: "order-2" } },
        ],
      },
      { queue: "jobs", jobs: [{ data: 3, options: { priority: "low" } }] },
      { queue: "jobs", jobs: [] },
      { queue: "jobs", jobs: [{ data: 4, options: {} }] },
    ]);
    expect((await queue.counts()).waiting).toBe(4);
  });

  it("stores nothing without next: the caller gets the returned job, or its error", async () => {
    const { queue } = openQueue<string>(sluices);
    const stored = await queue.enqueue("stored");
    const remove = queue.use({ enqueue: async () => [stored] });
    const skipped = await queue.enqueue("skipped");
    remove();
    queue.use({ enqueue: () => Promise.reject(new Error("not today")) });

    const error = await rejectionOf(queue.enqueue("refused"));

    expect(skipped.id).toBe(stored.id);
    expect(error).toMatchObject({ message: "not today" });
    expect((await queue.counts()).waiting).toBe(1);
  });

  it("sees the error of a job that cannot be stored", async () => {
    const { queue } = openQueue<string>(sluices);
    const seen: unknown[] = [];
    queue.use({
      enqueue: ({ jobs }, next) =>
        next(jobs.map((job) => ({ ...job, options: { ...job.options, delayMs: -1 } }))).catch(
          (error: unknown) => {
            seen.push(error);
            throw error;
          },
        ),
    });

    const error = await rejectionOf(queue.enqueue("a"));

    expect(error).toBeInstanceOf(InvalidOptionError);
    expect(error).toMatchObject({ option: "delayMs", value: -1 });
    expect((error as Error).message).toContain("enqueue(), after its middleware: option");
    expect(seen).toEqual([error]);
    expect((await queue.counts()).waiting).toBe(0);
  });

  it("does not run for options that the caller gives wrongly", async () => {
    const { queue } = openQueue<string>(sluices);
    let calls = 0;
    queue.use({
      enqueue(_call, next) {
        calls += 1;
        return next();
      },
    });

    const errors = await Promise.all([
      rejectionOf(queue.enqueue("a", { delay: 5 } as never)),
      rejectionOf(queue.enqueueMany(["a"], { id: "order-1" })),
      rejectionOf(queue.enqueueMany(["a", "b"], (data) => ({ cron: data, dedupeId: "x" }))),
    ]);

    expect(errors).toEqual(errors.map(() => expect.any(InvalidOptionError)));
    expect(calls).toBe(0);
  });

  it("checks the changed data with the schema", async () => {
    const sluice = sluices.open();
    const bucket = sluice.bucket("b", { rate: "100/s" });
    const schema = z.object({ tenant: z.string(), at: z.coerce.number() });
    const queue = sluice.queue("jobs", { bucket, schema });
    const remove = sluice.use({
      enqueue: ({ jobs }, next) =>
        next(jobs.map((job) => ({ ...job, data: { ...(job.data as object), tenant: "acme" } }))),
    });
    const job = await queue.enqueue({ at: "5" } as never);
    remove();
    sluice.use({ enqueue: ({ jobs }, next) => next(jobs.map((job) => ({ ...job, data: 5 }))) });

    const error = await rejectionOf(queue.enqueue({ tenant: "acme", at: 5 }));

    expect(job.data).toEqual({ tenant: "acme", at: 5 });
    expect(error).toMatchObject({ code: "ERR_INVALID_OPTION", option: "data", value: 5 });
  });

  it("runs when a schedule is declared, and not when its runs are stored", async () => {
    const { sluice, queue } = openQueue<string>(sluices);
    const seen: unknown[] = [];
    queue.use({
      enqueue({ jobs }, next) {
        seen.push(jobs[0]!.options);
        return next(jobs.map((job) => ({ ...job, data: "changed" })));
      },
    });
    const done: string[] = [];
    const ran = new Promise<void>((resolve) => {
      sluice.worker(queue, ({ data }) => {
        if (done.push(data) === 3) resolve();
      });
    });

    await queue.enqueue("declared", { dedupeId: "often", every: 100 });
    await ran;

    expect(seen).toEqual([{ dedupeId: "often", every: 100 }]);
    expect(done).toEqual(["changed", "changed", "changed"]);
  });

  it.each<[string, EnqueueMiddleware<string>, string]>([
    [
      "next is called twice",
      async (_call, next) => {
        await next();
        return next();
      },
      "called next() twice",
    ],
    ["nothing is returned", async (_call, next) => void (await next()) as never, "returned somet"],
    ["too few jobs are returned", async () => [], "returned something other than 1 stored job"],
    ["no job is returned", async () => [{}] as never, "returned something other than 1 stored"],
  ])("rejects with an error that says so if %s", async (_what, enqueue, problem) => {
    const { queue } = openQueue<string>(sluices);
    queue.use({ enqueue });

    const error = await rejectionOf(queue.enqueue("a"));

    expect(error).toBeInstanceOf(MiddlewareError);
    expect(error).toMatchObject({ hook: "enqueue", message: expect.stringContaining(problem) });
  });

  it.each([[5], [[5]], [[{ options: {} }]]])("refuses next(%j)", async (jobs) => {
    const { queue } = openQueue<string>(sluices);
    queue.use({ enqueue: (_call, next) => next(jobs as never) });

    const error = await rejectionOf(queue.enqueue("a"));

    expect(error).toMatchObject({ code: "ERR_INVALID_OPTION", option: "jobs" });
    expect((await queue.counts()).waiting).toBe(0);
  });

  it("may set the key that an ordered queue needs", async () => {
    const { sluice, bucket } = openQueue<string>(sluices);
    const queue = sluice.queue<string>("ordered", { bucket, ordered: true });
    const refused = await rejectionOf(queue.enqueue("no key"));
    queue.use({
      enqueue: ({ jobs }, next) =>
        next(jobs.map((job) => ({ ...job, options: { ...job.options, key: job.data[0] } }))),
    });
    await queue.enqueueMany(["a1", "b1", "a2", "b2", "a3"]);
    const running = new Set<string>();
    const runs: string[] = [];
    sluice.worker(queue, async ({ key, data }) => {
      runs.push(running.has(key as string) ? `${data} beside another` : data);
      running.add(key as string);
      await new Promise(setImmediate);
      running.delete(key as string);
    });

    await waitUntil(() => runs.length === 5, "all have run");

    expect(refused).toMatchObject({ code: "ERR_INVALID_OPTION", option: "key" });
    expect(runs.filter((data) => data.startsWith("a"))).toEqual(["a1", "a2", "a3"]);
    expect(runs.filter((data) => data.startsWith("b"))).toEqual(["b1", "b2"]);
  });

  it("may wait for something else while a job is refused, and then passes the error on", async () => {
    const { queue } = openQueue<string>(sluices);
    const unhandled: unknown[] = [];
    const note = (reason: unknown): void => void unhandled.push(reason);
    process.on("unhandledRejection", note);
    onTestFinished(() => void process.off("unhandledRejection", note));
    const asked = deferred();
    const released = deferred();
    queue.use({
      async enqueue({ jobs }, next) {
        const storing = next(jobs.map((job) => ({ ...job, options: { key: "" } })));
        asked.resolve();
        await released.promise;
        return storing;
      },
    });

    const enqueuing = queue.enqueue("x");
    await asked.promise;
    await new Promise((resolve) => setTimeout(resolve));
    const early = [...unhandled];
    released.resolve();
    const error = await rejectionOf(enqueuing);

    expect(early).toEqual([]);
    expect(error).toMatchObject({ code: "ERR_INVALID_OPTION", option: "key" });
    expect(await queue.counts()).toMatchObject({ waiting: 0 });
  });

  it("may drop jobs and add others of its own", async () => {
    const { queue } = openQueue<string>(sluices);
    const known = await queue.enqueue("known");
    queue.use({
      async enqueue({ jobs }, next) {
        const fresh = jobs.filter(({ data }) => data !== "known");
        const stored = await next([...fresh, { data: "audit", options: {} }]);
        return jobs.map(({ data }) => (data === "known" ? known : stored.shift()!));
      },
    });

    const jobs = await queue.enqueueMany(["a", "known", "b"]);

    expect(jobs.map(({ data }) => data)).toEqual(["a", "known", "b"]);
    expect((await queue.counts()).waiting).toBe(4);
  });

  it("keeps the data as it is when enqueue is called", async () => {
    const { queue } = openQueue<{ text: string }>(sluices);
    queue.use({
      async enqueue(_call, next) {
        await new Promise(setImmediate);
        return next();
      },
    });
    const data = { text: "first" };
    const options = { key: "acme" };

    const storing = queue.enqueue(data, options);
    data.text = "second";
    options.key = "umbrella";

    expect(await storing).toMatchObject({ data: { text: "first" }, key: "acme" });
  });
});
