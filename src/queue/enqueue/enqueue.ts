import type { Cost } from "../../throttle/costs.ts";
import { reasonOf } from "../../core/describe.ts";
import { InvalidOptionError } from "../../core/errors.ts";
import { costOfJob } from "../../throttle/wrap/call-defaults.ts";
import { decodeKey } from "../../core/key-path.ts";
import { likelyOptions } from "../../core/input/options.ts";
import {
  ENQUEUE_OPTION_NAMES,
  isDebounced,
  isRecurring,
  readEnqueueOptions,
  type EnqueueOptions,
  type JobOptionsRead,
  type LaneOrder,
  type OrderedJobOptions,
} from "../options.ts";
import type { StoredRowsPage } from "../../stores/redis/queue/store.ts";
import { mapInTurns } from "../job.ts";
import { createCallOrder, type Turn } from "./call-order.ts";
import { assertSize, checkCopy, copyOf, takeData, type DataRules, type TakenData } from "./data.ts";
import type { QueuedJob } from "./job-handle.ts";
import { enqueueThrough, type EnqueueMiddleware, type JobToEnqueue } from "./middleware.ts";
import { assertInGroup, type JobToLink } from "./parents.ts";
import { createStoring, type JobToStore, type StoringParts } from "./storing.ts";

/** Returns the options of one job, from its data and its index. */
export type EnqueueOptionsOf<Input> = (data: Input, index: number) => EnqueueOptions;

/** Stores jobs in the queue. Each round trip to Redis may take `storeTimeoutMs`. */
export interface Enqueuing<Data, Result, Input> {
  /**
   * Stores a job. Resolves when Redis has stored it. If another job already has the same `id` or `dedupeId`, the
   * returned job is that other job, with `isNew: false`. For a recurring job, the returned job is the next run.
   *
   * @throws {@link InvalidOptionError} when an option can never work, or the data is not JSON, is too large, or is
   * rejected by the schema.
   * @throws {@link CostTooLargeError} when the cost is more than the bucket can ever allow at once.
   * @throws {@link StoreUnavailableError} when Redis did not confirm the job within `storeTimeoutMs`; `mayBeStored`
   * says whether Redis may have stored it.
   * @throws {@link ClosedError} when the sluice is closed.
   */
  enqueue(data: Input, options?: EnqueueOptions): Promise<QueuedJob<Data, Result>>;
  /**
   * Stores many jobs, a thousand per round trip. Each round trip may take `storeTimeoutMs`. `options` apply to all
   * jobs, or are a function that returns the options for each job's data. All jobs are checked before the first one is
   * stored. Rejects as `enqueue` does. The `storedCount` of a StoreUnavailableError says how many jobs are certainly
   * stored.
   */
  enqueueMany(
    data: readonly Input[],
    options?: EnqueueOptions | EnqueueOptionsOf<Input>,
  ): Promise<QueuedJob<Data, Result>[]>;
}

/**
 * Returns how jobs belong to a group: they are its open final job, or have this final job. Called once all jobs are
 * checked, just before they are stored.
 */
type Link = () => Promise<Omit<JobToLink, "options">>;

/** Stores jobs as `enqueue` and `enqueueMany` do, also jobs of a group. `where` names the call in errors. */
export interface LinkedEnqueuing<Data, Result, Input> {
  one(
    where: string,
    data: Input,
    options: EnqueueOptions | undefined,
    link?: Link,
  ): Promise<QueuedJob<Data, Result>>;
  many(
    where: string,
    data: readonly Input[],
    options: EnqueueOptions | EnqueueOptionsOf<Input> | undefined,
    link?: Link,
  ): Promise<QueuedJob<Data, Result>[]>;
}

/** One job of `enqueueMany`. The data is already checked, or is a function that checks and returns it. */
interface Taken<Data> {
  readonly data: TakenData<Data> | (() => TakenData<Data> | Promise<TakenData<Data>>);
  readonly options: OrderedJobOptions;
}

/** A job that an outbox has stored as a row of a database. */
interface OutboxRow {
  readonly id: string;
  /** The job's data, as JSON. */
  readonly json: string;
  readonly options: unknown;
}

/** The access of an outbox to the queue. */
export interface OutboxRows {
  /**
   * Checks a job without Redis. Returns the data and options to write into a row. Rejects as `enqueue` does, but does
   * not check whether the bucket can ever allow the cost.
   */
  take(
    where: string,
    data: unknown,
    options: unknown,
  ): Promise<{ readonly json: string; readonly options: EnqueueOptions }>;
  /** Checks the job of a row as `enqueue` does. Its JSON stays as it is. */
  check(row: OutboxRow): Promise<JobToStore<unknown>>;
  /** Stores checked jobs in order, each row only once. Redis stores nothing after `untilMs`, on its own clock. */
  store(
    jobs: readonly JobToStore<unknown>[],
    outbox: { readonly id: string; readonly untilMs: number },
  ): Promise<void>;
  /** A lower bound of the time of Redis, in ms since 1970. */
  nowMs(): Promise<number>;
  /** Lists rows that were stored before `beforeMs`, the oldest first. */
  stored(page: StoredRowsPage): Promise<readonly string[]>;
  /** Forgets that rows of an outbox were stored. */
  forget(outbox: string, rows: readonly string[]): Promise<void>;
}

const outboxRows = new WeakMap<object, OutboxRows>();

/** Registers the access for an outbox, so that `outboxRowsOf` can return it. */
export function keepOutboxRows(queue: object, rows: OutboxRows): void {
  outboxRows.set(queue, rows);
}

/** Returns the access of an outbox to this queue. Undefined if the value is not a queue. */
export function outboxRowsOf(queue: unknown): OutboxRows | undefined {
  return typeof queue === "object" && queue !== null ? outboxRows.get(queue) : undefined;
}

export interface EnqueuingParts<Data, Result, Input> extends DataRules<Data>, StoringParts {
  /**
   * Returns what happens to a job's key after a dead letter, or undefined if the key is not ordered. Rejects a job
   * without a key if all keys are ordered.
   */
  readonly orderOf: (where: string, key: string | undefined) => LaneOrder | undefined;
  /** Rejects a job if only other processes can compute its cost. */
  readonly checkCost: ((where: string, cost: Cost | undefined) => void) | undefined;
  /** Rejects a job if only other processes have the codecs of the queue. */
  readonly checkCodec: ((where: string) => void) | undefined;
  /** The most bytes of a job's data as Redis stores it. */
  readonly mostStoredBytes: number;
  /** Returns the functions that run around each call, the outermost first. */
  readonly middleware: () => readonly EnqueueMiddleware<Data, Result, Input>[];
}

export function createEnqueuing<Data, Result, Input>(
  parts: EnqueuingParts<Data, Result, Input>,
): {
  readonly enqueuing: Enqueuing<Data, Result, Input>;
  readonly linked: LinkedEnqueuing<Data, Result, Input>;
  readonly rows: OutboxRows;
  /** Checks the new data of a stored job, and returns the JSON to store. */
  readonly jsonOf: (where: string, data: Input) => Promise<string>;
} {
  const { name: queue, bucket, connection, weightsOf, orderOf, checkCost, checkCodec } = parts;
  const { payloads } = parts;
  const { access } = parts.jobs;
  const storing = createStoring<Data, Result>(parts);
  const takeTurn = createCallOrder();

  function readOptions(where: string, given: unknown): OrderedJobOptions {
    const options = readEnqueueOptions(where, given);
    weightsOf(options.key);
    checkCodec?.(where);
    checkCost?.(where, options.cost);
    const ordered = orderOf(where, options.key);
    return ordered === undefined ? options : { ...options, ordered };
  }

  /**
   * Rejects a job that can never start. The producer gets this error now, instead of a worker when the job's turn
   * comes.
   */
  function checkDrawable(where: string, { key, cost }: JobOptionsRead): Promise<void> | undefined {
    return bucket.checkDrawable(where, { key, cost });
  }

  /** True if a job has no cost in its options, and the bucket computes the cost from the job's data. */
  function lacksCost({ cost }: JobOptionsRead): boolean {
    return cost === undefined && bucket.calls?.cost !== undefined;
  }

  async function withCost(
    where: string,
    data: Data,
    options: OrderedJobOptions,
  ): Promise<OrderedJobOptions> {
    try {
      const cost = await costOfJob(bucket.calls!, where, { data, key: options.key });
      return cost === undefined ? options : { ...options, cost };
    } catch (cause) {
      if (cause instanceof InvalidOptionError) throw cause;
      const remedy = `the bucket's cost function failed for the data of the job (${reasonOf(cause)}); give the job a cost, or mend that function`;
      throw new InvalidOptionError({ where, option: "cost", value: undefined, remedy, cause });
    }
  }

  function readForMany(
    where: string,
    options: EnqueueOptions | EnqueueOptionsOf<Input> | undefined,
    read: (where: string, given: unknown) => OrderedJobOptions = readOptions,
  ): (data: Input, index: number) => OrderedJobOptions {
    if (typeof options !== "function") {
      const forAll = read(where, options);
      assertForMany(where, forAll, true);
      return () => forAll;
    }
    return (data, index) => {
      const one = oneOf(where, index);
      const own = read(one, options(data, index));
      assertForMany(one, own, false);
      return own;
    };
  }

  /**
   * Checks the data of one job. Async, so that it rejects instead of throwing: the caller awaits another promise at the
   * same time.
   */
  async function takeOne(where: string, data: Input): Promise<TakenData<Data>> {
    return takeData(where, data, parts);
  }

  /**
   * Reads the data of all jobs as it is now. An asynchronous schema checks copies of the data later, one after another.
   */
  function takeMany(
    where: string,
    data: readonly Input[],
    optionsOf: (data: Input, index: number) => OrderedJobOptions,
  ): Taken<Data>[] {
    let isLate = false;
    return [...data].map((each, index) => {
      const one = oneOf(where, index);
      const copy = isLate ? copyOf(one, each) : undefined;
      const taken = isLate ? () => checkCopy(one, copy, parts) : takeData(one, each, parts);
      const options = optionsOf(each, index);
      if (!(taken instanceof Promise)) return { data: taken, options };
      isLate = true;
      // Prevents an unhandled rejection: another job may be rejected before this promise is awaited.
      taken.catch(() => undefined);
      return { data: () => taken, options };
    });
  }

  /**
   * Encodes the data of a job with the codecs of the queue. Returns the same job if nothing is encoded.
   *
   * @throws {@link CodecError} when a codec fails.
   */
  function encodeData(
    where: string,
    job: JobToStore<Data>,
  ): JobToStore<Data> | Promise<JobToStore<Data>> {
    const { id, at } = job.options;
    const delayMs = isDebounced(job.options) ? job.options.dedupe.waitMs : job.options.delayMs;
    const dueInMs = Math.max(0, delayMs ?? (at === undefined ? 0 : Number(at) - Date.now()));
    const isShared = isRecurring(job.options);
    const encoding = payloads.encode(job.json, { kind: "data", id, dueInMs, isShared });
    return (
      encoding?.then((envelope) => {
        const json = envelope === undefined ? job.json : JSON.stringify(envelope);
        assertSize(where, { json, maxJobBytes: parts.mostStoredBytes, given: job.value });
        return { ...job, json };
      }) ?? job
    );
  }

  const rows: OutboxRows = {
    async take(where, data, given) {
      const { delayMs, key: encoded, ordered: _ordered, ...options } = readOptions(where, given);
      assertOnce(where, options, RECURRING_ROW);
      const taken = await takeOne(where, data as Input);
      const { json } = await encodeData(where, { ...taken, options: { ...options, delayMs } });
      // The delay begins now, and not when the row is moved to Redis. With parents, it begins once these have ended.
      const hasParents = options.after !== undefined;
      const due = delayMs && !hasParents ? { at: Date.now() + delayMs } : { delayMs };
      const key = encoded === undefined ? undefined : decodeKey(encoded);
      return { json, options: { ...options, ...due, key } as EnqueueOptions };
    },
    async check({ id, json, options: given }) {
      const where = "the outbox";
      let options = readOptions(where, given);
      assertOnce(where, options, RECURRING_ROW);
      const stored: unknown = JSON.parse(json);
      const data = await payloads.decode(stored, { kind: "data", id });
      const { value } = await takeData<Data>(where, data, parts);
      if (lacksCost(options)) options = await withCost(where, value, options);
      await checkDrawable(where, options);
      const plain = data === stored ? json : JSON.stringify(data);
      return { json: plain, value, options: { ...options, id: options.id ?? id }, row: id };
    },
    async store(jobs, outbox) {
      const encode = (job: JobToStore<Data>) => encodeData("the outbox", job);
      await storing.storeMany(await mapInTurns(jobs as readonly JobToStore<Data>[], encode), {
        outbox,
      });
    },
    async nowMs() {
      await access.open();
      await access.clock.ready();
      return access.clock.earliestMs();
    },
    stored: (page) => access.ask(() => connection.rowsStored({ queue, ...page })),
    forget: (outbox, ids) => access.ask(() => connection.forgetRows({ queue, outbox, rows: ids })),
  };

  /** Runs a call in its turn among the calls with the same ordered keys. Call this before the first `await`. */
  async function inTurn<Stored>(
    options: readonly OrderedJobOptions[],
    run: (turn: Turn | undefined) => Promise<Stored>,
  ): Promise<Stored> {
    // A job with parents joins its lane later. The final job of a group is stored during the turn of the group's jobs.
    const keys = new Set(
      options.flatMap(({ ordered, after, key }) =>
        ordered === undefined || after !== undefined ? [] : [key!],
      ),
    );
    if (keys.size === 0) return run(undefined);
    const turn = takeTurn([...keys]);
    try {
      return await run(turn);
    } finally {
      turn.end();
    }
  }

  // Reads the data and options before the first `await`, because the caller may reuse these objects.
  async function enqueueOne(
    where: string,
    data: Input,
    options: EnqueueOptions | undefined,
    link?: Link,
  ): Promise<QueuedJob<Data, Result>> {
    let read = readOptions(where, options);
    // A middleware may have changed the options.
    if (link !== undefined) assertInGroup(where, read);
    return inTurn([read], async (turn) => {
      const checking = checkDrawable(where, read);
      const [taken] = await Promise.all([takeOne(where, data), checking]);
      if (lacksCost(read)) {
        read = await withCost(where, taken.value, read);
        await checkDrawable(where, read);
      }
      const encoding = encodeData(where, { ...taken, options: read });
      const entry = encoding instanceof Promise ? await encoding : encoding;
      const [job] = await storing.store([{ ...entry, ...(await link?.()) }], { turn });
      return job!;
    });
  }

  async function enqueueAll(
    where: string,
    data: readonly Input[],
    options: EnqueueOptions | EnqueueOptionsOf<Input> | undefined,
    link?: Link,
  ): Promise<QueuedJob<Data, Result>[]> {
    const all = takeMany(where, data, readForMany(where, options));
    return inTurn(
      all.map((taken) => taken.options),
      async (turn) => {
        const entries = await checkAll(where, all, link !== undefined);
        const encode = (entry: JobToStore<Data>, index: number) =>
          encodeData(oneOf(where, index), entry);
        const encoded = await mapInTurns(entries, encode);
        if (link === undefined) return storing.storeMany(encoded, { turn });
        const ofGroup = await link();
        return storing.storeMany(
          encoded.map((entry) => ({ ...entry, ...ofGroup })),
          { turn },
        );
      },
    );
  }

  async function checkAll(
    where: string,
    all: readonly Taken<Data>[],
    isInGroup: boolean,
  ): Promise<JobToStore<Data>[]> {
    const entries: JobToStore<Data>[] = [];
    let checked: OrderedJobOptions | undefined;
    for (const [index, taken] of all.entries()) {
      if (isInGroup) assertInGroup(oneOf(where, index), taken.options);
      const reading = typeof taken.data === "function" ? taken.data() : taken.data;
      // Avoids an `await` where there is no promise, which is the usual case.
      const read = reading instanceof Promise ? await reading : reading;
      const own = lacksCost(taken.options)
        ? await withCost(oneOf(where, index), read.value, taken.options)
        : taken.options;
      const checking = own === checked ? undefined : checkDrawable(where, own);
      if (checking !== undefined) await checking;
      checked = own;
      entries.push({ ...read, options: own });
    }
    return entries;
  }

  /** Stores the jobs that a middleware may have changed. */
  async function enqueueChanged(
    where: string,
    jobs: readonly JobToEnqueue<Input>[],
    link?: Link,
  ): Promise<QueuedJob<Data, Result>[]> {
    const changed = `${where}, after its middleware`;
    if (jobs.length === 1)
      return [await enqueueOne(changed, jobs[0]!.data, jobs[0]!.options, link)];
    const data = jobs.map((job) => job.data);
    return enqueueAll(changed, data, (_data, index) => jobs[index]!.options, link);
  }

  const linked: LinkedEnqueuing<Data, Result, Input> = {
    async one(where, data, options, link) {
      const middleware = parts.middleware();
      if (middleware.length === 0) return enqueueOne(where, data, options, link);
      // The rules of the queue are checked after the middleware, which may set the key.
      readEnqueueOptions(where, options);
      const jobs = [jobToEnqueue(where, data, options)];
      const store = (changed: readonly JobToEnqueue<Input>[]) =>
        enqueueChanged(where, changed, link);
      const [job] = await enqueueThrough(middleware, parts.name, jobs, store);
      return job!;
    },
    async many(where, data, options, link) {
      if (!Array.isArray(data)) {
        const remedy = "give an array with the data of each job";
        throw new InvalidOptionError({ where, option: "data", value: data, remedy });
      }
      const middleware = parts.middleware();
      if (middleware.length === 0) return enqueueAll(where, data, options, link);
      const optionsOf = typeof options === "function" ? options : () => options;
      const jobs = (data as readonly Input[]).map((each, index) =>
        jobToEnqueue(oneOf(where, index), each, optionsOf(each, index)),
      );
      // Refuses options that can never work before the middleware runs.
      const check = readForMany(
        where,
        typeof options === "function" ? (_data, index) => jobs[index]!.options : options,
        readEnqueueOptions,
      );
      for (const [index, job] of jobs.entries()) check(job.data, index);
      const store = (changed: readonly JobToEnqueue<Input>[]) =>
        enqueueChanged(where, changed, link);
      return [...(await enqueueThrough(middleware, parts.name, jobs, store))];
    },
  };
  const enqueuing: Enqueuing<Data, Result, Input> = {
    async enqueue(data, options) {
      const where = "enqueue()";
      if (typeof data === "string") refuseNameAndData(where, options);
      return linked.one(where, data, options);
    },
    enqueueMany: async (data, options) => linked.many("enqueueMany()", data, options),
  };
  async function jsonOf(where: string, data: Input): Promise<string> {
    checkCodec?.(where);
    const taken = await takeOne(where, data);
    return (await encodeData(where, { ...taken, options: {} })).json;
  }

  return { enqueuing, linked, rows, jsonOf };
}

/** Copies the data and options of a job, because the caller may reuse these objects. */
function jobToEnqueue<Input>(
  where: string,
  data: Input,
  options: EnqueueOptions | undefined,
): JobToEnqueue<Input> {
  return { data: copyOf(where, data) as Input, options: { ...options } };
}

/** Advice in error messages for callers that pass arguments in BullMQ's form. */
export const ENQUEUE_TAKES =
  "write enqueue(data, options), and for the add(name, data, options) of BullMQ enqueue(data, { name, ...options })";

/**
 * Rejects arguments in BullMQ's form: a job name, then data in place of the options. If the second argument has a field
 * that is not an option, the error mentions BullMQ's form and similar option names, because the field may also be a
 * mistyped option.
 *
 * @throws {@link InvalidOptionError}
 */
function refuseNameAndData(where: string, options: unknown): void {
  if (typeof options !== "object" || options === null) return;
  const option = Object.keys(options).find((name) => !ENQUEUE_OPTION_NAMES.includes(name));
  if (option === undefined) return;
  const meant = likelyOptions(option, ENQUEUE_OPTION_NAMES);
  const remedy = `there is no such option; ${ENQUEUE_TAKES}; ${meant}`;
  const value = (options as Readonly<Record<string, unknown>>)[option];
  throw new InvalidOptionError({ where, option, value, remedy });
}

/** Returns a label for one job of `enqueueMany`, for error messages. */
function oneOf(where: string, index: number): string {
  return `${where}[${index}]`;
}

/** Rejects a recurring job. */
function assertOnce(where: string, options: JobOptionsRead, remedy: string): void {
  if (!isRecurring(options)) return;
  const option = options.cron === undefined ? "every" : "cron";
  throw new InvalidOptionError({ where, option, value: options[option], remedy });
}

/** Rejects a job that an outbox cannot store. */
const RECURRING_ROW = "give recurring jobs to enqueue() of the queue";

function assertForMany(where: string, options: JobOptionsRead, isForAll: boolean): void {
  const wrong = (option: keyof EnqueueOptions, remedy: string): InvalidOptionError =>
    new InvalidOptionError({ where, option, value: options[option], remedy });
  assertOnce(where, options, "give recurring jobs to enqueue()");
  if (!isForAll) return;
  const own = (["id", "dedupeId"] as const).find((option) => options[option] !== undefined);
  if (own === undefined) return;
  throw wrong(own, "give a function of the data, so that each job gets its own");
}
