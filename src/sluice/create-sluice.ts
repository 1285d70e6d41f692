import { assertArgumentCount } from "../core/input/arguments.ts";
import { createBuckets } from "./buckets.ts";
import { isThenable } from "../core/describe.ts";
import { ClosedError, InvalidOptionError, RedisRequiredError } from "../core/errors.ts";
import {
  createEmitter,
  type Emitter,
  type SluiceEvents,
  type StoreEvent,
} from "../core/events/events.ts";
import type { RateInput } from "../core/limits/rate.ts";
import { guarded } from "../core/logger.ts";
import type { BucketChange, LoggedChange, QueueChange } from "../core/stores/insight/changes.ts";
import type { Store } from "../core/store.ts";
import { createChangeLog } from "../core/stores/insight/change-log.ts";
import { createObserving, whenObserved, type Observing } from "../core/events/observer.ts";
import { readName } from "../core/input/options.ts";
import {
  createInsight,
  type ChangesOptions,
  type Overview,
  type OverviewOptions,
} from "../insight/overview.ts";
import { createReporter } from "../insight/reporter.ts";
import type { Metrics, MetricsOptions } from "../insight/metrics/process-metrics.ts";
import { createMemoryInsight } from "../stores/memory/memory-insight.ts";
import { createMemoryStore, monotonicUs } from "../stores/memory/memory-store.ts";
import type { ConnectQueue, QueueConnection } from "../queue/bullmq/connection.ts";
import { createFlows } from "../queue/manage/flows.ts";
import { type BatchWorkerOptions, type WorkerOptions } from "../queue/worker/worker-options.ts";
import type { OwnedQueue, Queue } from "../queue/queue.ts";
import type { BatchHandler, HandlerInput } from "../queue/worker/context.ts";
import { createMiddlewares, type Middleware } from "../queue/worker/handlers/middleware.ts";
import {
  createWorker,
  type OwnedWorker,
  type Worker,
  type WorkerSettings,
} from "../queue/worker/worker.ts";
import { createLocalRedis } from "../stores/memory/redis/connector.ts";
import { connectQueues, createBackend } from "../stores/redis/backend.ts";
import type { FlowStore } from "../stores/redis/queue/store.ts";
import {
  isMemory,
  locateRedis,
  consoleLogger,
  readSluiceOptions,
  type QueueOptions,
  type SluiceOptions,
} from "./options.ts";
import { keepParts } from "./parts.ts";
import { useRules } from "./rules.ts";
import { createQueues } from "./queues.ts";
import { readVersion } from "../insight/version.ts";
import { createWorkers, type ClientActivity, type OwnParts } from "./workers.ts";
import type { FromJson } from "../queue/job.ts";
import type { Bucket, OwnedBucket } from "../throttle/bucket.ts";
import { OF_PROCESS } from "../throttle/bucket/live-control.ts";
import type { BucketBrief } from "../throttle/bucket/facts/status.ts";
import { createStatuses } from "../insight/statuses.ts";
import type { BucketOptions } from "../throttle/bucket/bucket-options.ts";
import type { Pool, PoolOptions } from "../throttle/bucket/pool.ts";

/**
 * Buckets, queues and workers that share one Redis. Close a sluice with `close()` or `await using`.
 */
export interface Sluice extends Emitter<SluiceEvents> {
  /**
   * Opens the bucket with this name. Returns the same object each time. Later calls may omit
   * options. Options that they pass must equal those of the first call, and functions must be the
   * same objects.
   *
   * @throws {@link InvalidOptionError} when the name or the options can never work, or when this
   * sluice opened the bucket with other options before.
   * @throws {@link ClosedError} when the sluice is closed.
   */
  bucket<const Rate extends RateInput = RateInput, const KeyRate extends RateInput = RateInput>(
    name: string,
    options: BucketOptions<Rate, KeyRate>,
  ): Bucket;
  /**
   * Opens the bucket with this name and the limits from a rules file or from the code of other
   * processes. If this process has no rules file, the first call looks up the limits in Redis. That
   * call rejects with `InvalidOptionError` if no process and no rules set limits.
   */
  bucket(name: string): Bucket;
  /**
   * Opens the pool with this name: one line of calls for several accounts, deployments or regions.
   * Each call uses the member that is free first. Returns the same object each time.
   *
   * @throws {@link InvalidOptionError} when the name or the options can never work, or when this
   * sluice opened the pool with other options before.
   * @throws {@link ClosedError} when the sluice is closed.
   */
  pool<
    Value = undefined,
    const Rate extends RateInput = RateInput,
    const KeyRate extends RateInput = RateInput,
  >(
    name: string,
    options: PoolOptions<Value, Rate, KeyRate>,
  ): Pool<Value>;
  /**
   * Finds the bucket with this name and the policy that the code of other processes declares.
   * Resolves with undefined if no process used the bucket in the last 30 days.
   *
   * Use it for operator tools, and for callers that share another service's bucket. Finding a
   * bucket never changes its policy. The options of its calls, such as `feedback`, have their
   * default values. If a function in the code returns per-key limits, they are unknown here, so
   * draws with a key fail.
   *
   * @throws {@link InvalidOptionError} when the name can never work.
   * @throws {@link StoreUnavailableError} when Redis sent no reply in time.
   * @throws {@link ClosedError} when the sluice is closed.
   */
  find(name: string): Promise<Bucket | undefined>;
  /**
   * Opens the durable queue with this name. Its jobs draw slots from a bucket. Returns the same
   * object each time. Later calls must pass the same bucket. They may omit other options, and
   * functions and schemas must be the same objects.
   *
   * Call `queue()` when the process starts, because the first queue loads BullMQ, which blocks the
   * process for about 100 ms.
   *
   * @throws {@link InvalidOptionError} when the name or the options can never work, or when this
   * sluice opened the queue with other options before.
   * @throws {@link RedisRequiredError} when this sluice has no Redis.
   * @throws {@link ClosedError} when the sluice is closed.
   */
  queue<Data, Result = unknown>(
    name: string,
    options: QueueOptions<Data> & { readonly schema?: undefined },
  ): Queue<FromJson<Data>, Result, Data>;
  /** Opens a queue with a schema. Handlers receive the output of the schema. */
  queue<Data, Result = unknown, Input = Data>(
    name: string,
    options: QueueOptions<Data, Input>,
  ): Queue<Data, Result, Input>;
  /**
   * Finds the queue with this name as this process declares it, or else as other processes declare
   * it. Resolves with undefined if no process had the queue open in the last 30 days.
   *
   * Use it for operator tools, and for processes that enqueue jobs for other services. Finding a
   * queue declares nothing, and a found queue cannot have workers in this process. Only the schema
   * of the workers checks the data. A job is rejected if only the code of another process knows its
   * cost, or whether its key is ordered.
   *
   * @throws {@link InvalidOptionError} when the name can never work.
   * @throws {@link StoreUnavailableError} when Redis sent no reply in time.
   * @throws {@link ClosedError} when the sluice is closed.
   */
  findQueue<Data = unknown, Result = unknown>(
    name: string,
  ): Promise<Queue<Data, Result> | undefined>;
  /**
   * Starts a worker for a queue. The handler has one of these forms:
   *
   * - a function.
   * - a table of functions by job name: `{ charge: async (job) => …, refund: … }`.
   * - the path or URL of a file whose default export is the function. The function then runs in
   *   child processes, as many as the worker's `concurrency`, while this process draws the slots. A
   *   relative path starts at the working directory.
   *
   * @throws {@link InvalidOptionError} when the queue belongs to another sluice, or when the
   * handler is neither a function, nor a table of functions, nor a file.
   * @throws {@link RedisRequiredError} when this sluice has no Redis.
   * @throws {@link ClosedError} when the sluice is closed.
   */
  worker<Data, Result>(
    queue: Queue<Data, Result, never>,
    handler: HandlerInput<Data, NoInfer<Result>>,
    options?: WorkerOptions & { readonly batch?: undefined },
  ): Worker<Data, Result>;
  /**
   * Starts a worker whose handler receives up to `batch.size` jobs in one call, which uses one
   * slot. The handler returns an array with the outcome of each job at the job's index: a result,
   * or an error if the job failed.
   */
  worker<Data, Result>(
    queue: Queue<Data, Result, never>,
    handler: BatchHandler<Data, NoInfer<Result>>,
    options: BatchWorkerOptions<Data>,
  ): Worker<Data, Result>;
  /**
   * Adds functions around `enqueue` and around the handlers of all queues and workers of this sluice. Use it for the
   * context of tenants, transactions or tracing. They run outside the middleware of queues and workers, in the order in
   * which they were added. Returns a function that removes them.
   *
   * Calls of `enqueue` and attempts that begin after this call run through the middleware. The handlers of webhook
   * workers run through it too. Jobs that Sluice itself stores do not: runs of schedules, retries and replays, the
   * deliveries of webhooks, and jobs that an outbox moves.
   *
   * @throws {@link InvalidOptionError} when it has no function, or something that is not a function.
   * @throws {@link ClosedError} when the sluice is closed.
   */
  use(middleware: Middleware): () => void;
  /**
   * Lists the buckets, queues, workers and processes that share this Redis and prefix, for
   * operators. The list omits per-key limits that only the code of another process knows.
   *
   * @throws {@link InvalidOptionError} when an option can never work.
   * @throws {@link StoreUnavailableError} when Redis sent no reply in time.
   * @throws {@link ClosedError} when the sluice is closed.
   */
  overview(options: OverviewOptions & { readonly brief: true }): Promise<Overview<BucketBrief>>;
  overview(options?: OverviewOptions): Promise<Overview>;
  /**
   * Lists the changes by operators and rules files, with the author and the reason of each change,
   * the newest first. The log contains the last 10,000 changes over all processes in each of these
   * groups: buckets by operators, buckets by rules, queues, and webhook endpoints.
   *
   * The listed changes of queues are pauses and operations on many jobs: `drain`, `removeJobs`,
   * `rescheduleJobs`, and `replay` and `purge` with a filter. Operations on a single job are not
   * logged: `cancel`, `remove`, `reprioritise`, methods of a job's handle, and `replay` and `purge`
   * by an id without a `by`. Throws the same errors as `overview`.
   */
  changes(options: ChangesOptions & { readonly bucket: string }): Promise<readonly BucketChange[]>;
  changes(options: ChangesOptions & { readonly queue: string }): Promise<readonly QueueChange[]>;
  changes(options?: ChangesOptions): Promise<readonly LoggedChange[]>;
  /**
   * Counts the calls of this process as Prometheus metrics from now on, and loads prom-client.
   * `docs/reference/metrics.md` lists the metrics. Further calls return the same metrics.
   *
   * @throws {@link InvalidOptionError} when the given object is not a prom-client register, or
   * already contains different metrics with these names.
   * @throws {@link ClosedError} when the sluice is closed.
   */
  metrics(options?: MetricsOptions): Promise<Metrics>;
  /**
   * Closes the workers, then the queues and buckets. Waiting callers get `ClosedError`. A handler
   * must not await this call, because the call waits for that handler until the worker's deadline.
   */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/**
 * Creates a sluice. The sluice connects to Redis when it first needs a connection.
 *
 * @throws {@link InvalidOptionError} when an option can never work.
 * @throws {@link RedisRequiredError} in production or with `requireRedis`, when no Redis is
 * configured.
 */
export function createSluice(options: SluiceOptions = {}): Sluice {
  const read = readSluiceOptions(options);
  const { prefix = "sluice", storeTimeoutMs: timeoutMs = 2_000 } = read;
  const logger = guarded(read.logger ?? consoleLogger, consoleLogger);
  const redis = locateRedis(read);
  const emitter = createEmitter<SluiceEvents>("a sluice", ["store"], logger);
  const breaker = read.breaker ?? {};
  const common = { prefix, timeoutMs, breaker, logger, onChange: onStoreChange };
  const backend = redis === undefined ? undefined : createBackend({ redis, ...common });
  // Only a sluice that names memory has queues there, because their jobs end with the process.
  const localRedis = isMemory(read) ? createLocalRedis() : undefined;
  const skippedMs = localRedis?.skippedMs ?? (() => 0);
  const wallMs = (): number => Date.now() + skippedMs();
  const connectLocal = localRedis && connectQueues(prefix, localRedis.options, { wallMs });
  const observing = createObserving();
  const localStore = (): Store => createMemoryStore(() => monotonicUs() + skippedMs() * 1_000);
  const store = observed(backend?.store ?? localStore(), observing);
  const insight = observed(backend?.insight ?? createMemoryInsight(wallMs), observing);
  if (redis === undefined && read.redis === undefined) {
    logger.warn({}, "No Redis was named; this sluice paces the calls of this process only.");
  }

  const isCluster = backend?.isCluster === true;
  const forRules = { store, insight, logger, isCluster, buckets: () => buckets };
  const rules = useRules(read.rules, forRules);
  const buckets = createBuckets({
    store,
    insight,
    logger,
    rules,
    onActivity: () => reporter.onActivity(),
    observing,
    isRemote: backend !== undefined,
    isCluster,
  });
  const { replica } = buckets;
  const { all, find } = buckets;
  const reporter = createReporter({
    insight,
    logger,
    replica,
    version: readVersion(),
    buckets: all,
    find,
    queues: () => queues.facts(),
    workers: () => workers.reports(),
  });
  const statuses = createStatuses({ store, insight, ...buckets });
  const facts = createInsight({ insight, statuses });
  const changeLog = createChangeLog({ store: insight, logger, process: OF_PROCESS });
  const middlewares = createMiddlewares();
  const flowConnections = new Map<string, QueueConnection>();
  let areQueuesClosed = false;
  const flows = createFlows(reachFlows);
  const queues = createQueues({
    buckets,
    insight,
    changeLog,
    prefix,
    timeoutMs,
    logger,
    observing,
    middlewares,
    flows,
    connectFor: connectQueueFor,
    onOpened: () => reporter.onActivity(),
  });
  const workers = createWorkers();
  /** Functions that run first when the sluice closes. */
  const closers: (() => Promise<void>)[] = [];
  let closing: Promise<void> | undefined;

  function assertOpen(): void {
    if (closing !== undefined) throw new ClosedError("This sluice");
  }

  /** Makes calls that waited for Redis draw again as soon as Redis replies. */
  function onStoreChange(event: StoreEvent): void {
    if (event.state === "up") {
      buckets.redraw();
      rules?.check();
    }
    emitter.emit("store", event);
  }

  function connectQueueFor(where: string, queue: string, own?: boolean): ConnectQueue {
    if (connectLocal !== undefined) {
      if (process.env["NODE_ENV"] !== "production") return (use) => connectLocal(use, own);
      const otherwise =
        " In production, no jobs are kept in memory, because they end with the process.";
      throw new RedisRequiredError(where, otherwise);
    }
    if (backend !== undefined) return (use) => backend.connectQueue(queue, use, own);
    const otherwise = ' For tests and development, { redis: "memory" } keeps jobs in this process.';
    throw new RedisRequiredError(where, otherwise);
  }

  /** Moves the clock of the queues and buckets in memory, and makes all that waits look at it. */
  async function advance(ms: number): Promise<void> {
    // The workers of this process have not slept, so they still hold the locks of their jobs.
    await localRedis?.advance(ms, (key) => key.endsWith(":lock"));
    buckets.redraw();
    const names = queues.facts().map(({ name }) => name);
    await Promise.all(
      names.map(async (queue) => {
        const connection = connectQueueFor("advanceTime()", queue)("producer");
        try {
          await connection.untilReady(timeoutMs);
          await connection.wakeIdle({ queue });
        } finally {
          connection.close();
        }
      }),
    );
  }

  /** Flows connect queues, which may be on different servers. So each queue has one more connection for them. */
  async function reachFlows(queue: string): Promise<FlowStore> {
    let connection = flowConnections.get(queue);
    if (connection === undefined) {
      if (areQueuesClosed) throw new ClosedError("This sluice");
      connection = connectQueueFor("enqueue()", queue)("producer");
      flowConnections.set(queue, connection);
    }
    await connection.untilReady(timeoutMs);
    return connection.flows;
  }

  function bucketOf(queue: unknown): OwnedBucket {
    const found = queues.owned(queue);
    const bucket = found && buckets.of(found.bucket.name);
    if (bucket !== undefined) return bucket;
    const remedy = "give what queue() of this sluice returned";
    throw new InvalidOptionError({ where: "worker()", option: "queue", value: queue, remedy });
  }

  function startWorker<Data, Result>(
    queue: OwnedQueue<Data, Result, never>,
    parts: Pick<
      WorkerSettings<Data, Result>,
      | "bucket"
      | "handler"
      | "schema"
      | "payloads"
      | "middlewares"
      | "connect"
      | "options"
      | "demand"
    >,
    clients?: () => readonly ClientActivity[],
  ): OwnedWorker<Data, Result> {
    const { weightsOf, settings: kept } = queue;
    const payloadsOf = (name: string) => queues.payloadsOf(name);
    const common = {
      queue,
      prefix,
      timeoutMs,
      logger,
      observing,
      flows,
      payloadsOf,
      weightsOf,
      kept,
    };
    const make = (own: OwnParts): OwnedWorker<Data, Result> =>
      createWorker({ ...common, ...parts, ...own });
    const worker = workers.add(queue.name, make, clients);
    reporter.onActivity();
    return worker;
  }

  async function close(): Promise<void> {
    await Promise.all(closers.map((closeFirst) => closeFirst()));
    await workers.close();
    await queues.close();
    areQueuesClosed = true;
    for (const connection of flowConnections.values()) connection.close();
    await rules?.close();
    await buckets.close();
    await reporter.close();
    await store.close();
    await localRedis?.close();
    for (const end of observing.whenClosed) end();
  }

  const sluice: Sluice = {
    on: (event, listener, listening) => emitter.on(event, listener, listening),
    off: (event, listener) => emitter.off(event, listener),
    bucket(name: string, given?: unknown) {
      assertOpen();
      const where = `bucket(${JSON.stringify(readName("bucket()", "name", name))})`;
      // An explicit undefined is rejected as options, because it is probably a mistake.
      if (arguments.length === 1) return buckets.openByName(where, name);
      // The types for literal rates matter only to the compiler.
      return buckets.open(where, name, given as BucketOptions);
    },
    pool<Value>(name: string, given: unknown) {
      assertOpen();
      const where = `pool(${JSON.stringify(readName("pool()", "name", name))})`;
      return buckets.openPool(where, name, given) as Pool<Value>;
    },
    async find(name) {
      assertOpen();
      return buckets.find(readName("find()", "name", name));
    },
    queue<Data, Result, Input>(name: string, given: QueueOptions<Data, Input>) {
      assertOpen();
      const where = `queue(${JSON.stringify(readName("queue()", "name", name))})`;
      // The type of data after conversion to JSON matters only to the compiler.
      return queues.open<Data, Result, Input>(where, name, given) as Queue<never, Result, Input>;
    },
    async findQueue(name) {
      assertOpen();
      return queues.find(readName("findQueue()", "name", name));
    },
    worker<Data, Result>(
      queue: Queue<Data, Result, never>,
      handler: HandlerInput<Data, Result> | BatchHandler<Data, Result>,
      workerOptions: WorkerOptions | undefined,
    ) {
      assertOpen();
      const own = queues.hasOwnConnections(queue?.name);
      const connect = connectQueueFor("worker()", queue?.name, own);
      const bucket = bucketOf(queue);
      const owned = queue as OwnedQueue<Data, Result, never>;
      const { schema, payloads, middlewares } = owned;
      return startWorker(owned, {
        bucket,
        handler,
        schema,
        payloads,
        middlewares,
        connect,
        options: workerOptions,
      });
    },
    use(middleware) {
      assertOpen();
      return middlewares.use(middleware);
    },
    overview: (async (given?: OverviewOptions) => {
      assertOpen();
      return facts.overview(given);
    }) as Sluice["overview"],
    changes: (async (given?: ChangesOptions) => {
      assertOpen();
      return facts.changes(given);
    }) as Sluice["changes"],
    async metrics(given) {
      assertOpen();
      const { openMetrics } = await import("../insight/metrics/process-metrics.ts");
      return openMetrics(observing, given);
    },
    async close() {
      await (closing ??= close());
    },
    async [Symbol.asyncDispose]() {
      await (closing ??= close());
    },
  };
  keepParts(sluice, {
    prefix,
    timeoutMs,
    logger,
    observing,
    insight,
    changeLog,
    rules,
    connect(where, queue) {
      assertOpen();
      return connectQueueFor(where, queue)("producer");
    },
    advance: localRedis && advance,
    running: () => workers.reports().flatMap(({ queue, running }) => (running > 0 ? [queue] : [])),
    membersOf: (bucket) => buckets.membersOf(bucket),
    noteSender: (queue) => queues.noteSender(queue),
    onClose: (closeFirst) => void closers.push(closeFirst),
    expectWorker: (starting) => workers.expect(starting),
    async hasWorkers() {
      await workers.started();
      return workers.reports().length > 0;
    },
    drainWorkers: (idleMs) => workers.drain(idleMs),
    startHandOver(queue, { handler, options, demand, clients }) {
      assertOpen();
      const { name, bucket, payloads, missingCodecs, schema } = queue as OwnedQueue<unknown>;
      if (missingCodecs.length > 0) {
        const remedy = `its jobs are encoded with ${missingCodecs.join(", ")}, and this server does not have it; take the jobs from a server whose code gives queue() the codec`;
        throw new InvalidOptionError({ where: "take", option: "queue", value: name, remedy });
      }
      const connect = connectQueueFor("take", name, queues.hasOwnConnections(name));
      // No middleware runs here, because it runs around the code of a job, which is in another process.
      const parts = { schema, middlewares: createMiddlewares(), connect, payloads };
      const owned = { bucket: bucket as OwnedBucket, handler, options, demand };
      return startWorker(queue as OwnedQueue<unknown>, { ...parts, ...owned }, clients);
    },
  });
  return assertArgumentCount(sluice, { throws: ["bucket", "queue", "worker", "use", "on", "off"] });
}

/**
 * Wraps a store so that each request is timed under its own name while metrics are collected. The
 * wrapper covers all methods, so new methods of a store are timed automatically.
 */
function observed<Store extends object>(store: Store, observing: Observing): Store {
  const timed = Object.entries(store).map(([name, ask]: [string, unknown]) => {
    if (typeof ask !== "function" || name === "close") return [name, ask];
    const command = commandOf(name);
    const durations = whenObserved(observing, (observer) =>
      observer.series("sluice_store_duration_seconds", command),
    );
    const timedAsk = (...given: unknown[]): unknown => {
      const duration = durations();
      if (duration === undefined) return ask.apply(store, given);
      const sinceMs = performance.now();
      const answer: unknown = ask.apply(store, given);
      const note = (): void => duration.add(performance.now() - sinceMs);
      if (isThenable(answer)) answer.then(note, note);
      return answer;
    };
    return [name, timedAsk];
  });
  return Object.fromEntries(timed) as Store;
}

/** Returns the name of a store method in metrics: `giveBack` becomes `give_back`. */
function commandOf(name: string): string {
  return name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}
