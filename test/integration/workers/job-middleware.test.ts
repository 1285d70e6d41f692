import { AsyncLocalStorage } from "node:async_hooks";
import { describe, expect, it } from "vitest";
import {
  Discard,
  InvalidOptionError,
  MiddlewareError,
  RetryAfter,
  type HandlerMiddleware,
  type Middleware,
} from "sluice";
import { useBuiltSandbox } from "../../support/children/built-sandbox.ts";
import { deferred } from "../../support/async/deferred.ts";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { openQueue } from "../../support/jobs/open-queue.ts";
import { openHooks, put, startReceiver, untilIdle } from "../../support/webhooks/open-hooks.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const SILENT = { warn: () => {}, error: () => {} };

/** A queue with a worker that returns its data, and what its middleware and handler have noted. */
function open() {
  const opened = openQueue<string>(sluices, { logger: SILENT });
  const notes: string[] = [];
  const noting = (name: string): HandlerMiddleware<unknown> => {
    return async (_job, next) => {
      notes.push(`${name} in`);
      const result = await next();
      notes.push(`${name} out`);
      return result;
    };
  };
  const start = () =>
    opened.sluice.worker(opened.queue, ({ data }) => {
      notes.push(`handler of ${data}`);
      if (data === "bad") throw new Error("bad");
      return data;
    });
  return { ...opened, notes, noting, start };
}

describe("middleware around handlers", () => {
  it("runs from the outside in: sluice, queue, worker, each in the order of use", async () => {
    const { sluice, queue, notes, noting, start } = open();
    const worker = start();
    worker.use({ handler: noting("worker") });
    queue.use({ handler: noting("queue 1") });
    queue.use({ handler: noting("queue 2") });
    sluice.use({ handler: noting("sluice") });

    const job = await queue.enqueue("a");

    expect(await job.finished()).toBe("a");
    const order = ["sluice", "queue 1", "queue 2", "worker"];
    const ins = order.map((name) => `${name} in`);
    const outs = order.toReversed().map((name) => `${name} out`);
    expect(notes).toEqual([...ins, "handler of a", ...outs]);
  });

  it("runs for each attempt until it is removed", async () => {
    const { queue, notes, noting, start } = open();
    start();
    const remove = queue.use({ handler: noting("one") });
    await (await queue.enqueue("a")).finished();
    remove();

    await (await queue.enqueue("b")).finished();

    expect(notes).toEqual(["one in", "handler of a", "one out", "handler of b"]);
  });

  it("gives its handler the tenant in async storage", async () => {
    const { sluice, queue } = open();
    const tenant = new AsyncLocalStorage<unknown>();
    sluice.use({ handler: (job, next) => tenant.run(job.key, next) });
    sluice.worker(queue, async () => {
      await new Promise(setImmediate);
      return tenant.getStore();
    });

    const jobs = await Promise.all(["acme", "umbrella"].map((key) => queue.enqueue("a", { key })));

    expect(await Promise.all(jobs.map((job) => job.finished()))).toEqual(["acme", "umbrella"]);
  });

  it("decides the result if it does not call next", async () => {
    const { queue, notes, start } = open();
    start();
    queue.use({ handler: async ({ data }) => `cached ${data}` });

    expect(await (await queue.enqueue("a")).finished()).toBe("cached a");
    expect(notes).toEqual([]);
  });

  it("fails the attempt if it throws, and retries and discards as a handler does", async () => {
    const { queue, start } = open();
    start();
    queue.use({
      handler: ({ data }, next, { attempt }) => {
        if (data === "throws") throw new Error("no database");
        if (data === "discards") return new Discard("not wanted");
        if (data === "retries" && attempt < 3) throw new RetryAfter(1);
        return next();
      },
    });

    const thrown = await queue.enqueue("throws", { attempts: 1 });
    const discarded = await queue.enqueue("discards");
    const retried = await queue.enqueue("retries");

    expect(await rejectionOf(thrown.finished())).toMatchObject({ reason: "no database" });
    expect(await rejectionOf(discarded.finished())).toMatchObject({ reason: "not wanted" });
    expect(await retried.finished()).toBe("retries");
  });

  it("gets what the handler throws, and may return a result instead", async () => {
    const { queue, start } = open();
    start();
    queue.use({
      handler: (_job, next) => next().catch((error: unknown) => `saved from ${String(error)}`),
    });

    expect(await (await queue.enqueue("bad")).finished()).toBe("saved from Error: bad");
  });

  it("fails the attempt if it calls next twice, and runs the handler once", async () => {
    const { queue, notes, start } = open();
    const worker = start();
    const errors: unknown[] = [];
    worker.on("dead", ({ error }) => errors.push(error));
    const twice: HandlerMiddleware<string>[] = [
      async (_job, next) => {
        await next();
        return next();
      },
      async (_job, next) => {
        const result = await next();
        void next();
        return result;
      },
      async (_job, next) => {
        await next();
        await next().catch(() => undefined);
        return "hidden";
      },
    ];
    for (const handler of twice) {
      const remove = queue.use({ handler });
      const job = await queue.enqueue("a", { attempts: 1 });

      const error = await rejectionOf(job.finished());

      expect(error).toMatchObject({ reason: expect.stringContaining("called next() twice") });
      remove();
    }
    expect(errors).toEqual(twice.map(() => expect.any(MiddlewareError)));
    expect(notes).toHaveLength(twice.length);
  });

  it("ends no job while its handler runs, although it does not await next", async () => {
    const { sluice, queue } = open();
    const held = deferred();
    sluice.worker(queue, async ({ data }) => {
      await held.promise;
      if (data === "bad") throw new Error("bad");
    });
    let calls = 0;
    queue.use({
      handler: (_job, next) => {
        void next();
        calls += 1;
      },
    });
    const [good, bad] = await queue.enqueueMany(["good", "bad"], { attempts: 1 });
    await waitUntil(() => calls === 2, "both have begun");
    expect(await good!.state()).toBe("active");

    held.resolve();

    expect(await good!.finished()).toBe(null);
    expect(await rejectionOf(bad!.finished())).toMatchObject({ reason: "bad" });
  });

  it("counts for the time limit of the attempt, and gets its signal", async () => {
    const { queue, start } = open();
    start();
    queue.use({
      handler: (_job, _next, { signal }) =>
        new Promise((_resolve, reject) => {
          signal.addEventListener("abort", () => reject(signal.reason as Error));
        }),
    });

    const job = await queue.enqueue("a", { timeoutMs: 50, attempts: 1 });

    expect(await rejectionOf(job.finished())).toMatchObject({
      reason: expect.stringContaining("took longer than 50 ms"),
    });
  });

  it("runs around a handler in a process of its own", async () => {
    useBuiltSandbox();
    const { sluice, queue, notes, noting } = open();
    sluice.use({ handler: noting("sluice") });
    const file = new URL("../../../examples/count-words.ts", import.meta.url);
    sluice.worker(queue as never, file, { concurrency: 1 });

    const job = await queue.enqueue({ text: "one two" } as never);

    expect(await job.finished()).toBe(2);
    expect(notes).toEqual(["sluice in", "sluice out"]);
  });

  it("runs around batches by its batch function only", async () => {
    const warnings: string[] = [];
    const logger = { warn: (_facts: object, text: string) => warnings.push(text), error: () => {} };
    const { sluice, queue } = openQueue<string>(sluices, { logger });
    const seen: string[] = [];
    sluice.use({ handler: () => "never" });
    sluice.use({
      async batch(jobs, next, { contexts }) {
        seen.push(`${jobs.map(({ data }) => data).join()} of ${contexts.length}`);
        const outcomes = (await next()) as readonly string[];
        return outcomes.map((outcome) => `<${outcome}>`);
      },
    });
    sluice.worker(queue, (jobs) => jobs.map(({ data }) => data), { batch: { size: 2 } });

    const jobs = await queue.enqueueMany(["a", "b"]);

    const results = await Promise.all(jobs.map((job) => job.finished()));
    expect(results).toEqual(["<a>", "<b>"]);
    expect(seen).toEqual(["a,b of 2"]);
    expect(warnings.join()).toContain("does not run for batches");
  });

  it("runs around the attempts of webhooks, and not when these are stored", async () => {
    const hooks = openHooks(sluices);
    const sluice = sluices.open();
    const notes: string[] = [];
    const own = openHooksOf(sluice, notes);
    const receiver = await startReceiver();
    await put(hooks, { tenant: "acme", id: "a", url: receiver.url });
    own.worker();

    await own.send({ tenant: "acme", type: "note.made", data: 1 });
    await untilIdle(own);

    expect(receiver.arrivals).toHaveLength(1);
    expect(notes).toEqual(["handler of acme"]);
  });
});

function openHooksOf(sluice: ReturnType<typeof sluices.open>, notes: string[]) {
  sluice.use({
    handler(job, next) {
      notes.push(`handler of ${[job.key].flat()[0] as string}`);
      return next();
    },
    enqueue(call, next) {
      notes.push(`enqueue in ${call.queue}`);
      return next();
    },
  });
  return openHooks({ open: () => sluice });
}

describe("use()", () => {
  it.each([
    [{}, "middleware", "give at least one function"],
    [{ handle: () => {} }, "handle", "did you mean handler"],
    [{ handler: 5 }, "handler", "give a function"],
    [() => {}, "options", "give an object of options"],
    [undefined, "options", "give an object of options"],
  ])("refuses %o of a sluice and of a queue", (middleware, option, remedy) => {
    const { sluice, queue } = open();
    for (const user of [sluice, queue]) {
      let thrown: unknown;
      try {
        user.use(middleware as Middleware<never, never>);
      } catch (error) {
        thrown = error;
      }
      expect(thrown).toBeInstanceOf(InvalidOptionError);
      expect(thrown).toMatchObject({ option, message: expect.stringContaining(remedy) });
    }
  });

  it("refuses enqueue for a worker", () => {
    const worker = open().start();

    expect(() => worker.use({ enqueue: () => {} } as never)).toThrow(
      "a worker enqueues no jobs; give it to use() of the queue",
    );
  });
});
