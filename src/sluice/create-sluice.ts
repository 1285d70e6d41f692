import { assertArgumentCount } from "../core/input/arguments.ts";
import { createBuckets } from "./buckets.ts";
import { ClosedError, InvalidOptionError, RedisRequiredError } from "../core/errors.ts";
import {
  createEmitter,
  type Emitter,
  type SluiceEvents,
  type StoreEvent,
} from "../core/events/events.ts";
import type { RateInput } from "../core/limits/rate.ts";
import { guarded } from "../core/logger.ts";
import type { QueueChange } from "../core/stores/insight/steering.ts";
import { createSteeringLog } from "../core/stores/insight/steering-log.ts";
import { createObserving } from "../core/events/observer.ts";
import { readName } from "../core/input/options.ts";
import {
  createInsight,
  type ChangesOptions,
  type LoggedChange,
  type Overview,
  type OverviewOptions,
} from "../insight/overview.ts";
import { createReporter } from "../insight/reporter.ts";
import type { Metrics, MetricsOptions } from "../insight/metrics/process-metrics.ts";
import { createMemoryInsight } from "../stores/memory/memory-insight.ts";
import { createMemoryStore } from "../stores/memory/memory-store.ts";
import type { ConnectQueue } from "../queue/bullmq/connection.ts";
import { type BatchWorkerOptions, type WorkerOptions } from "../queue/worker/worker-options.ts";
import type { OwnedQueue, Queue } from "../queue/queue.ts";
import type { BatchHandler, GivenHandler } from "../queue/worker/context.ts";
import { createWorker, type Worker } from "../queue/worker/worker.ts";
import { createBackend } from "../stores/redis/backend.ts";
import {
  locateRedis,
  consoleLogger,
  readSluiceOptions,
  type QueueOptions,
  type SluiceOptions,
} from "./options.ts";
import { observed } from "./observed-store.ts";
import { keepParts } from "./parts.ts";
import { useRules } from "./rules.ts";
import { createQueues } from "./queues.ts";
import { readVersion } from "./version.ts";
import { createWorkers } from "./workers.ts";
import type { FromJson } from "../queue/job.ts";
import type { Bucket, OwnedBucket } from "../throttle/bucket.ts";
import { OF_PROCESS } from "../throttle/bucket/live-control.ts";
import type { BucketChange } from "../throttle/bucket/facts/changes.ts";
import type { BucketBrief } from "../throttle/bucket/facts/status.ts";
import { createStatuses } from "../insight/statuses.ts";
import type { BucketOptions } from "../throttle/bucket/bucket-options.ts";

/** Buckets, queues and workers that share one Redis. End it with `close()`, or hold it by `await using`. */
export interface Sluice extends Emitter<SluiceEvents> {
  /**
   * The bucket of this name, the same object each time. Later calls name the same policy; the other options
   * may be left out then. Functions have to be the same ones.
   *
   * @throws {@link InvalidOptionError} when name or options can never work, or this sluice made the bucket with others before.
   * @throws {@link ClosedError} when the sluice is closed.
   */
  bucket<const Rate extends RateInput = RateInput, const KeyRate extends RateInput = RateInput>(
    name: string,
    options: BucketOptions<Rate, KeyRate>,
  ): Bucket;
  /**
   * The bucket of this name with the limits that rules give it, of `createSluice({ rules })` here or elsewhere, or that the
   * code of other processes declares. Where this process has no rules, its first call looks them up, and rejects with
   * `InvalidOptionError` if nobody says them.
   */
  bucket(name: string): Bucket;
  /**
   * The bucket of this name with the policy that the code of other processes declares; undefined if no process has used it
   * in the last 30 days. For operators, and for whoever draws from buckets of others: it declares nothing that they do not.
   * Options of its calls, such as `feedback`, are the defaults. Limits of keys that only code can say are unknown here:
   * draws with a key fail.
   *
   * @throws {@link InvalidOptionError} when the name can never work.
   * @throws {@link StoreUnavailableError} when Redis gave no answer in time.
   * @throws {@link ClosedError} when the sluice is closed.
   */
  find(name: string): Promise<Bucket | undefined>;
  /**
   * The durable queue of this name, whose jobs leave through a bucket; the same object each time. Later calls name
   * the same bucket; the other options may be left out then. Functions and schemas have to be the same ones.
   *
   * Call it as the process starts: the first queue loads BullMQ, and for about 100 ms no call can leave.
   *
   * @throws {@link InvalidOptionError} when the name can never work, or this sluice made the queue with others before.
   * @throws {@link RedisRequiredError} when this sluice has no Redis.
   * @throws {@link ClosedError} when the sluice is closed.
   */
  queue<Data, Result = unknown>(
    name: string,
    options: QueueOptions<Data> & { readonly schema?: undefined },
  ): Queue<FromJson<Data>, Result, Data>;
  /** The same with a schema, whose output is what the handler gets. */
  queue<Data, Result = unknown, Input = Data>(
    name: string,
    options: QueueOptions<Data, Input>,
  ): Queue<Data, Result, Input>;
  /**
   * The queue of this name as other processes declare it, unless this one does; undefined if none has had it open in the
   * last 30 days. For operators, and for whoever enqueues for others: it declares nothing, and no worker can be started on
   * it. Data is checked by the schema of its workers alone. A key of which only the code of others knows whether it is
   * ordered is refused, and so is a job without a cost where only that code knows the cost.
   *
   * @throws {@link InvalidOptionError} when the name can never work.
   * @throws {@link StoreUnavailableError} when Redis gave no answer in time.
   * @throws {@link ClosedError} when the sluice is closed.
   */
  findQueue<Data = unknown, Result = unknown>(
    name: string,
  ): Promise<Queue<Data, Result> | undefined>;
  /**
   * Starts to work on a queue. Instead of a function, the handler can be several by the names of jobs,
   * `{ charge: async (job) => …, refund: … }`, or the path or URL of a file that has the function as its default export: it then runs in processes of its own, as many as the worker's `concurrency`, and the draw stays in
   * this one. A relative path begins at the working folder.
   *
   * @throws {@link InvalidOptionError} when the queue is not this sluice's, or the handler is neither a function, nor functions by name, nor a file.
   * @throws {@link RedisRequiredError} when this sluice has no Redis.
   * @throws {@link ClosedError} when the sluice is closed.
   */
  worker<Data, Result>(
    queue: Queue<Data, Result, never>,
    handler: GivenHandler<Data, NoInfer<Result>>,
    options?: WorkerOptions & { readonly batch?: undefined },
  ): Worker<Data, Result>;
  /**
   * The same with a handler that gets an array of jobs, up to `batch.size`, in one call on one slot. It returns an array
   * with the outcome of each job in its place: a result, or an error if it has failed.
   */
  worker<Data, Result>(
    queue: Queue<Data, Result, never>,
    handler: BatchHandler<Data, NoInfer<Result>>,
    options: BatchWorkerOptions<Data>,
  ): Worker<Data, Result>;
  /**
   * The buckets, queues and workers of all processes that share this Redis and prefix, and these processes, as an operator
   * sees them. Of a bucket whose code this process has not, limits per key that only its code can say are left out.
   *
   * @throws {@link InvalidOptionError} when an option can never work.
   * @throws {@link StoreUnavailableError} when Redis gave no answer in time.
   * @throws {@link ClosedError} when the sluice is closed.
   */
  overview(options: OverviewOptions & { readonly brief: true }): Promise<Overview<BucketBrief>>;
  overview(options?: OverviewOptions): Promise<Overview>;
  /**
   * What was changed by hand or by a rules file, by whom and why, the newest first: the last 10,000 changes each of buckets
   * by hand, of buckets by rules, of queues, and of endpoints of webhooks, of all processes. Of queues these are pauses and
   * what changes many jobs at once (`drain`, `removeJobs`, `rescheduleJobs`, `replay` and `purge` with a filter), whoever
   * calls them. What changes one job is the application's own business, and is not noted: `cancel`, `remove`,
   * `reprioritise`, what a job's handle does, and `replay` and `purge` by an id without a `by`. Throws as `overview` does.
   */
  changes(options: ChangesOptions & { readonly bucket: string }): Promise<readonly BucketChange[]>;
  changes(options: ChangesOptions & { readonly queue: string }): Promise<readonly QueueChange[]>;
  changes(options?: ChangesOptions): Promise<readonly LoggedChange[]>;
  /**
   * Counts what the calls of this process come to, from now on, as metrics of Prometheus: `docs/metrics.md` lists them.
   * Loads prom-client. Called again, it gives the same.
   *
   * @throws {@link InvalidOptionError} when what was given is no register, or has other metrics of these names.
   * @throws {@link ClosedError} when the sluice is closed.
   */
  metrics(options?: MetricsOptions): Promise<Metrics>;
  /**
   * Closes workers, then queues and buckets; callers that still wait get `ClosedError`. A handler that calls it must not
   * await it: it waits for that handler, until the worker's deadline.
   */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/**
 * Opens a sluice; it connects when it is first needed.
 *
 * @throws {@link InvalidOptionError} when an option can never work.
 * @throws {@link RedisRequiredError} when no Redis is named, in production or with `requireRedis`.
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
  const observing = createObserving();
  const store = observed(backend?.store ?? createMemoryStore(), observing);
  const insight = observed(backend?.insight ?? createMemoryInsight(), observing);
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
    queues: () => queues.told(),
    workers: () => workers.told(),
  });
  const statuses = createStatuses({ store, insight, ...buckets });
  const facts = createInsight({ insight, statuses });
  const steeringLog = createSteeringLog({ store: insight, logger, process: OF_PROCESS });
  const queues = createQueues({
    buckets,
    insight,
    steeringLog,
    prefix,
    timeoutMs,
    logger,
    observing,
    connectFor: connectQueueFor,
    onOpened: () => reporter.onActivity(),
  });
  const workers = createWorkers();
  /** What closes first. */
  const closers: (() => Promise<void>)[] = [];
  let closing: Promise<void> | undefined;

  function assertOpen(): void {
    if (closing !== undefined) throw new ClosedError("This sluice");
  }

  /** Calls that wait for Redis are asked for again as soon as it answers. */
  function onStoreChange(event: StoreEvent): void {
    if (event.state === "up") {
      buckets.askAgain();
      rules?.check();
    }
    emitter.emit("store", event);
  }

  function connectQueueFor(where: string, queue: string, own?: boolean): ConnectQueue {
    if (backend === undefined) throw new RedisRequiredError(where);
    return (use) => backend.connectQueue(queue, use, own);
  }

  function bucketOf(queue: unknown): OwnedBucket {
    const found = queues.owned(queue);
    const bucket = found && buckets.of(found.bucket.name);
    if (bucket !== undefined) return bucket;
    const remedy = "give what queue() of this sluice returned";
    throw new InvalidOptionError({ where: "worker()", option: "queue", value: queue, remedy });
  }

  async function close(): Promise<void> {
    await Promise.all(closers.map((closeFirst) => closeFirst()));
    await workers.close();
    await queues.close();
    await rules?.close();
    await buckets.close();
    await reporter.close();
    await store.close();
    for (const end of observing.whenClosed) end();
  }

  const sluice: Sluice = {
    on: (event, listener, listening) => emitter.on(event, listener, listening),
    off: (event, listener) => emitter.off(event, listener),
    bucket(name: string, given?: unknown) {
      assertOpen();
      const where = `bucket(${JSON.stringify(readName("bucket()", "name", name))})`;
      // Options that are undefined by mistake are refused.
      if (arguments.length === 1) return buckets.openByName(where, name);
      // Which rates are written out is only for the compiler.
      return buckets.open(where, name, given as BucketOptions);
    },
    async find(name) {
      assertOpen();
      return buckets.find(readName("find()", "name", name));
    },
    queue<Data, Result, Input>(name: string, given: QueueOptions<Data, Input>) {
      assertOpen();
      const where = `queue(${JSON.stringify(readName("queue()", "name", name))})`;
      // What JSON makes of the data is only for the compiler.
      return queues.open<Data, Result, Input>(where, name, given) as Queue<never, Result, Input>;
    },
    async findQueue(name) {
      assertOpen();
      return queues.find(readName("findQueue()", "name", name));
    },
    worker<Data, Result>(
      queue: Queue<Data, Result, never>,
      handler: GivenHandler<Data, Result> | BatchHandler<Data, Result>,
      workerOptions: WorkerOptions | undefined,
    ) {
      assertOpen();
      const own = queues.hasOwnConnections(queue?.name);
      const connectQueue = connectQueueFor("worker()", queue?.name, own);
      const bucket = bucketOf(queue);
      const { weightsOf, schema, settings: kept } = queue as OwnedQueue<Data, Result, never>;
      const parts = { queue, bucket, handler, options: workerOptions, connect: connectQueue };
      const common = { prefix, logger, observing, weightsOf, schema, kept };
      const worker = workers.add(queue.name, (own) =>
        createWorker({ ...parts, ...common, ...own }),
      );
      reporter.onActivity();
      return worker;
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
    steeringLog,
    rules,
    connect(where, queue) {
      assertOpen();
      if (backend === undefined) throw new RedisRequiredError(where);
      return backend.connectQueue(queue, "producer");
    },
    noteSender: (queue) => queues.noteSender(queue),
    onClose: (closeFirst) => void closers.push(closeFirst),
    hasWorkers: () => workers.told().length > 0,
  });
  return assertArgumentCount(sluice, { throws: ["bucket", "queue", "worker", "on", "off"] });
}
