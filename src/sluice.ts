import { randomUUID } from "node:crypto";
import process from "node:process";
import { createEmitter, type Emitter } from "./core/emitter.ts";
import { ClosedError, InvalidOptionError, RedisRequiredError } from "./core/errors.ts";
import { readName } from "./core/options.ts";
import { compilePolicy, formatPolicy } from "./core/policy.ts";
import type { SluiceEvents, StoreEvent } from "./core/store-events.ts";
import { createMemoryStore } from "./memory/memory-store.ts";
import type { ConnectQueue } from "./queue/connection.ts";
import { createQueue, type OwnedQueue, type Queue } from "./queue/queue.ts";
import type { Handler } from "./queue/handler.ts";
import { createWorker, type Worker } from "./queue/worker.ts";
import type { WorkerOptions } from "./queue/worker-options.ts";
import { createBackend } from "./redis/backend.ts";
import {
  processWarnings,
  readQueueOptions,
  readSluiceOptions,
  type QueueOptions,
  type SluiceOptions,
} from "./sluice-options.ts";
import {
  readBucketOptions,
  type BucketOptions,
  type ReadBucketOptions,
} from "./throttle/bucket-options.ts";
import type { Bucket, OwnedBucket } from "./throttle/bucket.ts";
import { createBucket } from "./throttle/create-bucket.ts";

/** Buckets, queues and workers that share one Redis. End it with `close()`, or hold it by `await using`. */
export interface Sluice extends Emitter<SluiceEvents> {
  /**
   * The bucket of this name, the same object each time.
   *
   * @throws {@link InvalidOptionError} when name or options can never work, or this sluice gave the bucket another policy before.
   * @throws {@link ClosedError} when the sluice is closed.
   */
  bucket(name: string, options: BucketOptions): Bucket;
  /**
   * The durable queue of this name, whose jobs leave through a bucket.
   *
   * @throws {@link InvalidOptionError} when the name can never work, or the queue has another bucket.
   * @throws {@link RedisRequiredError} when this sluice has no Redis.
   * @throws {@link ClosedError} when the sluice is closed.
   */
  queue<Data, Input = Data>(name: string, options: QueueOptions<Data, Input>): Queue<Data, Input>;
  /**
   * Starts to work on a queue. Instead of a function, the handler can be the path of a file, or its URL,
   * whose default export it is: it then runs in processes of its own, as many as the worker's `concurrency`,
   * while the draw stays in this one. A relative path begins at the working folder.
   *
   * @throws {@link InvalidOptionError} when the queue is not this sluice's, or the handler is neither a function nor a file.
   * @throws {@link RedisRequiredError} when this sluice has no Redis.
   * @throws {@link ClosedError} when the sluice is closed.
   */
  worker<Data, Result>(
    queue: Queue<Data, never>,
    handler: Handler<Data, Result> | string | URL,
    options?: WorkerOptions,
  ): Worker;
  /** Closes workers, then queues and buckets; callers that still wait get `ClosedError`. */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/**
 * Opens a sluice; it connects when it is first needed.
 *
 * @throws {@link InvalidOptionError} when an option can never work.
 */
export function createSluice(options: SluiceOptions = {}): Sluice {
  const read = readSluiceOptions(options);
  const { prefix = "sluice", storeTimeoutMs: timeoutMs = 2_000, logger = processWarnings } = read;
  const redis = read.shards ?? read.redis ?? (process.env["REDIS_URL"] || undefined);
  const emitter = createEmitter<SluiceEvents>(["store"], logger);
  const breaker = read.breaker ?? {};
  const common = { prefix, timeoutMs, breaker, logger, onChange: onStoreChange };
  const backend = redis === undefined ? undefined : createBackend({ redis, ...common });
  const store = backend?.store ?? createMemoryStore();
  if (redis === undefined) {
    logger.warn({}, "No Redis was named: this sluice paces the calls of this one process only.");
  }

  const replica = randomUUID();
  const buckets = new Map<string, OwnedBucket>();
  const behaviours = new Map<string, Omit<ReadBucketOptions, "policy">>();
  const queues = new Map<string, OwnedQueue<never>>();
  const workers = new Set<Worker>();
  let isListening = false;
  let closing: Promise<void> | undefined;

  function assertOpen(): void {
    if (closing !== undefined) throw new ClosedError("This sluice");
  }

  /** Who waits for Redis asks as soon as it answers. */
  function onStoreChange(event: StoreEvent): void {
    if (event.state === "up") for (const bucket of buckets.values()) bucket.lookIn();
    emitter.emit("store", event);
  }

  /** Once for all buckets: a listener is a connection of its own. */
  function listen(): void {
    if (isListening) return;
    isListening = true;
    store.listen(replica, (name, news, key) => {
      const bucket = buckets.get(name);
      if (news === "change") bucket?.forget(key);
      bucket?.lookIn(key);
    });
  }

  function connectQueueFor(where: string, queue: string): ConnectQueue {
    if (backend === undefined) throw new RedisRequiredError(where);
    return (use) => backend.connectQueue(queue, use);
  }

  function bucketOf<Data>(queue: Queue<Data, never>): OwnedBucket {
    const isOurs = (queues.get(queue?.name) as Queue<Data, never> | undefined) === queue;
    const bucket = isOurs && buckets.get(queue.bucket.name);
    if (bucket) return bucket;
    const remedy = "give what queue() of this sluice returned";
    throw new InvalidOptionError({ where: "worker()", option: "queue", value: queue, remedy });
  }

  async function close(): Promise<void> {
    await Promise.all([...workers].map((worker) => worker.close()));
    await Promise.all([...queues.values()].map((queue) => queue.close()));
    await Promise.all([...buckets.values()].map((bucket) => bucket.close()));
    await store.close();
  }

  return {
    on: (event, listener) => emitter.on(event, listener),
    off: (event, listener) => emitter.off(event, listener),
    bucket(name, given) {
      assertOpen();
      const where = `bucket(${JSON.stringify(readName("bucket()", "name", name))})`;
      const { policy: unread, ...behaviour } = readBucketOptions(where, given);
      const policy = compilePolicy(where, unread);
      const found = buckets.get(name);
      if (found === undefined) {
        const openLocalStore = backend && createMemoryStore;
        const parts = { name, policy, store, replica, logger, listen, openLocalStore };
        const bucket = createBucket({ ...parts, ...behaviour });
        buckets.set(name, bucket);
        behaviours.set(name, behaviour);
        return bucket;
      }
      assertSame(where, behaviours.get(name)!, behaviour);
      if (found.policy.text === policy.text) return found;
      const remedy = `this sluice has given the bucket ${formatPolicy(found.policy)} before; give it one policy`;
      const option = given.rate === undefined ? "limits" : "rate";
      const value = given[option];
      throw new InvalidOptionError({ where, option, value, remedy });
    },
    queue<Data, Input>(name: string, given: QueueOptions<Data, Input>): Queue<Data, Input> {
      assertOpen();
      const where = `queue(${JSON.stringify(readName("queue()", "name", name))})`;
      const { bucket, ...behaviour } = readQueueOptions(where, given) as QueueOptions<Data, Input>;
      const owned = buckets.get(bucket.name);
      if (owned === undefined || owned !== bucket) {
        const remedy = "give what bucket() of this sluice returned";
        throw new InvalidOptionError({ where, option: "bucket", value: bucket.name, remedy });
      }
      const found = queues.get(name) as OwnedQueue<Data, Input> | undefined;
      if (found !== undefined && found.bucket !== bucket) {
        const remedy = `the queue leaves through bucket "${found.bucket.name}"; give it one bucket`;
        throw new InvalidOptionError({ where, option: "bucket", value: bucket.name, remedy });
      }
      if (found !== undefined) {
        assertSameQueue(where, found, behaviour);
        return found;
      }
      const connectQueue = connectQueueFor(where, name);
      const parts = { name, bucket: owned, connect: connectQueue, prefix, timeoutMs, logger };
      const queue = createQueue<Data, Input>({ ...parts, ...behaviour });
      queues.set(name, queue as unknown as OwnedQueue<never>);
      return queue;
    },
    worker<Data, Result>(
      queue: Queue<Data, never>,
      handler: Handler<Data, Result> | string | URL,
      workerOptions: WorkerOptions = {},
    ) {
      assertOpen();
      const connectQueue = connectQueueFor("worker()", queue.name);
      const bucket = bucketOf(queue);
      const { weightOf, schema } = queue as OwnedQueue<Data, never>;
      const parts = { queue, bucket, handler, options: workerOptions, connect: connectQueue };
      const worker: Worker = createWorker({
        ...parts,
        prefix,
        logger,
        weightOf,
        schema,
        onClosed: () => workers.delete(worker),
      });
      workers.add(worker);
      return worker;
    },
    async close() {
      await (closing ??= close());
    },
    async [Symbol.asyncDispose]() {
      await (closing ??= close());
    },
  };
}

/** What a second declaration of a queue names must be what the first did. */
function assertSameQueue(
  where: string,
  first: { readonly schema: unknown; readonly maxJobBytes: number },
  second: { readonly schema?: unknown; readonly maxJobBytes?: number | undefined },
): void {
  for (const option of ["schema", "maxJobBytes"] as const) {
    const value = second[option];
    if (value === undefined || value === first[option]) continue;
    const remedy = "this sluice has made the queue with another before; give it one";
    throw new InvalidOptionError({ where, option, value, remedy });
  }
}

/** What a second declaration names must be what the first did. */
function assertSame(
  where: string,
  first: Omit<ReadBucketOptions, "policy">,
  second: Omit<ReadBucketOptions, "policy">,
): void {
  const { feedback: feedbackBefore, ...othersBefore } = first;
  const { feedback, ...others } = second;
  const before: Record<string, unknown> = { ...feedbackBefore, ...othersBefore };
  const now = { ...feedback, ...others };
  for (const [option, value] of Object.entries(now)) {
    if (value === undefined || JSON.stringify(value) === JSON.stringify(before[option])) continue;
    const remedy = "this sluice has made the bucket with another before; give it one";
    throw new InvalidOptionError({ where, option, value, remedy });
  }
}
