import { describe, expectTypeOf, it, vi } from "vitest";
import {
  createSluice,
  Discard,
  throttled,
  type EnqueueOptions,
  type Key,
  type QueuedJob,
  type Slot,
  type Throttled,
  type Worker,
} from "sluice";

const bucket = createSluice().bucket("stripe", { rate: "100/s" });

describe("the types of throttled", () => {
  it("keep the arguments and the awaited result", () => {
    const charge = bucket.throttled((amount: number, currency?: string) => `${amount}${currency}`);

    expectTypeOf<Parameters<typeof charge>>().toEqualTypeOf<
      [amount: number, currency?: string | undefined]
    >();
    expectTypeOf(charge(1)).toEqualTypeOf<Promise<string>>();
    expectTypeOf(charge.with({ key: "acme" })(1)).toEqualTypeOf<Promise<string>>();
  });

  it("keep a generic function generic", () => {
    const echo = bucket.throttled(async <T>(value: T): Promise<T> => value);

    expectTypeOf(echo("a" as const)).toEqualTypeOf<Promise<"a">>();
    expectTypeOf(echo.with({})({ id: 1 })).toEqualTypeOf<Promise<{ id: number }>>();
  });

  it("keep a generic function generic whose result becomes a promise", () => {
    const echo = bucket.throttled(<T>(value: T): T => value);
    const pair = bucket.throttled(<A extends string, B>(a: A, b: B): [A, B] => [a, b], {
      cost: (a) => a.length,
      priority: "high",
    });
    const first = bucket.throttled(function* <T>(list: readonly T[]) {
      yield* list;
    });
    const choose = throttled(<T>(one: T, other: T): T => one ?? other, {
      bucket: "stripe",
      rate: "100/s",
    });

    expectTypeOf(echo("a" as const)).toEqualTypeOf<Promise<"a">>();
    expectTypeOf(echo({ id: 1 })).toEqualTypeOf<Promise<{ id: number }>>();
    expectTypeOf(echo(Promise.resolve(1))).toEqualTypeOf<Promise<number>>();
    expectTypeOf(pair("a", 5)).toEqualTypeOf<Promise<["a", number]>>();
    // @ts-expect-error: the first is a string
    void pair(1, 5);
    expectTypeOf(first([1, 2])).toEqualTypeOf<Promise<Generator<number, void, unknown>>>();
    expectTypeOf(choose(1, 2)).toEqualTypeOf<Promise<number>>();
    expectTypeOf(bucket.run(() => echo(5))).toEqualTypeOf<Promise<number>>();
  });

  it("keep the overloads of a function, with promises or without", () => {
    function read(id: number): string;
    function read(id: number, as: "bytes"): Uint8Array;
    function read(_id: number, as?: "bytes"): string | Uint8Array {
      return as === undefined ? "" : new Uint8Array();
    }
    async function load(id: number): Promise<string>;
    async function load(id: string, deep: boolean): Promise<boolean>;
    async function load(_id: number | string, deep?: boolean): Promise<string | boolean> {
      return deep ?? "";
    }
    const paced = bucket.throttled(read, { priority: "low" });
    const loaded = bucket.throttled(load);

    expectTypeOf(paced(1)).toEqualTypeOf<Promise<string>>();
    expectTypeOf(paced(1, "bytes")).toEqualTypeOf<Promise<Uint8Array>>();
    expectTypeOf(paced.with({ key: "acme" })(1, "bytes")).toEqualTypeOf<Promise<Uint8Array>>();
    // @ts-expect-error: no overload takes this
    void paced("1");
    expectTypeOf(loaded(1)).toEqualTypeOf<Promise<string>>();
    expectTypeOf(loaded("1", true)).toEqualTypeOf<Promise<boolean>>();
    expectTypeOf(loaded.with({})("1", true)).toEqualTypeOf<Promise<boolean>>();
  });

  it("keep overloads that want this", () => {
    interface Api {
      get(this: { token: string }, id: number): string;
      get(this: { token: string }, id: string): number;
    }
    const get = bucket.throttled((() => "") as unknown as Api["get"]);
    const api = { token: "t", get };

    expectTypeOf(api.get(1)).toEqualTypeOf<Promise<string>>();
    expectTypeOf(api.get("1")).toEqualTypeOf<Promise<number>>();
    // @ts-expect-error: without what it wants as this
    void get(1);
  });

  it("keep the signature of a function that has properties, or is made by new too", () => {
    const counted = bucket.throttled(Object.assign((id: number) => `${id}`, { calls: 0 }));
    const mocked = bucket.throttled(vi.fn((id: number) => `${id}`));
    const twice = bucket.throttled(bucket.throttled((id: number) => `${id}`));
    const made = bucket.throttled(Date);

    expectTypeOf(counted.with({})(1)).toEqualTypeOf<Promise<string>>();
    expectTypeOf(mocked.with({})(1)).toEqualTypeOf<Promise<string>>();
    expectTypeOf(twice.with({})(1)).toEqualTypeOf<Promise<string>>();
    expectTypeOf(made.with({})()).toEqualTypeOf<Promise<string>>();
  });

  it("are known in code that is generic in the function, which it names", () => {
    type Any = (...args: never[]) => unknown;
    const pace = <F extends Any>(fn: F): Throttled<F> => bucket.throttled<F>(fn);
    const paceByDefault = <F extends Any>(fn: F): Throttled<F> =>
      throttled<F>(fn, { bucket: "stripe" });

    expectTypeOf(pace((id: number) => `${id}`)(1)).toEqualTypeOf<Promise<string>>();
    expectTypeOf(paceByDefault((id: number) => `${id}`).with({})(1)).toEqualTypeOf<
      Promise<string>
    >();
  });

  it("make a generator's end what settle is given", () => {
    async function* stream(_prompt: string): AsyncGenerator<string, { tokens: number }, void> {
      yield "";
      return { tokens: 5 };
    }
    const paced = bucket.throttled(stream, {
      settle: (end) => {
        expectTypeOf(end).toEqualTypeOf<{ tokens: number }>();
        return end;
      },
    });

    expectTypeOf(paced("")).toEqualTypeOf<
      Promise<AsyncGenerator<string, { tokens: number }, void>>
    >();
  });

  it("say what run resolves with, and what its settle is given", () => {
    const running = bucket.run(async () => ({ tokens: 5 }), {
      key: "acme",
      settle: ({ tokens }) => {
        expectTypeOf(tokens).toEqualTypeOf<number>();
        return { tokens };
      },
      onSlot: ({ waitedMs, key, limitedBy }) => {
        expectTypeOf(waitedMs).toEqualTypeOf<number>();
        expectTypeOf(key).toEqualTypeOf<Key | undefined>();
        expectTypeOf(limitedBy).toEqualTypeOf<string | undefined>();
      },
    });

    expectTypeOf(running).toEqualTypeOf<Promise<{ tokens: number }>>();
    expectTypeOf(bucket.run(() => "a")).toEqualTypeOf<Promise<string>>();
    // @ts-expect-error: run makes one call only
    void bucket.run(() => 1, { concurrency: 5 });
    // @ts-expect-error: there are no arguments that a key could depend on
    void bucket.run(() => 1, { key: () => "acme" });
  });

  it("keep what the function wants as this", () => {
    function read(this: { name: string }): string {
      return this.name;
    }
    const paced = bucket.throttled(read);

    expectTypeOf(paced).thisParameter.toEqualTypeOf<{ name: string }>();
  });

  it("know the arguments in key and cost", () => {
    bucket.throttled(async (tenant: string, count: number) => `${tenant}${count}`, {
      key: (tenant) => {
        expectTypeOf(tenant).toEqualTypeOf<string>();
        return tenant;
      },
      cost: (_tenant, count) => {
        expectTypeOf(count).toEqualTypeOf<number>();
        return count;
      },
    });
  });

  it("know the request and the answer in fetch.with", () => {
    const fetch = bucket.fetch.with({
      key: (input, init) => {
        expectTypeOf(input).toEqualTypeOf<Parameters<typeof globalThis.fetch>[0]>();
        expectTypeOf(init).toEqualTypeOf<RequestInit | undefined>();
        return "acme";
      },
      cost: (_input, init) => ({ bytes: init?.method?.length ?? 1 }),
      settle: (answer) => ({ bytes: Number(answer.headers.get("content-length")) }),
    });

    expectTypeOf(fetch("https://example.com")).toEqualTypeOf<Promise<Response>>();
    // @ts-expect-error: at most so many at once is what a bucket's concurrency says
    bucket.fetch.with({ concurrency: 5 });
  });

  it("are the same on the default sluice", () => {
    const quick = throttled(async (id: number) => id, { bucket: "stripe", rate: "100/s" });

    expectTypeOf(quick).toEqualTypeOf<Throttled<(id: number) => Promise<number>>>();
    // @ts-expect-error: the bucket has to be named
    throttled(async () => 1, { rate: "100/s" });
  });

  it("refuse options that do not exist", () => {
    // @ts-expect-error: there is no such option
    void bucket.draw({ maxWait: 5 });
    expectTypeOf(bucket.draw()).toEqualTypeOf<Promise<Slot>>();
  });
});

describe("the types of tryDraw", () => {
  it("say by allowed what else is known", async () => {
    const decision = await bucket.tryDraw();

    expectTypeOf(decision.slot).toEqualTypeOf<Slot | undefined>();
    if (decision.allowed) {
      expectTypeOf(decision.slot).toEqualTypeOf<Slot>();
      expectTypeOf(decision.limitedBy).toEqualTypeOf<undefined>();
    } else {
      expectTypeOf(decision.slot).toEqualTypeOf<undefined>();
      expectTypeOf(decision.limitedBy).toEqualTypeOf<string>();
    }
  });
});

describe("the types of a queue", () => {
  it("carry the data from enqueue to the handler", () => {
    const sluice = createSluice();
    const queue = sluice.queue<{ amount: number }>("charges", { bucket });

    expectTypeOf(queue.enqueue({ amount: 1 })).toEqualTypeOf<
      Promise<QueuedJob<{ amount: number }>>
    >();
    // @ts-expect-error: the data is of another type
    void queue.enqueue({ amount: "1" });
    sluice.worker(queue, async (job, { signal, attempt }) => {
      expectTypeOf(job.data).toEqualTypeOf<{ amount: number }>();
      expectTypeOf(signal).toEqualTypeOf<AbortSignal>();
      expectTypeOf(attempt).toEqualTypeOf<number>();
    });
  });

  it("carry the data to handlers by name", () => {
    const sluice = createSluice();
    const queue = sluice.queue<{ amount: number }, string>("charges", { bucket });

    sluice.worker(queue, {
      charge: async (job, { attempt }) => {
        expectTypeOf(job.data).toEqualTypeOf<{ amount: number }>();
        expectTypeOf(attempt).toEqualTypeOf<number>();
        return "charged";
      },
      refund: ({ name }) => `${name}ed`,
    });
    // @ts-expect-error: the queue's handlers return something else
    sluice.worker(queue, { charge: async () => 1 });
  });

  it("carry the data to a handler of batches", () => {
    const sluice = createSluice();
    const queue = sluice.queue<{ amount: number }, string>("charges", { bucket });
    const batch = { size: 10 };

    sluice.worker(
      queue,
      async (jobs, { contexts }) => {
        expectTypeOf(jobs[0]!.data).toEqualTypeOf<{ amount: number }>();
        expectTypeOf(contexts[0]!.attempt).toEqualTypeOf<number>();
        return jobs.map(({ data }) => (data.amount > 0 ? "charged" : new Error("nothing")));
      },
      { batch },
    );
    // @ts-expect-error: the queue's handlers return something else
    sluice.worker(queue, async (jobs) => jobs.map(() => 1), { batch });
    // @ts-expect-error: without batch, a handler gets one job
    sluice.worker(queue, async (jobs) => jobs.map(() => "charged"));
  });

  it("want a recurring job to have a name", () => {
    const queue = createSluice().queue<number>("reports", { bucket });
    const options: EnqueueOptions = { cron: "0 9 * * *", dedupeId: "daily", timeZone: "UTC" };

    expectTypeOf(queue.enqueue(1, options)).toEqualTypeOf<Promise<QueuedJob<number>>>();
    void queue.enqueue(1, { every: 60_000, dedupeId: "each minute" });
    void queue.enqueue(1, { dedupeId: "once", delayMs: 5 });
    void queue.enqueueMany([1], (data) => ({ dedupeId: `job ${data}` }));
    // @ts-expect-error: two deployments would double it
    void queue.enqueue(1, { cron: "0 9 * * *" });
    // @ts-expect-error: two deployments would double it
    void queue.enqueue(1, { every: 60_000, key: "acme" });
    // @ts-expect-error: it is the time zone of cron
    void queue.enqueue(1, { timeZone: "UTC" });
    // @ts-expect-error: two deployments would double it
    void queue.enqueue(1, { cron: "0 9 * * *", dedupeId: undefined });
  });

  it("carry a result from the handler to the caller that waits for it", async () => {
    const sluice = createSluice();
    const queue = sluice.queue<{ amount: number }, { receipt: string }>("charges", { bucket });
    const job = await queue.enqueue({ amount: 1 });

    expectTypeOf(job.finished()).toEqualTypeOf<Promise<{ receipt: string }>>();
    sluice.worker(queue, async ({ data }) =>
      data.amount > 0 ? { receipt: "r" } : new Discard("nothing to charge"),
    );
    // @ts-expect-error: the queue's handlers return something else
    sluice.worker(queue, async () => 1);
    // @ts-expect-error: some of its jobs would end without a receipt
    sluice.worker(queue, async ({ data }) => (data.amount > 0 ? { receipt: "r" } : undefined));
    // @ts-expect-error: BullMQ's delay is delayMs
    void queue.enqueue({ amount: 1 }, { delay: 1 });
  });

  it("leave the type of an undeclared result to the caller that waits for it", async () => {
    const queue = createSluice().queue<number>("charges", { bucket });
    const job = await queue.enqueue(1);

    expectTypeOf(job.finished()).toEqualTypeOf<Promise<unknown>>();
    expectTypeOf(job.finished<string>()).toEqualTypeOf<Promise<string>>();
  });

  it("let a handler answer at once", () => {
    const sluice = createSluice();
    const queue = sluice.queue<number>("charges", { bucket });

    expectTypeOf(sluice.worker(queue, (job) => job.data + 1)).toEqualTypeOf<Worker<number>>();
  });
});
