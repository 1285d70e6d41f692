import { InvalidOptionError } from "../core/errors.ts";
import type { Logger } from "../core/logger.ts";
import { settingName } from "../core/stores/insight/rules.ts";
import type { InsightStore, QueueFacts } from "../core/stores/insight/store.ts";
import type { SteeringLog } from "../core/stores/insight/steering-log.ts";
import type { Observing } from "../core/events/observer.ts";
import type { ConnectQueue } from "../queue/bullmq/connection.ts";
import { declaredOf } from "../queue/enqueue/elsewhere.ts";
import type { KeepDone, KeepFailed, MaxBacklog } from "../core/input/queue-settings.ts";
import { withKeptDefaults } from "../queue/options.ts";
import { createQueue, type OwnedQueue, type Queue } from "../queue/queue.ts";
import type { Bucket } from "../throttle/bucket.ts";
import { assertSame, type Buckets, type Declaration } from "./buckets.ts";
import { readQueueOptions, type QueueOptions } from "./options.ts";

/** A queue, whatever its jobs hold. */
type AnyQueue = Pick<OwnedQueue<unknown>, "name" | "bucket" | "close">;

/** A queue that this process declares, and what others are told of it. */
interface Opened {
  readonly queue: AnyQueue;
  readonly facts: QueueFacts;
}

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
  /**
   * The queue of this name as other processes declare it, unless this one does; undefined if none has had it open in the
   * last 30 days.
   */
  find<Data, Result>(name: string): Promise<Queue<Data, Result> | undefined>;
  /** The same object, if it is a queue of this sluice. */
  owned(queue: unknown): AnyQueue | undefined;
  /** Says, before it is opened, that the queue of this name is that of a sender of webhooks. */
  noteSender(name: string): void;
  /** What other processes are told of them. */
  told(): QueueFacts[];
  /** Whether the queue was opened with connections of its own. */
  hasOwnConnections(name: string): boolean;
  close(): Promise<void>;
}

export interface QueuesParts {
  readonly buckets: Pick<Buckets, "of" | "find">;
  readonly insight: Pick<InsightStore, "queue" | "ruledOf" | "settingsByHand">;
  readonly steeringLog: SteeringLog;
  readonly prefix: string;
  readonly timeoutMs: number;
  readonly logger: Logger;
  readonly observing?: Observing | undefined;
  /** Called when a queue has been opened, which has not been told yet. */
  readonly onOpened: () => void;
  /** @throws {@link RedisRequiredError} when the sluice has no Redis. */
  readonly connectFor: (where: string, queue: string, own?: boolean) => ConnectQueue;
}

export function createQueues(parts: QueuesParts): Queues {
  const { buckets, insight, connectFor, onOpened, ...common } = parts;
  const queues = new Map<string, Opened>();
  const senders = new Set<string>();
  /** Those of other processes that were looked for, by what was known of them. */
  const found = new Map<string, Promise<AnyQueue | undefined>>();
  /** The options that each queue was declared with first. */
  const declarations = new Map<string, Declaration>();

  /** A sender of webhooks stores each retry as a job: a bound on what waits would lose some. */
  function settingsOf(name: string, isSender: boolean) {
    if (isSender) return undefined;
    return {
      rules: async () => (await insight.ruledOf([settingName("queue", name)]))[0],
      // Not by the queue's connection: a process that only works has none.
      byHand: () => insight.settingsByHand(name),
    };
  }

  async function openFound(facts: QueueFacts): Promise<AnyQueue | undefined> {
    const { name, bucket: bucketName, declared } = facts;
    const bucket = await buckets.find(bucketName);
    if (bucket === undefined) return undefined;
    const { defaults, maxJobBytes, isSender = false } = declared;
    const maxBacklog = declared.maxBacklog as number | MaxBacklog | undefined;
    const keepDone = declared.keepDone as KeepDone | undefined;
    const keepFailed = declared.keepFailed as KeepFailed | undefined;
    const connect = connectFor("findQueue()", name);
    const told = { defaults, maxJobBytes, maxBacklog, keepDone, keepFailed, elsewhere: declared };
    const readSettings = settingsOf(name, isSender);
    return createQueue({ ...common, name, bucket, connect, readSettings, ...told });
  }

  return {
    open<Data, Result, Input>(where: string, name: string, given: QueueOptions<Data, Input>) {
      if (given === undefined) {
        const remedy = `give what sluice.bucket() returned: sluice.queue(${JSON.stringify(name)}, { bucket })`;
        throw wrongBucket(where, undefined, remedy);
      }
      const read = readQueueOptions(where, given) as QueueOptions<Data, Input>;
      const { bucket, keepDone, ...others } = read;
      const behaviour = { ...others, keepDone: keepDone && withKeptDefaults(keepDone) };
      const owned = buckets.of(bucket.name);
      if (owned === undefined || owned !== bucket) {
        throw wrongBucket(where, bucket, "give what bucket() of this sluice returned");
      }
      const opened = queues.get(name)?.queue as OwnedQueue<Data, Result, Input> | undefined;
      if (opened !== undefined && opened.bucket !== bucket) {
        const its = opened.bucket.name;
        const remedy = `the queue leaves through bucket "${its}"; give it one bucket`;
        throw wrongBucket(where, bucket, remedy);
      }
      if (opened !== undefined) {
        assertSame(where, "queue", { first: declarations.get(name)!, later: { ...behaviour } });
        return opened;
      }
      const connect = connectFor(where, name, others.ownConnections);
      const readSettings = settingsOf(name, senders.has(name));
      const made = { ...common, name, bucket: owned, connect, readSettings, ...behaviour };
      const queue = createQueue<Data, Result, Input>(made);
      const isSender = senders.has(name) ? { isSender: true } : {};
      const declared = { ...declaredOf({ ...behaviour, bucket: owned }), ...isSender };
      queues.set(name, { queue, facts: { name, bucket: bucket.name, declared } });
      const kept = withKeptDefaults(keepDone);
      declarations.set(name, { ...behaviour, maxJobBytes: queue.maxJobBytes, keepDone: kept });
      onOpened();
      return queue;
    },
    async find<Data, Result>(name: string) {
      const opened = queues.get(name);
      if (opened !== undefined) return opened.queue as OwnedQueue<Data, Result>;
      const facts = await insight.queue(name);
      if (facts === undefined) return undefined;
      const text = JSON.stringify(facts);
      const opening = found.get(text) ?? openFound(facts);
      found.set(text, opening);
      try {
        const queue = await opening;
        if (queue === undefined) found.delete(text);
        return queue as OwnedQueue<Data, Result> | undefined;
      } catch (error) {
        found.delete(text);
        throw error;
      }
    },
    owned(queue) {
      const opened = queues.get((queue as AnyQueue | undefined)?.name ?? "")?.queue;
      return opened === queue ? opened : undefined;
    },
    noteSender: (name) => void senders.add(name),
    told: () => [...queues.values()].map(({ facts }) => facts),
    hasOwnConnections: (name) => declarations.get(name)?.["ownConnections"] === true,
    async close() {
      const others = (await Promise.all(found.values())).filter((queue) => queue !== undefined);
      const own = [...queues.values()].map(({ queue }) => queue);
      await Promise.all([...own, ...others].map((queue) => queue.close()));
    },
  };
}

function wrongBucket(where: string, bucket: unknown, remedy: string): InvalidOptionError {
  return new InvalidOptionError({
    where,
    option: "bucket",
    value: (bucket as Partial<Bucket> | undefined)?.name ?? bucket,
    remedy,
  });
}
