/**
 * Programs that use a limiter, for Bottleneck itself and for its drop-in. Each returns what it saw. Jobs end when the
 * program says so, hence the results do not depend on how fast the machine is.
 */
import { setImmediate } from "node:timers/promises";
import type Bottleneck from "sluice/bottleneck";
import { deferred, type Deferred } from "../../support/async/deferred.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

export type LimiterClass = typeof Bottleneck;
type Options = Bottleneck.ConstructorOptions;

/** What a program uses to create limiters and jobs. */
export interface Bench {
  readonly Limiter: LimiterClass;
  /** Creates a limiter that is disconnected after the program. */
  limiter(options?: Options): Bottleneck;
  /** The names of the jobs in the order of their starts. */
  readonly started: string[];
  /** Returns a function that starts the job of a name, and the handle that ends it. */
  job(name: string): { readonly run: () => Promise<string>; readonly end: () => void };
  /** Returns a job that ends by itself. */
  quick(name: string): () => Promise<string>;
}

export type Scenario = (bench: Bench) => Promise<unknown>;

export function createBench(
  Limiter: LimiterClass,
  common: Options,
): Bench & { close(): Promise<void> } {
  const started: string[] = [];
  const limiters: Bottleneck[] = [];
  let ids = 0;
  return {
    Limiter,
    started,
    limiter(options = {}) {
      ids += 1;
      const id = common.id === undefined ? {} : { id: `${common.id}-${ids}` };
      const limiter = new Limiter({ ...common, ...id, ...options });
      limiters.push(limiter);
      return limiter;
    },
    job(name) {
      const ended: Deferred = deferred();
      const run = async (): Promise<string> => {
        started.push(name);
        await ended.promise;
        return name;
      };
      return { run, end: ended.resolve };
    },
    quick: (name) => async () => {
      started.push(name);
      return name;
    },
    async close() {
      await Promise.all(limiters.map((limiter) => limiter.disconnect(false)));
    },
  };
}

/** The result or the error of a job. */
async function outcomeOf(promise: Promise<unknown>): Promise<unknown> {
  return promise.then(
    (result) => ({ result }),
    (error: Error) => ({ error: error.message, name: error.constructor.name }),
  );
}

async function countsAre(
  limiter: Bottleneck,
  expected: Partial<Record<Bottleneck.Status, number>>,
): Promise<void> {
  await waitUntil(
    () => {
      const counts = limiter.counts() as Record<string, number>;
      return Object.entries(expected).every(([status, count]) => counts[status] === count);
    },
    `the counts are ${JSON.stringify(expected)}`,
  );
}

/** Runs the promises that are ready to run. */
async function settled(): Promise<void> {
  for (let turn = 0; turn < 5; turn += 1) await setImmediate();
}

export const SCENARIOS: Readonly<Record<string, Scenario>> = {
  async "runs jobs in the order of their priorities, then of their arrival"(bench) {
    const limiter = bench.limiter({ maxConcurrent: 1 });
    const first = bench.job("first");
    const jobs = [limiter.schedule(first.run)];
    await countsAre(limiter, { EXECUTING: 1 });
    for (const [name, priority] of [
      ["a", 5],
      ["b", 9],
      ["c", 0],
      ["d", 5],
      ["e", 4],
      ["f", 50],
      ["g", -1],
      ["h", 1.5],
    ] as const) {
      jobs.push(limiter.schedule({ priority }, bench.quick(name)));
    }
    await countsAre(limiter, { QUEUED: 8 });
    const queued = [limiter.queued(), limiter.queued(5), limiter.queued(0), limiter.queued(9)];
    first.end();
    await Promise.all(jobs);
    return { started: bench.started, queued };
  },

  async "passes arguments and results through schedule, wrap and withOptions"(bench) {
    const limiter = bench.limiter({ maxConcurrent: 1 });
    const add = async (a: number, b: number): Promise<number> => a + b;
    const wrapped = limiter.wrap(add);
    class Adder {
      readonly base = 10;
      add = limiter.wrap(async function (this: Adder, a: number) {
        return this.base + a;
      });
    }
    return [
      await limiter.schedule(add, 1, 2),
      await limiter.schedule({ priority: 1 }, add, 3, 4),
      await wrapped(5, 6),
      await wrapped.withOptions({ id: "x" }, 7, 8),
      await new Adder().add(1),
    ];
  },

  async "rejects with the error of the job, also of one that is not async"(bench) {
    const limiter = bench.limiter();
    return [
      await outcomeOf(limiter.schedule(async () => Promise.reject(new TypeError("late")))),
      await outcomeOf(
        limiter.schedule(() => {
          throw new RangeError("at once");
        }),
      ),
    ];
  },

  async "calls the callback of submit with all results, also after an error"(bench) {
    const limiter = bench.limiter({ maxConcurrent: 1 });
    type Callback = (...results: unknown[]) => void;
    const echo = (error: unknown, a: number, b: number, callback: Callback): void =>
      callback(error, a, b);
    const call = (error: unknown): Promise<unknown[]> =>
      new Promise((resolve) => {
        void limiter.submit(echo, error, 1, 2, (...results: unknown[]) => resolve(results));
      });
    const failed = await call(new Error("welp"));
    const withoutCallback = await limiter.submit({ id: "quiet" }, echo, null, 1, 2, null);
    await countsAre(limiter, { RECEIVED: 0, QUEUED: 0, RUNNING: 0, EXECUTING: 0 });
    return [await call(null), (failed[0] as Error).message, failed.slice(1), withoutCallback];
  },

  async "counts jobs by status, and lists their ids"(bench) {
    const limiter = bench.limiter({ maxConcurrent: 1, trackDoneStatus: true });
    const [a, b] = [bench.job("a"), bench.job("b")];
    const jobs = [limiter.schedule({ id: "a" }, a.run), limiter.schedule({ id: "b" }, b.run)];
    const received = limiter.counts();
    await countsAre(limiter, { EXECUTING: 1, QUEUED: 1 });
    const during = [
      limiter.jobStatus("a"),
      limiter.jobStatus("b"),
      limiter.jobs("QUEUED"),
      limiter.jobs(),
    ];
    const facts = [limiter.empty(), await limiter.running(), await limiter.done()];
    a.end();
    b.end();
    await Promise.all(jobs);
    const after = [
      limiter.counts(),
      limiter.jobStatus("a"),
      limiter.jobStatus("none"),
      limiter.jobs("DONE"),
    ];
    let wrong = "";
    try {
      limiter.jobs("LOST" as "DONE");
    } catch (error) {
      wrong = (error as Error).message;
    }
    return {
      received,
      during,
      facts,
      after,
      done: await limiter.done(),
      empty: limiter.empty(),
      wrong,
    };
  },

  async "forgets finished jobs without trackDoneStatus, so that an id can be used again"(bench) {
    const limiter = bench.limiter({ maxConcurrent: 1 });
    const first = bench.job("first");
    const running = limiter.schedule({ id: "same" }, first.run);
    const twice = await outcomeOf(limiter.schedule({ id: "same" }, bench.quick("twice")));
    first.end();
    await running;
    return [
      twice,
      await limiter.schedule({ id: "same" }, bench.quick("again")),
      limiter.counts(),
      limiter.jobStatus("same"),
    ];
  },

  async "holds the start of the next job back, but counts it as running"(bench) {
    const limiter = bench.limiter({ minTime: 60_000, maxConcurrent: 2 });
    const first = bench.job("first");
    const running = limiter.schedule(first.run);
    const dropped = ["second", "third"].map((name) =>
      outcomeOf(limiter.schedule(bench.quick(name))),
    );
    await countsAre(limiter, { EXECUTING: 1, RUNNING: 1, QUEUED: 1 });
    const facts = [await limiter.running(), await limiter.check(), await limiter.check(0)];
    first.end();
    await running;
    await countsAre(limiter, { EXECUTING: 0, RUNNING: 2, QUEUED: 0 });
    await limiter.stop();
    return { facts, dropped: await Promise.all(dropped), started: bench.started };
  },

  async "lets heavy jobs wait for their weight, and refuses those above maxConcurrent"(bench) {
    const limiter = bench.limiter({ maxConcurrent: 3 });
    const [a, b, c, d] = ["a", "b", "c", "d"].map((name) => bench.job(name)) as [
      ReturnType<Bench["job"]>,
      ReturnType<Bench["job"]>,
      ReturnType<Bench["job"]>,
      ReturnType<Bench["job"]>,
    ];
    const jobs = [
      limiter.schedule({ weight: 2 }, a.run),
      limiter.schedule({ weight: 2 }, b.run),
      limiter.schedule({ weight: 1 }, c.run),
      limiter.schedule({ weight: 0 }, d.run),
    ];
    const refused = await outcomeOf(limiter.schedule({ weight: 4 }, bench.quick("e")));
    await countsAre(limiter, { EXECUTING: 1, QUEUED: 3 });
    const before = [await limiter.running(), await limiter.check(1), await limiter.check(2)];
    a.end();
    await countsAre(limiter, { EXECUTING: 3, QUEUED: 0 });
    const after = [
      await limiter.running(),
      await limiter.done(),
      await limiter.check(1),
      await limiter.check(0),
    ];
    for (const job of [b, c, d]) job.end();
    await Promise.all(jobs);
    return { refused, before, after, started: bench.started, done: await limiter.done() };
  },

  async "gives a job that expires an error, and frees its place"(bench) {
    const limiter = bench.limiter({ maxConcurrent: 1 });
    const slow = bench.job("slow");
    const expired = await outcomeOf(limiter.schedule({ expiration: 30, id: "slow" }, slow.run));
    const next = await limiter.schedule(bench.quick("next"));
    slow.end();
    await settled();
    return {
      expired,
      next,
      counts: limiter.counts(),
      running: await limiter.running(),
      done: await limiter.done(),
    };
  },

  async "retries a failed job as often as the listener asks for"(bench) {
    const limiter = bench.limiter({ maxConcurrent: 1 });
    const seen: unknown[] = [];
    limiter.on("failed", async (error: Error, { retryCount, options }) => {
      seen.push(["failed", error.message, retryCount, options.id]);
      return retryCount < 2 ? 5 : undefined;
    });
    limiter.on("retry", (message, { retryCount }) => seen.push(["retry", message, retryCount]));
    for (const name of ["scheduled", "executing", "done"] as const) {
      limiter.on(name, ({ options }: Bottleneck.EventInfo) => seen.push([name, options.id]));
    }
    let attempts = 0;
    const flaky = async (): Promise<string> => {
      attempts += 1;
      if (attempts < 3) throw new Error(`attempt ${attempts}`);
      return "at last";
    };
    const result = await limiter.schedule({ id: "flaky" }, flaky);
    const lost = await outcomeOf(
      limiter.schedule({ id: "lost" }, async () => Promise.reject(new Error("always"))),
    );
    return { result, lost, seen };
  },

  async "keeps the place of a job between two attempts"(bench) {
    const limiter = bench.limiter({ maxConcurrent: 1 });
    limiter.on("failed", (_error, { retryCount }) => (retryCount === 0 ? 50 : null));
    let attempts = 0;
    const flaky = limiter.schedule(async () => {
      attempts += 1;
      bench.started.push(`attempt ${attempts}`);
      if (attempts === 1) throw new Error("once");
    });
    const next = limiter.schedule(bench.quick("next"));
    await Promise.all([flaky, next]);
    return bench.started;
  },

  async "emits the events of a job in the order of its life"(bench) {
    const limiter = bench.limiter({ maxConcurrent: 1 });
    const seen: string[] = [];
    for (const name of ["received", "queued", "scheduled", "executing", "done"] as const) {
      limiter.on(name, (info: Bottleneck.EventInfo) =>
        seen.push(`${name} ${info.options.id} ${info.args.join()}`),
      );
    }
    limiter.on("empty", () => seen.push("empty"));
    limiter.on("idle", () => seen.push("idle"));
    await limiter.schedule({ id: "a" }, async (_one: number, _two: number) => undefined, 1, 2);
    await waitUntil(() => seen.includes("idle"), "the limiter is idle");
    return seen;
  },

  async "emits empty and idle once for each time, and calls a once listener once"(bench) {
    const limiter = bench.limiter({ maxConcurrent: 1 });
    const calls = { empty: 0, idle: 0, once: 0, removed: 0 };
    limiter.on("empty", () => (calls.empty += 1));
    limiter.on("idle", () => (calls.idle += 1));
    limiter.once("idle", () => (calls.once += 1));
    limiter.on("done", () => (calls.removed += 1));
    limiter.removeAllListeners("done");
    await Promise.all([limiter.schedule(bench.quick("a")), limiter.schedule(bench.quick("b"))]);
    await waitUntil(() => calls.idle === 1, "the limiter is idle");
    const between = { ...calls };
    await limiter.schedule(bench.quick("c"));
    await waitUntil(() => calls.idle === 2, "the limiter is idle again");
    return { between, calls };
  },

  async "turns errors of listeners into error events"(bench) {
    const limiter = bench.limiter();
    const errors: string[] = [];
    limiter.on("error", (error: Error) => errors.push(error.message));
    limiter.on("received", () => {
      throw new Error("thrown");
    });
    limiter.on("executing", async () => Promise.reject(new Error("rejected")));
    const result = await limiter.schedule(bench.quick("a"));
    await waitUntil(() => errors.length === 2, "both errors are reported");
    return { result, errors };
  },

  async "LEAK drops the oldest of the least urgent jobs"(bench) {
    return withHighWater(bench, bench.Limiter.strategy.LEAK);
  },

  async "OVERFLOW drops the new job"(bench) {
    return withHighWater(bench, bench.Limiter.strategy.OVERFLOW);
  },

  async "OVERFLOW_PRIORITY drops only less urgent jobs"(bench) {
    return withHighWater(bench, bench.Limiter.strategy.OVERFLOW_PRIORITY);
  },

  async "BLOCK drops all queued jobs and refuses new ones during the penalty"(bench) {
    return withHighWater(bench, bench.Limiter.strategy.BLOCK);
  },

  async "highWater 0 queues nothing, but starts a job that can start"(bench) {
    const limiter = bench.limiter({ maxConcurrent: 1, highWater: 0 });
    const first = bench.job("first");
    const running = limiter.schedule(first.run);
    const refused = await outcomeOf(limiter.schedule(bench.quick("second")));
    first.end();
    await running;
    return { refused, started: bench.started };
  },

  async "rejectOnDrop false leaves dropped jobs pending"(bench) {
    const limiter = bench.limiter({ maxConcurrent: 1, highWater: 0, rejectOnDrop: false });
    const dropped: unknown[] = [];
    limiter.on("dropped", ({ args, options, task, promise }) => {
      dropped.push([args, options.id, typeof task, typeof promise.then]);
    });
    const first = bench.job("first");
    const running = limiter.schedule(first.run);
    let isSettled = false;
    void limiter.schedule({ id: "lost" }, bench.quick("lost")).finally(() => (isSettled = true));
    await waitUntil(() => dropped.length === 1, "the job is dropped");
    first.end();
    await running;
    return { dropped, isSettled };
  },

  async "a reservoir stops jobs until it is filled"(bench) {
    const limiter = bench.limiter({ maxConcurrent: 2, reservoir: 3 });
    const depleted: boolean[] = [];
    limiter.on("depleted", (empty) => depleted.push(empty));
    const jobs = [1, 2, 1, 1].map((weight, index) =>
      limiter.schedule({ weight }, bench.quick(`${index}`)),
    );
    await Promise.all(jobs.slice(0, 2));
    await countsAre(limiter, { QUEUED: 2 });
    const values = [await limiter.currentReservoir(), await limiter.incrementReservoir(1)];
    await jobs[2];
    values.push(await limiter.currentReservoir());
    await limiter.updateSettings({ reservoir: 5 });
    await jobs[3];
    values.push(
      await limiter.currentReservoir(),
      await limiter.incrementReservoir(-3),
      await limiter.currentReservoir(),
    );
    return { values, started: bench.started, depleted: depleted.slice(0, 1) };
  },

  async "currentReservoir is null without a reservoir, and updateSettings adds one"(bench) {
    const limiter = bench.limiter();
    const before = await limiter.currentReservoir();
    await limiter.updateSettings({ reservoir: 1 });
    const jobs = ["a", "b"].map((name) => limiter.schedule(bench.quick(name)));
    await jobs[0];
    await countsAre(limiter, { QUEUED: 1 });
    const during = await limiter.currentReservoir();
    await limiter.updateSettings({ reservoir: null });
    await jobs[1];
    return [before, during, await limiter.currentReservoir()];
  },

  async "a reservoir of 0 starts no job with a weight"(bench) {
    const limiter = bench.limiter({ reservoir: 0 });
    const free = await limiter.schedule({ weight: 0 }, bench.quick("free"));
    const waits = limiter.schedule(bench.quick("waits"));
    await countsAre(limiter, { QUEUED: 1 });
    const check = [await limiter.check(), await limiter.check(0)];
    await limiter.incrementReservoir(1);
    return { free, check, waits: await waits };
  },

  async "a refresh interval fills the reservoir again"(bench) {
    const limiter = bench.limiter({
      reservoir: 2,
      reservoirRefreshAmount: 2,
      reservoirRefreshInterval: 250,
    });
    return Promise.all([1, 2, 3, 4, 5].map((name) => limiter.schedule(bench.quick(`${name}`))));
  },

  async "an increase interval adds to the reservoir"(bench) {
    const limiter = bench.limiter({
      reservoir: 2,
      reservoirIncreaseAmount: 1,
      reservoirIncreaseInterval: 250,
      reservoirIncreaseMaximum: 2,
    });
    return Promise.all([1, 2, 3, 4].map((name) => limiter.schedule(bench.quick(`${name}`))));
  },

  async "updateSettings starts jobs that the new limits allow"(bench) {
    const limiter = bench.limiter({ maxConcurrent: 1 });
    const jobs = ["a", "b", "c"].map((name) => bench.job(name));
    const running = jobs.map(({ run }) => limiter.schedule(run));
    await countsAre(limiter, { EXECUTING: 1, QUEUED: 2 });
    const isSame = (await limiter.updateSettings({ maxConcurrent: 2 })) === limiter;
    await countsAre(limiter, { EXECUTING: 2, QUEUED: 1 });
    await limiter.updateSettings({ maxConcurrent: null });
    await countsAre(limiter, { EXECUTING: 3, QUEUED: 0 });
    for (const { end } of jobs) end();
    return [isSame, await Promise.all(running)];
  },

  async "stop drops waiting jobs and refuses new ones"(bench) {
    const limiter = bench.limiter({ maxConcurrent: 1, trackDoneStatus: true });
    const first = bench.job("first");
    const running = limiter.schedule(first.run);
    const dropped = outcomeOf(limiter.schedule(bench.quick("second")));
    await countsAre(limiter, { EXECUTING: 1, QUEUED: 1 });
    const stopped = limiter.stop({ dropErrorMessage: "Dropped!", enqueueErrorMessage: "Stopped!" });
    const refused = await outcomeOf(limiter.schedule(bench.quick("third")));
    first.end();
    await Promise.all([running, stopped]);
    const again = await outcomeOf(limiter.stop());
    return {
      dropped: await dropped,
      refused,
      again,
      started: bench.started,
      counts: limiter.counts(),
    };
  },

  async "stop with dropWaitingJobs false lets waiting jobs run"(bench) {
    const limiter = bench.limiter({ maxConcurrent: 1 });
    const first = bench.job("first");
    const jobs = [limiter.schedule(first.run), limiter.schedule(bench.quick("second"))];
    await countsAre(limiter, { EXECUTING: 1, QUEUED: 1 });
    const stopped = limiter.stop({ dropWaitingJobs: false });
    const refused = await outcomeOf(limiter.schedule(bench.quick("third")));
    first.end();
    await stopped;
    return { jobs: await Promise.all(jobs), refused, started: bench.started };
  },

  async "a chained limiter also holds the jobs"(bench) {
    const own = bench.limiter({ maxConcurrent: 3 });
    const common = bench.limiter({ maxConcurrent: 1 });
    const isSame = own.chain(common) === own;
    const jobs = ["a", "b"].map((name) => bench.job(name));
    const running = jobs.map(({ run }, index) => own.schedule({ id: `${index}` }, run));
    await countsAre(own, { EXECUTING: 2 });
    await countsAre(common, { EXECUTING: 1, QUEUED: 1 });
    const status = [own.jobStatus("1"), common.jobStatus("1")];
    for (const { end } of jobs) end();
    await Promise.all(running);
    own.chain(null);
    await own.schedule(bench.quick("free"));
    return {
      isSame,
      status,
      started: bench.started,
      done: [await own.done(), await common.done()],
    };
  },

  async "publish reaches the listeners as text"(bench) {
    const limiter = bench.limiter();
    await limiter.ready();
    const messages: unknown[] = [];
    limiter.on("message", (message) => messages.push(message));
    await limiter.publish(JSON.stringify({ a: 1 }));
    await limiter.publish(5 as unknown as string);
    await waitUntil(() => messages.length === 2, "both messages arrived");
    return messages;
  },

  async "a group creates a limiter for each key"(bench) {
    const group = new bench.Limiter.Group({ maxConcurrent: 1, id: "of-keys" });
    const created: string[] = [];
    group.on("created", (_limiter, key) => created.push(key));
    const isSame = group.key("a") === group.key("a");
    const first = bench.job("first");
    const running = group.key("a").schedule(first.run);
    const other = await group.key("b").schedule(bench.quick("other"));
    group.updateSettings({ maxConcurrent: 2 });
    first.end();
    await running;
    const keys = group.keys();
    const pairs = group
      .limiters()
      .map(({ key, limiter }) => [key, limiter === group.key(key), limiter.id]);
    const deleted = [await group.deleteKey("a"), await group.deleteKey("none")];
    const after = [group.keys(), await group.clusterKeys()];
    await group.disconnect();
    return { created, isSame, other, keys, pairs, deleted, after };
  },

  async "a batcher emits full batches, and the others after maxTime"(bench) {
    const batcher = new bench.Limiter.Batcher({ maxSize: 2, maxTime: 20 });
    const batches: unknown[] = [];
    batcher.on("batch", (batch: unknown) => batches.push(batch));
    await Promise.all(["a", "b", "c"].map((each) => batcher.add(each)));
    return batches;
  },
};

async function withHighWater(bench: Bench, strategy: Bottleneck.Strategy): Promise<unknown> {
  const limiter = bench.limiter({ maxConcurrent: 1, highWater: 2, strategy, penalty: 60_000 });
  const dropped: string[] = [];
  const reached: boolean[] = [];
  limiter.on("dropped", ({ options }) => dropped.push(options.id));
  limiter.on("queued", ({ reachedHWM }) => reached.push(reachedHWM));
  const first = bench.job("first");
  const jobs = [outcomeOf(limiter.schedule({ id: "first" }, first.run))];
  await countsAre(limiter, { EXECUTING: 1 });
  for (const [id, priority] of [
    ["a", 5],
    ["b", 5],
    ["c", 5],
    ["d", 2],
    ["e", 9],
    ["f", 1],
  ] as const) {
    jobs.push(outcomeOf(limiter.schedule({ id, priority }, bench.quick(id))));
  }
  await countsAre(limiter, { RECEIVED: 0 });
  const queued = limiter.queued();
  first.end();
  return { outcomes: await Promise.all(jobs), dropped, reached, queued, started: bench.started };
}
