import { randomUUID } from "node:crypto";
import { createEmitter, type Emitter } from "./core/emitter.ts";
import { ClosedError, InvalidOptionError, RedisRequiredError } from "./core/errors.ts";
import { readName } from "./core/options.ts";
import { compilePolicy } from "./core/policy.ts";
import type { SluiceEvents, StoreEvent } from "./core/store-events.ts";
import { assertSame, assertSamePolicy, type Declaration } from "./declarations.ts";
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
  readRedisUrl,
  readSluiceOptions,
  type QueueOptions,
  type SluiceOptions,
} from "./sluice-options.ts";
import { readBucketOptions, type BucketOptions } from "./throttle/bucket-options.ts";
import type { BucketParts } from "./throttle/bucket-parts.ts";
import type { Bucket, OwnedBucket } from "./throttle/bucket.ts";
import { createBucket } from "./throttle/create-bucket.ts";
import { createSpreadBucket } from "./throttle/spread-bucket.ts";

/** Buckets, queues and workers that share one Redis. End it with `close()`, or hold it by `await using`. */
export interface Sluice extends Emitter<SluiceEvents> {
  /**
   * The bucket of this name, the same object each time. Later calls name the same policy; the other options
   * may be left out then. Functions have to be the same ones: nobody can tell what they do.
   *
   * @throws {@link InvalidOptionError} when name or options can never work, or this sluice gave the bucket others before.
   * @throws {@link ClosedError} when the sluice is closed.
   */
  bucket(name: string, options: BucketOptions): Bucket;
  /**
   * The durable queue of this name, whose jobs leave through a bucket; the same object each time. Later calls name
   * the same bucket; the other options may be left out then. Functions and schemas have to be the same ones.
   *
   * @throws {@link InvalidOptionError} when the name can never work, or this sluice gave the queue others before.
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

/** A queue, whatever its jobs hold. */
type AnyQueue = Pick<OwnedQueue<unknown>, "name" | "bucket" | "close">;

/**
 * Opens a sluice; it connects when it is first needed.
 *
 * @throws {@link InvalidOptionError} when an option can never work.
 */
export function createSluice(options: SluiceOptions = {}): Sluice {
  const read = readSluiceOptions(options);
  const { prefix = "sluice", storeTimeoutMs: timeoutMs = 2_000, logger = processWarnings } = read;
  const redis = read.shards ?? read.redis ?? readRedisUrl();
  const emitter = createEmitter<SluiceEvents>("a sluice", ["store"], logger);
  const breaker = read.breaker ?? {};
  const common = { prefix, timeoutMs, breaker, logger, onChange: onStoreChange };
  const backend = redis === undefined ? undefined : createBackend({ redis, ...common });
  const store = backend?.store ?? createMemoryStore();
  if (redis === undefined) {
    logger.warn({}, "No Redis was named: this sluice paces the calls of this one process only.");
  }

  const replica = randomUUID();
  const buckets = new Map<string, OwnedBucket>();
  /** The same, or their parts, by what the store knows them by. */
  const places = new Map<string, OwnedBucket>();
  const queues = new Map<string, AnyQueue>();
  /** What each bucket and each queue was declared with first. */
  const declarations = new WeakMap<object, Declaration>();
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
    store.listen(replica, (place, news, key) => {
      const bucket = places.get(place);
      if (news === "change") bucket?.forget(key);
      bucket?.lookIn(key);
    });
  }

  /** Keys that share nothing may lie on all nodes of a cluster. */
  function openBucket(parts: BucketParts): OwnedBucket {
    const onOpen = (place: string, bucket: OwnedBucket): unknown => places.set(place, bucket);
    const isSpread = backend?.isCluster === true && parts.policy.limits.length === 0;
    if (isSpread) return createSpreadBucket({ ...parts, onOpen });
    const bucket = createBucket(parts);
    onOpen(parts.name, bucket);
    return bucket;
  }

  function connectQueueFor(where: string, queue: string): ConnectQueue {
    if (backend === undefined) throw new RedisRequiredError(where);
    return (use) => backend.connectQueue(queue, use);
  }

  function bucketOf(queue: Omit<AnyQueue, "close">): OwnedBucket {
    const found = queues.get(queue?.name);
    const isOurs = found !== undefined && found === queue;
    const bucket = isOurs ? buckets.get(found.bucket.name) : undefined;
    if (bucket !== undefined) return bucket;
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
      const { feedback, ...others } = behaviour;
      // Functions and tiers are all alike in the policy's text.
      const perKey = policy.perKey?.isLocal === true ? given.perKey : undefined;
      const declaration: Declaration = { ...others, ...feedback, perKey };
      const found = buckets.get(name);
      if (found === undefined) {
        const openLocalStore = backend && createMemoryStore;
        const parts = { name, policy, store, replica, logger, listen, openLocalStore };
        const bucket = openBucket({ ...parts, ...behaviour });
        buckets.set(name, bucket);
        declarations.set(bucket, declaration);
        return bucket;
      }
      assertSame(where, "bucket", { first: declarations.get(found)!, later: declaration });
      assertSamePolicy(where, given, { first: found.policy, later: policy });
      return found;
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
        assertSame(where, "queue", { first: declarations.get(found)!, later: { ...behaviour } });
        return found;
      }
      const connectQueue = connectQueueFor(where, name);
      const parts = { name, bucket: owned, connect: connectQueue, prefix, timeoutMs, logger };
      const queue = createQueue<Data, Input>({ ...parts, ...behaviour });
      queues.set(name, queue);
      declarations.set(queue, { ...behaviour, maxJobBytes: queue.maxJobBytes });
      return queue;
    },
    worker<Data, Result>(
      queue: Queue<Data, never>,
      handler: Handler<Data, Result> | string | URL,
      workerOptions: WorkerOptions = {},
    ) {
      assertOpen();
      const connectQueue = connectQueueFor("worker()", queue?.name);
      const bucket = bucketOf(queue);
      const { weightOf, schema } = queue as OwnedQueue<Data, never>;
      const parts = { queue, bucket, handler, options: workerOptions, connect: connectQueue };
      const onClosed = (): unknown => workers.delete(worker);
      const common = { prefix, logger, weightOf, schema, onClosed };
      const worker: Worker = createWorker({ ...parts, ...common });
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
