/**
 * What src/queue/bullmq/ relies on and BullMQ does not promise, and the faults that it mends, each shown on BullMQ
 * itself. A test that fails after an upgrade names the comment to read again, and perhaps the patch to drop.
 */
import {
  createRedisBackend,
  Job,
  Queue,
  raw2NextJobData,
  Worker,
  type WorkerOptions,
} from "bullmq";
import { Redis } from "ioredis";
import { afterEach, beforeEach, describe, expect, inject, it } from "vitest";
import {
  isOnItsWay,
  PARK_MS,
  setBackoff,
  type Stored,
  type StoredOptions,
} from "../../../src/queue/bullmq/stored-job.ts";
import { createStoredWorker, type Fetched } from "../../../src/queue/bullmq/stored-worker.ts";
import { createRedisLanes } from "../../../src/stores/redis/queue/store.ts";
import { deferred } from "../../support/async/deferred.ts";
import { ownClock } from "../../support/jobs/own-clock.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

type Processor = (job: Job<number>) => Promise<unknown>;
type Backends = typeof createRedisBackend;
/** What the types of BullMQ's worker do not tell. */
interface Processing {
  processJob(job: unknown, token: string, fetchNext: () => boolean): Promise<unknown>;
}

const sluices = realSluices();
const NAME = "{jobs}";
const AN_HOUR_MS = 3_600_000;
let redis: Redis;
let queue: Queue<number>;
let base: string;
let endings: (() => Promise<unknown>)[];

beforeEach(() => {
  redis = new Redis(inject("redisUrl"), { maxRetriesPerRequest: null });
  queue = new Queue<number>(NAME, { prefix: sluices.prefix(), connection: redis });
  base = `${sluices.prefix()}:${NAME}:`;
  endings = [() => redis.quit(), () => queue.close()];
});

afterEach(async () => {
  for (const end of endings.toReversed()) await end();
});

/** A worker of BullMQ's own; its errors are counted, and end no test. */
function work(
  processor: Processor,
  options: Partial<WorkerOptions> = {},
  backends: Backends = createRedisBackend,
) {
  const seen = { errors: 0, failed: [] as Job<number>[] };
  const given = { prefix: sluices.prefix(), connection: redis, ...options };
  const worker = new Worker<number>(NAME, processor, given, backends);
  worker.on("error", () => void (seen.errors += 1));
  worker.on("failed", (job) => void seen.failed.push(job!));
  endings.push(() => worker.close(true));
  return Object.assign(seen, { worker });
}

function make<Made>(create: () => Made): Made {
  return create();
}

/** Sluice's own worker, which gets its jobs from `next`. */
function workOurs(next: () => Promise<Fetched>, processor: () => Promise<void> = async () => {}) {
  const settings = {
    queue: "jobs",
    connection: {
      client: redis,
      clockOf: () => ownClock,
      adoptCopies: make,
      wakeIdle: async () => {},
    },
    prefix: sluices.prefix(),
    concurrency: 5,
    lockMs: AN_HOUR_MS,
    mayStall: () => false,
    onStored: async () => {},
    onEnded: () => {},
    onRecovered: async () => {},
    logger: { warn: () => {}, error: () => {} },
  };
  const fetcher = {
    next,
    look: () => {},
    untilReady: () => new Promise<void>(() => {}),
    isClosed: false,
    release: () => {},
  };
  const worker = createStoredWorker<number, void>(settings as never, fetcher, processor);
  endings.push(() => worker.close(true));
  return worker;
}

/** The next job of the queue, as lanes give it. */
async function takeNext(): Promise<Fetched> {
  const nothing = { mostExpired: 0, probes: [], woken: [], ended: [] };
  const lock = { token: `${performance.now()}:`, lockMs: AN_HOUR_MS };
  const lanes = createRedisLanes(redis, sluices.prefix());
  const { jobs } = await lanes.take({ queue: "jobs", most: 1, ...lock, ...nothing });
  return jobs[0]
    ? { job: { ...jobs[0], takenAtMs: performance.now() } }
    : { job: undefined, nextMs: AN_HOUR_MS };
}

/** Fetches a job by hand, whose worker then has died: its lock has ended, and that is found. */
async function loseWorkerOf(id: string): Promise<void> {
  const { worker } = work(async () => {}, {
    autorun: false,
    maxStalledCount: 0,
    stalledInterval: 1,
  });
  await worker.getNextJob("token");
  for (let look = 0; look < 2; look += 1) {
    await redis.del(`${base}${id}:lock`, `${base}stalled-check`);
    await worker.getBackend().moveStalledJobsToWait();
  }
}

describe("how BullMQ's worker fetches", () => {
  it("asks again without a pause when Redis refuses it a job, and ours does not", async () => {
    // A script that finds a string where the list should be is refused by Redis.
    await redis.set(`${base}wait`, "no list");
    const hasty = work(async () => {});
    await waitUntil(() => hasty.errors > 50, "it has asked again and again");
    await hasty.worker.close(true);

    const askedAtMs: number[] = [];
    workOurs(() => {
      askedAtMs.push(performance.now());
      return takeNext();
    });
    await waitUntil(() => askedAtMs.length > 1, "it has asked twice");

    expect(askedAtMs[1]! - askedAtMs[0]!).toBeGreaterThan(950);
  });

  it("takes all that it has places for before it starts one", async () => {
    await queue.addBulk(Array.from({ length: 10 }, (_, data) => ({ name: "job", data })));
    let fetches = 0;
    const counted: Backends = (...settings) => {
      const backend = createRedisBackend(...settings);
      const fetch = backend.moveToActive.bind(backend);
      backend.moveToActive = (...asked) => {
        fetches += 1;
        return fetch(...asked);
      };
      return backend;
    };

    const before = await new Promise<number>((resolve) => {
      work(async () => resolve(fetches), { concurrency: 5 }, counted);
    });

    expect(before).toBe(5);
  });

  it("starts one before it takes another, where it is ours", async () => {
    await queue.addBulk(Array.from({ length: 10 }, (_, data) => ({ name: "job", data })));
    let fetches = 0;
    const next = (): Promise<Fetched> => {
      fetches += 1;
      return takeNext();
    };

    const before = await new Promise<number>((resolve) => {
      workOurs(next, async () => resolve(fetches));
    });

    expect(before).toBe(1);
  });

  it("reads a job's hash into what its own fetch returns", async () => {
    const opts = { priority: 3, attempts: 2, delay: 0 };
    const { id } = await queue.add("key k", 7, opts);
    const fields = await redis.call("HGETALL", `${base}${id}`);

    const [json] = raw2NextJobData([fields, id, 0, 0]) as [never];

    const read = Job.fromJSON(queue, json, id);
    expect(read.asJSON()).toEqual((await queue.getJob(id!))!.asJSON());
    expect(read.opts).toMatchObject(opts);
  });

  it("waits for 15 s after a lost connection, unless it is set otherwise", () => {
    const { worker } = work(async () => {}, { autorun: false });

    expect(worker.opts.runRetryDelay).toBe(15_000);
  });
});

describe("what BullMQ does at the end of an attempt", () => {
  it("reads attempts and backoff of the current job, and notifies only its own process", async () => {
    const { id } = await queue.add("job", 1);
    const { failed } = work(async (job) => {
      job.opts.attempts = 2;
      setBackoff(job as Stored<unknown>, AN_HOUR_MS);
      throw new Error("not yet");
    });
    await waitUntil(() => failed.length > 0, "the attempt has failed");

    const events = (await redis.xrange(`${base}events`, "-", "+")).map(([, fields]) => fields);
    expect(failed[0]!.finishedOn).toBeUndefined();
    expect(await queue.getJobState(id!)).toBe("delayed");
    expect(events.flat()).not.toContain("not yet");
  });

  it("keeps no more of a done job than its hash and its log", async () => {
    const { id } = await queue.add("job", 1);
    work(async (job) => {
      await job.log("a line");
      await job.updateProgress(50);
    });
    await waitUntil(async () => (await queue.getCompletedCount()) === 1, "the job is done");

    const keys = await redis.keys(`${base}${id}*`);
    expect(keys.toSorted()).toEqual([`${base}${id}`, `${base}${id}:logs`]);
  });

  it("keeps the count of a job's dead workers when the job is retried", async () => {
    const { id } = await queue.add("job", 1);
    const { failed } = work(() => Promise.reject(new Error("no")));
    await waitUntil(() => failed.length > 0, "the job has failed");
    await redis.hset(`${base}${id}`, "stc", 3);
    await queue.pause();

    const job = (await queue.getJob(id!))!;
    await job.retry("failed", { resetAttemptsMade: true, resetAttemptsStarted: true });

    expect(job.stalledCounter).toBe(3);
    expect(await redis.hget(`${base}${id}`, "stc")).toBe("3");
  });
});

describe("what BullMQ's worker makes of the end of a job, after which it fetches none", () => {
  const ends: [string, () => Promise<void>][] = [
    ["was done", async () => {}],
    ["has failed", () => Promise.reject(new Error("no"))],
  ];
  const retried = { attempts: 2, backoff: { type: "fixed", delay: AN_HOUR_MS } };

  it("gets an empty reply", async () => {
    await queue.add("job", 1);
    const { worker } = work(async () => {}, { autorun: false });
    const job = (await worker.getNextJob("token"))!;

    expect(await job.moveToCompleted("done", "token", false)).toEqual([]);
  });

  it.each(ends)("believes that its queue is empty, once one %s", async (_how, processor) => {
    await queue.addBulk([1, 2].map((data) => ({ name: "job", data })));
    const { worker } = work(processor, { autorun: false });
    let drained = 0;
    worker.on("drained", () => void (drained += 1));
    const job = (await worker.getNextJob("token"))!;

    await (worker as unknown as Processing).processJob(job, "token", () => false);

    expect(drained).toBe(1);
    expect(await queue.getWaitingCount()).toBe(1);
  });

  it.each([
    ...ends.map(([how, processor]) => [how, processor, {}] as const),
    ["is to be retried later", ends[1]![1], retried] as const,
  ])("asks for the next at once where it is ours, once one %s", async (_how, processor, opts) => {
    await queue.addBulk([1, 2].map((data) => ({ name: "job", data, opts })));
    const ended = deferred();
    let drained = 0;
    let asked = 0;
    const worker = workOurs(async () => {
      asked += 1;
      if (asked === 1) return takeNext();
      await ended.promise;
      return takeNext();
    }, processor);
    worker.on("drained", () => void (drained += 1));
    await waitUntil(async () => {
      const { completed, failed, delayed } = await queue.getJobCounts();
      return completed! + failed! + delayed! === 1;
    }, "the first has ended");

    const whileOneWaits = { drained, waiting: await queue.getWaitingCount() };
    ended.resolve();
    // Until then the worker sends commands, which the connection must not be closed under.
    await waitUntil(() => drained === 1, "the other has ended, and the worker found no more");

    expect(await queue.getWaitingCount()).toBe(0);
    expect(whileOneWaits).toEqual({ drained: 0, waiting: 1 });
  });
});

describe("what BullMQ does with a job whose worker has died", () => {
  it("counts the death and each fetch, also where the job had not begun", async () => {
    const { id } = await queue.add("job", 1);

    await loseWorkerOf(id!);

    expect(await redis.hmget(`${base}${id}`, "stc", "ats")).toEqual(["1", "1"]);
    expect(await redis.hget(`${base}${id}`, "defa")).toContain("stalled");
  });

  it("lets a run of a schedule go on without end", async () => {
    const run = await queue.upsertJobScheduler(
      "sync",
      { every: AN_HOUR_MS },
      { name: "job", data: 1 },
    );

    await loseWorkerOf(run!.id!);

    expect(await redis.hget(`${base}${run!.id}`, "stc")).toBe("1");
    expect(await redis.hget(`${base}${run!.id}`, "defa")).toBeNull();
  });
});

describe("how BullMQ stores", () => {
  it("a delayed job: its delay as a field, and its time with 12 bits to order by", async () => {
    const parked = await queue.add("key k", 1, { delay: PARK_MS });
    const later = await queue.add("key k", 1, { delay: AN_HOUR_MS });

    const score = Number(await redis.zscore(`${base}delayed`, parked.id!));
    expect(Math.floor(score / 4_096)).toBe(parked.timestamp + PARK_MS);
    expect(await isOnItsWay(queue, parked as Stored<unknown>)).toBe(true);
    expect(await isOnItsWay(queue, later as Stored<unknown>)).toBe(false);
  });

  it("options that it does not know, as they are", async () => {
    const opts: StoredOptions = { sluice: { maxWaitMs: 5 } };
    const { id } = await queue.add("job", 1, opts);

    const stored = JSON.parse((await redis.hget(`${base}${id}`, "opts"))!) as unknown;
    expect(stored).toMatchObject(opts);
    expect((await queue.getJob(id!))!.opts).toMatchObject(opts);
  });

  it("which job holds a dedupeId, and which have failed", async () => {
    const { id } = await queue.add("job", 1, { deduplication: { id: "once" } });
    const holder = await redis.get(`${base}de:once`);
    const { failed } = work(() => Promise.reject(new Error("no")));
    await waitUntil(() => failed.length > 0, "the job has failed");

    expect(holder).toBe(id);
    expect(await redis.zrange(`${base}failed`, 0, -1)).toEqual([id]);
  });
});

describe("how BullMQ plans", () => {
  it("a run's successor as the run is fetched, which ours is kept from: `rjk` names the schedule", async () => {
    await queue.upsertJobScheduler("sync", { every: AN_HOUR_MS }, { name: "job", data: 1 });
    const { next } = (await queue.getJobScheduler("sync"))!;

    let runs = 0;
    work(async () => void (runs += 1));
    await waitUntil(() => runs > 0, "it runs");

    expect(await redis.hget(`${base}repeat:sync:${next}`, "rjk")).toBe("sync");
    expect(await redis.exists(`${base}repeat:sync:${next! + AN_HOUR_MS}`)).toBe(1);
  });

  it("removes a run that is due when its schedule is declared anew", async () => {
    const template = { name: "job", data: 1 };
    const run = await queue.upsertJobScheduler("sync", { pattern: "* * * * * *" }, template);
    const { next } = (await queue.getJobScheduler("sync"))!;
    await waitUntil(() => Date.now() > next!, "the run is due");

    await queue.upsertJobScheduler("sync", { pattern: "0 0 1 1 *" }, template);

    expect(run!.id).toBe(`repeat:sync:${next}`);
    expect(await queue.getJob(run!.id!)).toBeUndefined();
  });
});

describe("a queue of BullMQ's that could not ask what server it is on", () => {
  it("is of no use from then on", async () => {
    const connection = redis.duplicate();
    await connection.ping();
    const info = connection.info.bind(connection);
    connection.info = () => Promise.reject(new Error("NOPERM"));
    const refused = new Queue(NAME, { prefix: sluices.prefix(), connection });
    refused.on("error", () => {});
    endings.push(
      () => connection.quit(),
      () => refused.close().catch(() => undefined),
    );
    await expect(refused.waitUntilReady()).rejects.toThrow("NOPERM");

    connection.info = info;

    await expect(refused.add("job", 1)).rejects.toThrow("NOPERM");
  });
});
