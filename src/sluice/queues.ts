import { InvalidOptionError } from "../core/errors.ts";
import type { Logger } from "../core/logger.ts";
import type { QueueFacts } from "../core/stores/insight/store.ts";
import type { ConnectQueue } from "../queue/bullmq/connection.ts";
import { withKeptDefaults } from "../queue/options.ts";
import { createQueue, type OwnedQueue, type Queue } from "../queue/queue.ts";
import type { Bucket } from "../throttle/bucket.ts";
import { assertSame, type Buckets, type Declaration } from "./buckets.ts";
import { readQueueOptions, type QueueOptions } from "./options.ts";

/** A queue, whatever its jobs hold. */
type AnyQueue = Pick<OwnedQueue<unknown>, "name" | "bucket" | "close">;

/** The queues of one sluice. */
export interface Queues {
  /**
   * The queue of this name, the same object each time.
   *
   * @throws {@link InvalidOptionError} when the options can never work, or the queue was opened with others.
   */
  open<Data, Result, Input>(
    where: string,
    name: string,
    options: QueueOptions<Data, Input>,
  ): Queue<Data, Result, Input>;
  /** The same object, if it is a queue of this sluice. */
  owned(queue: unknown): AnyQueue | undefined;
  /** What other processes are told of them. */
  told(): QueueFacts[];
  /** Whether the queue was opened with connections of its own. */
  hasOwnConnections(name: string): boolean;
  close(): Promise<void>;
}

export interface QueuesParts {
  readonly buckets: Pick<Buckets, "of">;
  readonly prefix: string;
  readonly timeoutMs: number;
  readonly logger: Logger;
  /** Called when a queue has been opened, which has not been told yet. */
  readonly onOpened: () => void;
  /** @throws {@link RedisRequiredError} when the sluice has no Redis. */
  readonly connectFor: (where: string, queue: string, own?: boolean) => ConnectQueue;
}

export function createQueues({ buckets, connectFor, onOpened, ...common }: QueuesParts): Queues {
  const queues = new Map<string, AnyQueue>();
  /** The options that each queue was declared with first. */
  const declarations = new Map<string, Declaration>();

  return {
    open<Data, Result, Input>(where: string, name: string, given: QueueOptions<Data, Input>) {
      const read = readQueueOptions(where, given) as QueueOptions<Data, Input>;
      const { bucket, keepDone, ...others } = read;
      const behaviour = { ...others, keepDone: keepDone && withKeptDefaults(keepDone) };
      const owned = buckets.of(bucket.name);
      if (owned === undefined || owned !== bucket) {
        throw wrongBucket(where, bucket, "give what bucket() of this sluice returned");
      }
      const found = queues.get(name) as OwnedQueue<Data, Result, Input> | undefined;
      if (found !== undefined && found.bucket !== bucket) {
        const its = found.bucket.name;
        const remedy = `the queue leaves through bucket "${its}"; give it one bucket`;
        throw wrongBucket(where, bucket, remedy);
      }
      if (found !== undefined) {
        assertSame(where, "queue", { first: declarations.get(name)!, later: { ...behaviour } });
        return found;
      }
      const connect = connectFor(where, name, others.ownConnections);
      const parts = { ...common, name, bucket: owned, connect, ...behaviour };
      const queue = createQueue<Data, Result, Input>(parts);
      queues.set(name, queue);
      const { maxJobBytes, keepDone: kept } = queue;
      declarations.set(name, { ...behaviour, maxJobBytes, keepDone: kept });
      onOpened();
      return queue;
    },
    owned(queue) {
      const found = queues.get((queue as AnyQueue | undefined)?.name ?? "");
      return found === queue ? found : undefined;
    },
    told: () => [...queues.values()].map(({ name, bucket }) => ({ name, bucket: bucket.name })),
    hasOwnConnections: (name) => declarations.get(name)?.["ownConnections"] === true,
    async close() {
      await Promise.all([...queues.values()].map((queue) => queue.close()));
    },
  };
}

function wrongBucket(where: string, { name }: Bucket, remedy: string): InvalidOptionError {
  return new InvalidOptionError({ where, option: "bucket", value: name, remedy });
}
