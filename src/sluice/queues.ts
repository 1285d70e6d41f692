import { createPayloads, type Payloads } from "../core/codec.ts";
import { InvalidOptionError } from "../core/errors.ts";
import type { Logger } from "../core/logger.ts";
import { layered } from "../core/input/options.ts";
import { completeSettings, INITIAL_SETTINGS } from "../core/input/queue-settings.ts";
import { settingName } from "../core/stores/insight/rules.ts";
import type { InsightStore, QueueFacts } from "../core/stores/insight/store.ts";
import type { ChangeLog } from "../core/stores/insight/change-log.ts";
import type { Observing } from "../core/events/observer.ts";
import type { ConnectQueue } from "../queue/bullmq/connection.ts";
import { declaredOf } from "../queue/enqueue/declared-elsewhere.ts";
import { createQueue, type OwnedQueue, type Queue } from "../queue/queue.ts";
import type { Flows } from "../queue/manage/flows.ts";
import type { Middlewares } from "../queue/worker/handlers/middleware.ts";
import type { Bucket } from "../throttle/bucket.ts";
import { assertSame, type Buckets, type Declaration } from "./buckets.ts";
import { readQueueOptions, type QueueOptions } from "./options.ts";

/** A queue with any type of job. */
type AnyQueue = Pick<OwnedQueue<unknown>, "name" | "bucket" | "close" | "payloads">;

/** A queue that this process declares, and the process's report about this queue. */
interface Opened {
  readonly queue: AnyQueue;
  readonly facts: QueueFacts;
}

/** The queues of one sluice. */
export interface Queues {
  /**
   * Opens the queue with this name. Returns the same object each time.
   *
   * @throws {@link InvalidOptionError} when the options can never work, or when the queue was
   * opened with other options before.
   */
  open<Data, Result, Input>(
    where: string,
    name: string,
    options: QueueOptions<Data, Input>,
  ): Queue<Data, Result, Input>;
  /**
   * Finds the queue with this name as this process declares it, or else as other processes declare
   * it. Resolves with undefined if no process had the queue open in the last 30 days.
   */
  find<Data, Result>(name: string): Promise<Queue<Data, Result> | undefined>;
  /** Returns the given object if it is a queue of this sluice, otherwise undefined. */
  owned(queue: unknown): AnyQueue | undefined;
  /** Marks a queue, before it is opened, as the queue of a webhook sender. */
  noteSender(name: string): void;
  /** Returns this process's reports about its queues. */
  facts(): QueueFacts[];
  /** Returns the codecs of a queue. A queue that this process has not opened has none here. */
  payloadsOf(name: string): Payloads;
  /** True if the queue was opened with `ownConnections`. */
  hasOwnConnections(name: string): boolean;
  close(): Promise<void>;
}

export interface QueuesParts {
  readonly buckets: Pick<Buckets, "of" | "find">;
  readonly insight: Pick<InsightStore, "queue" | "ruledOf" | "settingsByHand">;
  readonly changeLog: ChangeLog;
  readonly prefix: string;
  readonly timeoutMs: number;
  readonly logger: Logger;
  readonly observing?: Observing | undefined;
  /** The middleware of the sluice. */
  readonly middlewares: Pick<Middlewares, "all">;
  /** Access to the flows of all queues. */
  readonly flows: Flows;
  /** Called when a queue was opened, so that the process reports it. */
  readonly onOpened: () => void;
  /** @throws {@link RedisRequiredError} when the sluice has no Redis. */
  readonly connectFor: (where: string, queue: string, own?: boolean) => ConnectQueue;
}

export function createQueues(parts: QueuesParts): Queues {
  const { buckets, insight, connectFor, onOpened, ...common } = parts;
  const queues = new Map<string, Opened>();
  const senders = new Set<string>();
  /**
   * The queues of other processes that were looked up. The map key is the queue's report as JSON.
   */
  const found = new Map<string, Promise<AnyQueue | undefined>>();
  /** The options with which each queue was first opened. */
  const declarations = new Map<string, Declaration>();

  /**
   * Returns the functions that read the queue's settings from rules and operators. The queue of a
   * webhook sender has none: the sender stores each retry as a job, and a backlog limit would lose
   * some of these jobs.
   */
  function settingsOf(name: string, isSender: boolean) {
    if (isSender) return undefined;
    return {
      rules: async () => (await insight.ruledOf([settingName("queue", name)]))[0],
      // Reads through the insight store instead of the queue's connection, because a process that
      // only runs workers has no such connection.
      byHand: () => insight.settingsByHand(name),
    };
  }

  async function openFound(facts: QueueFacts): Promise<AnyQueue | undefined> {
    const { name, bucket: bucketName, declared } = facts;
    const bucket = await buckets.find(bucketName);
    if (bucket === undefined) return undefined;
    const { maxJobBytes, isSender = false } = declared;
    const reported = { ...completeSettings(declared), maxJobBytes, elsewhere: declared };
    const connect = connectFor("findQueue()", name);
    const readSettings = settingsOf(name, isSender);
    return createQueue({ ...common, name, bucket, connect, readSettings, isSender, ...reported });
  }

  return {
    open<Data, Result, Input>(where: string, name: string, given: QueueOptions<Data, Input>) {
      if (given === undefined) {
        const remedy = `give the result of sluice.bucket(): sluice.queue(${JSON.stringify(name)}, { bucket })`;
        throw wrongBucket(where, undefined, remedy);
      }
      const read = readQueueOptions(where, given) as QueueOptions<Data, Input>;
      const { bucket, ...others } = read;
      const behaviour = { ...others, ...completeSettings(others) };
      const owned = buckets.of(bucket.name);
      if (owned === undefined || owned !== bucket) {
        throw wrongBucket(where, bucket, "give what bucket() of this sluice returned");
      }
      const opened = queues.get(name)?.queue as OwnedQueue<Data, Result, Input> | undefined;
      if (opened !== undefined && opened.bucket !== bucket) {
        const its = opened.bucket.name;
        const remedy = `the queue draws from bucket "${its}"; use the same bucket here`;
        throw wrongBucket(where, bucket, remedy);
      }
      if (opened !== undefined) {
        assertSame(where, "queue", { first: declarations.get(name)!, later: { ...behaviour } });
        return opened;
      }
      const connect = connectFor(where, name, others.ownConnections);
      const readSettings = settingsOf(name, senders.has(name));
      const ofSender = { isSender: senders.has(name) };
      const made = {
        ...common,
        name,
        bucket: owned,
        connect,
        readSettings,
        ...ofSender,
        ...behaviour,
      };
      const queue = createQueue<Data, Result, Input>(made);
      const isSender = senders.has(name) ? { isSender: true } : {};
      const declared = { ...declaredOf({ ...behaviour, bucket: owned }), ...isSender };
      queues.set(name, { queue, facts: { name, bucket: bucket.name, declared } });
      const inForce = { maxJobBytes: queue.maxJobBytes, ...INITIAL_SETTINGS };
      declarations.set(name, layered<Declaration>(inForce, behaviour)!);
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
    facts: () => [...queues.values()].map(({ facts }) => facts),
    payloadsOf: (name) => queues.get(name)?.queue.payloads ?? createPayloads(name),
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
