import { randomUUID } from "node:crypto";
import fc from "fast-check";
import { Redis } from "ioredis";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, inject, it } from "vitest";
import {
  createSluice,
  InvalidOptionError,
  type Bucket,
  type Pool,
  type Queue,
  type QueuedJob,
  type Slot,
  type Sluice,
  type Worker,
} from "sluice";
import { simulate } from "sluice/simulate";
import { hostileText, hostileValue } from "./support/hostile.ts";
import { forAll, SILENT } from "./support/outcomes.ts";

type Method = (...args: unknown[]) => unknown;
type Subject = "sluice" | "bucket" | "pool" | "queue" | "job" | "worker" | "slot";

let redis: Redis;
let sluice: Sluice;
let bucket: Bucket;
let pool: Pool<unknown>;
let queue: Queue<number>;
let job: QueuedJob<number>;
let worker: Worker;
let slot: Slot;
let prefix = "";
beforeAll(() => {
  redis = new Redis(inject("redisUrl"));
});
beforeEach(async () => {
  prefix = `t${randomUUID()}`;
  sluice = createSluice({
    redis: inject("redisUrl"),
    prefix,
    logger: SILENT,
    storeTimeoutMs: 20_000,
  });
  bucket = sluice.bucket("shared", { rate: "100/s", perKey: { rate: "10/s" } });
  pool = sluice.pool("pool", { members: { a: { rate: "100/s" }, b: { rate: "100/s" } } });
  queue = sluice.queue<number>("shared", { bucket });
  const other = sluice.queue<number>("other", { bucket });
  worker = sluice.worker(other, async () => {});
  slot = await bucket.draw({ key: "acme" });
  job = await queue.enqueue(1, { key: "acme", dedupeId: "once" });
  await queue.enqueue(2);
  await queue.enqueue(3, { key: "acme", delayMs: 3_600_000 });
  await queue.enqueue(4, { every: 3_600_000, dedupeId: "hourly" });
});
afterEach(() => sluice.close());
afterAll(() => redis.quit());

/** All that the queue has in Redis, but for what a look may write. */
async function stored(): Promise<unknown[]> {
  const keys = (await redis.keys(`${prefix}:{shared}:*`)).filter((key) => !key.endsWith(":events"));
  return Promise.all(keys.sort().map(async (key) => [key, await redis.dump(key)]));
}

function subjects(): Readonly<Record<Subject, object>> {
  return { sluice, bucket, pool, queue, job, worker, slot };
}

/** All methods, also those of its prototypes; but for internal ones, which TypeScript hides, and constructors. */
function methodsOf(subject: object): string[] {
  const names = new Set<string>();
  for (
    let each = subject;
    each !== Object.prototype;
    each = Object.getPrototypeOf(each) as object
  ) {
    for (const name of Object.getOwnPropertyNames(each)) names.add(name);
  }
  names.delete("constructor");
  return [...names].filter(
    (name) => typeof (subject as Record<string, unknown>)[name] === "function",
  );
}

const listener = (): void => {};
const DUE = { delayMs: 5 };

/**
 * What each method takes before its options, and whether it has some; a method that takes none refuses any. Each public
 * method is here, or the test fails.
 */
const CALLS: Readonly<
  Record<Subject, Readonly<Record<string, { args: unknown[]; options?: object }>>>
> = {
  sluice: {
    use: { args: [], options: { handler: listener } },
    bucket: { args: ["new"], options: { rate: "1/s" } },
    pool: { args: ["new"], options: { members: { a: { rate: "1/s" } } } },
    find: { args: ["new"] },
    findQueue: { args: ["new"] },
    overview: { args: [], options: {} },
    changes: { args: [], options: {} },
    metrics: { args: [], options: {} },
    queue: { args: ["new"], options: {} },
    worker: { args: [undefined, listener], options: {} },
    on: { args: ["store", listener], options: {} },
    off: { args: ["store", listener] },
    close: { args: [] },
  },
  bucket: {
    draw: { args: [], options: {} },
    tryDraw: { args: [], options: {} },
    throttled: { args: [async () => {}], options: {} },
    run: { args: [async () => {}], options: {} },
    configure: { args: [{ rate: "5/s" }], options: {} },
    pause: { args: [], options: { forMs: 1 } },
    resume: { args: [], options: {} },
    undo: { args: [], options: {} },
    peek: { args: [], options: {} },
    status: { args: [] },
    preview: { args: [], options: { rate: "5/s" } },
    history: { args: [], options: {} },
    budgets: { args: [], options: {} },
    grant: { args: [{ usd: 5 }], options: {} },
    restore: { args: [[]], options: {} },
    on: { args: ["slot", listener], options: {} },
    off: { args: ["slot", listener] },
  },
  pool: {
    draw: { args: [], options: {} },
    tryDraw: { args: [], options: {} },
    throttled: { args: [async () => {}], options: {} },
    run: { args: [async () => {}], options: {} },
    member: { args: ["a"] },
    members: { args: [] },
    addMember: { args: ["a", { rate: "100/s" }], options: {} },
    drainMember: { args: ["a"], options: {} },
    undrainMember: { args: ["a"], options: {} },
    removeMember: { args: ["a"], options: {} },
    configure: { args: [{ rate: "5/s" }], options: {} },
    pause: { args: [], options: { forMs: 1 } },
    resume: { args: [], options: {} },
    undo: { args: [], options: {} },
    peek: { args: [], options: {} },
    status: { args: [] },
    budgets: { args: [], options: {} },
    grant: { args: [{ usd: 5 }], options: {} },
    restore: { args: [[]], options: {} },
    history: { args: [], options: {} },
    on: { args: ["slot", listener], options: {} },
    off: { args: ["slot", listener] },
  },
  queue: {
    use: { args: [], options: { handler: listener } },
    enqueue: { args: [1], options: {} },
    enqueueMany: { args: [[1, 2]], options: {} },
    enqueueGroup: { args: [[1, 2]], options: { then: { data: 3 } } },
    group: { args: [{ queue: "shared", id: "1" }] },
    unschedule: { args: ["hourly"] },
    schedules: { args: [] },
    schedule: { args: ["hourly"] },
    counts: { args: [], options: { key: "acme" } },
    pause: { args: [], options: { key: "acme" } },
    resume: { args: [], options: { key: "acme" } },
    paused: { args: [] },
    set: { args: [], options: { maxBacklog: 5 } },
    undo: { args: [], options: { by: "ann" } },
    drain: { args: [], options: { key: "acme" } },
    remove: { args: ["1"] },
    cancel: { args: ["1"] },
    reprioritise: { args: ["1", "high"] },
    removeJobs: { args: [], options: { key: "acme" } },
    rescheduleJobs: { args: [{}], options: DUE },
    failed: { args: [], options: { key: "acme" } },
    failedGroups: { args: [], options: { key: "acme" } },
    replay: { args: [], options: { key: "acme" } },
    purge: { args: [], options: { key: "acme" } },
    job: { args: ["1"] },
    jobOf: { args: ["once"] },
    jobs: { args: [], options: { state: "waiting" } },
    forecast: { args: [] },
    status: { args: [] },
    preview: { args: [], options: { rate: "5/s" } },
    on: { args: ["done", listener], options: {} },
    off: { args: ["done", listener] },
  },
  job: {
    state: { args: [] },
    logs: { args: [] },
    progress: { args: [] },
    eta: { args: [] },
    explain: { args: [] },
    flow: { args: [] },
    update: { args: [5] },
    reschedule: { args: [], options: DUE },
    runNow: { args: [] },
    remove: { args: [] },
    cancel: { args: [] },
    finished: { args: [], options: { timeoutMs: 1 } },
  },
  worker: {
    use: { args: [], options: { handler: listener } },
    drain: { args: [], options: {} },
    close: { args: [], options: { deadlineMs: 1 } },
    on: { args: ["done", listener], options: {} },
    off: { args: ["done", listener] },
    status: { args: [] },
  },
  slot: { settle: { args: [1] }, release: { args: [], options: { outcome: "done" } } },
};
/** For a fetch, options are the web's. The others are internal: no type has them. */
const NOT_MEANT: Readonly<Partial<Record<Subject, readonly string[]>>> = {
  bucket: [
    "fetch",
    "handleWarnings",
    "drawByHand",
    "tryByHand",
    "drawOnJobSlot",
    "drawForJob",
    "checkDrawable",
    "refusalKnown",
    "whenHopeless",
    "report",
    "reportOutcome",
    "coolDown",
    "hold",
    "noteOutage",
    "readOutages",
    "outcomesReported",
    "settleByResult",
    "slotOf",
    "redraw",
    "changed",
    "stepsOf",
    "onChange",
    "inForce",
    "suppose",
    "onClose",
    "takeActivity",
    "expire",
    "members",
    "configureAt",
    "close",
  ],
  pool: ["fetch"],
  queue: ["weightsOf", "close"],
  slot: ["factsFor", "keepEstimate", "noteOutcome", "onLeaseEnding", "settleGiven", "takeOver"],
};

async function errorOf(call: () => unknown): Promise<unknown> {
  try {
    await call();
    return undefined;
  } catch (error) {
    return error;
  }
}

/** How a method is called, by `CALLS`; what has to be of this test is put in. */
function callOf(
  subject: Subject,
  name: string,
): { method: Method; args: unknown[]; options?: object } {
  const of = subjects()[subject] as Record<string, Method>;
  const { args, options } = CALLS[subject][name]!;
  const own = subject === "sluice" && name === "worker" ? [queue, listener] : args;
  const given = subject === "sluice" && name === "queue" ? { bucket } : options;
  return {
    method: (...all) => of[name]!(...all),
    args: [...own],
    ...(given && { options: given }),
  };
}

const all = Object.entries(CALLS).flatMap(([subject, methods]) =>
  Object.keys(methods).map((name) => [subject as Subject, name] as const),
);

describe("every public method", () => {
  it("is tried here", () => {
    for (const [subject, of] of Object.entries(subjects())) {
      const meant = methodsOf(of).filter(
        (name) => NOT_MEANT[subject as Subject]?.includes(name) !== true,
      );
      expect([subject, meant.sort()]).toEqual([
        subject,
        Object.keys(CALLS[subject as Subject]).sort(),
      ]);
    }
  });

  it.each(all)(
    "%s.%s() refuses options that it does not know, and changes nothing",
    async (subject, name) => {
      const { method, args, options } = callOf(subject, name);
      const before = await stored();
      const unknown = fc.tuple(
        hostileText.filter((text) => text.length > 0 && text !== "__proto__"),
        hostileValue,
      );

      await forAll(10, unknown, async ([option, value]) => {
        const isKnown = options !== undefined && option in options;
        if (isKnown) return;
        const extra = { ...options, [`no${option}`]: value };
        const error = await errorOf(() => method(...args, extra));
        expect(error).toBeInstanceOf(InvalidOptionError);
      });
      if (options !== undefined) {
        const beyond = await errorOf(() => method(...args, options, { forMs: 1 }));
        expect(beyond).toMatchObject({ code: "ERR_INVALID_OPTION", option: "forMs" });
        const error = await errorOf(() => method(...args, { ...options, bogus: 1 }));
        expect(error).toMatchObject({ code: "ERR_INVALID_OPTION", option: "bogus" });
      }
      for (const wrong of ["acme", 5, true, [1]]) {
        if (options === undefined && args.length > 0) break;
        const error = await errorOf(() => method(...args, wrong));
        // A job's id and a filter take the same place.
        const isId = typeof wrong === "string" && ["replay", "purge"].includes(name);
        if (!isId) expect(error).toBeInstanceOf(InvalidOptionError);
      }

      expect(await stored()).toEqual(before);
    },
  );

  it("lets callers add what they always add", async () => {
    const { job: look } = queue as unknown as Record<string, Method>;
    const { close } = sluice as unknown as Record<string, Method>;
    const [found] = await Promise.all([job.id].map((...all) => look!(...all)));

    expect(found).toMatchObject({ id: job.id });
    expect(await errorOf(() => close!("SIGTERM", 15))).toBe(undefined);
  });
});

describe("simulate()", () => {
  const GENERATED = { ratePerSecond: 10, durationMs: 100 };
  const OPTIONS = { policy: { rate: "10/s" }, arrivals: GENERATED };

  it.each<[what: string, withUnknown: (unknown: object) => object]>([
    ["its options", (unknown) => ({ ...OPTIONS, ...unknown })],
    ["the policy", (unknown) => ({ ...OPTIONS, policy: { rate: "10/s", ...unknown } })],
    ["described arrivals", (unknown) => ({ ...OPTIONS, arrivals: { ...GENERATED, ...unknown } })],
    [
      "a list of described arrivals",
      (unknown) => ({ ...OPTIONS, arrivals: [GENERATED, { ...GENERATED, ...unknown }] }),
    ],
    ["an arrival", (unknown) => ({ ...OPTIONS, arrivals: [{ atMs: 0 }, { atMs: 1, ...unknown }] })],
    ["the downstream", (unknown) => ({ ...OPTIONS, downstream: { latencyMs: 1, ...unknown } })],
    [
      "a latency",
      (unknown) => ({ ...OPTIONS, downstream: { latencyMs: { p50: 1, p99: 2, ...unknown } } }),
    ],
    [
      "a change of the downstream",
      (unknown) => ({
        ...OPTIONS,
        downstream: { limit: "5/s", changes: [{ atMs: 5, limit: "1/s", ...unknown }] },
      }),
    ],
  ])("refuses what it does not know in %s", async (_what, withUnknown) => {
    const unknown = fc.tuple(
      hostileText.filter((text) => text.length > 0 && text !== "__proto__"),
      hostileValue,
    );

    await forAll(10, unknown, async ([option, value]) => {
      const error = await errorOf(() => simulate(withUnknown({ [`no${option}`]: value }) as never));
      expect(error).toBeInstanceOf(InvalidOptionError);
    });
  });

  it("accepts what bucket.history() returned, with the fields that it does not use", () => {
    const points = [{ atMs: 0, started: 100, refused: 1, waiting: { normal: 2 } }];

    const { calls } = simulate({ policy: { rate: "10/s" }, history: { stepMs: 10_000, points } });

    expect(calls).toBeGreaterThan(0);
  });
});
