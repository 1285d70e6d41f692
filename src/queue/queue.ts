import type { Logger } from "../core/logger.ts";
import type { Bucket, OwnedBucket } from "../throttle/bucket.ts";
import { storedQueueName, type ConnectQueue } from "./bullmq/connection.ts";
import { MAX_JOB_BYTES, type Schema } from "./enqueue/data.ts";
import { createEnqueuing, type Enqueuing } from "./enqueue/enqueue.ts";
import { createSchedules, type Schedules } from "./enqueue/schedules.ts";
import { createForecasts, type Forecast } from "./forecast/forecast.ts";
import { createJobActions, queuedJob, type QueuedJob } from "./job-handle.ts";
import { readJobId } from "./job.ts";
import { readJob, type Stored } from "./bullmq/stored-job.ts";
import { createWeights, type Weights } from "./lanes/weights.ts";
import { createControl, type QueueControl } from "./manage/control.ts";
import { createDeadLetters, type DeadLetters } from "./manage/dead-letters.ts";
import { createEventStream, type QueueEmitter } from "./manage/events.ts";
import { createFinishedWaits } from "./manage/finished.ts";
import type { JobDefaults } from "./options.ts";
import { createStoredAccess } from "./bullmq/stored-queue.ts";

/**
 * Durable work for one bucket; it waits in Redis until a worker's slot comes.
 * `Data` is what its handlers get, and `Result` what they return. `Input` is what producers give, of which the
 * queue's schema makes `Data`; without a schema they are the same.
 */
export interface Queue<Data, Result = unknown, Input = Data>
  extends Enqueuing<Data, Result, Input>, Schedules, QueueControl, DeadLetters<Data>, QueueEmitter {
  readonly name: string;
  readonly bucket: Bucket;
  /** The job of this id, whoever enqueued it; undefined when it is not there. Throws as `counts` does. */
  job(id: string): Promise<QueuedJob<Data, Result> | undefined>;
  /**
   * What becomes of the backlog if nothing changes: reckoned from the limits of the bucket and of the keys that
   * are in force, and from all that waits. How long handlers take is not known, so limits on calls at once do not
   * count; where shared limits count no calls, each job is taken to cost one. Throws as `counts` does.
   */
  forecast(): Promise<Forecast>;
  /** How BullMQ knows the queue, for dashboards such as bull-board: `new Queue(name, { prefix, connection })`. */
  readonly stored: { readonly name: string; readonly prefix: string };
}

/** A queue, and the end of it. */
export interface OwnedQueue<Data, Result = unknown, Input = Data> extends Queue<
  Data,
  Result,
  Input
> {
  /** The weight of a key's lane, if it is not 1. */
  readonly weightOf: (key: string | undefined) => number | undefined;
  /** What checks the data of its jobs, on both ends. */
  readonly schema: Schema<Data> | undefined;
  readonly maxJobBytes: number;
  close(): Promise<void>;
}

export interface QueueSettings<Data> {
  readonly name: string;
  readonly bucket: OwnedBucket;
  readonly connect: ConnectQueue;
  readonly prefix: string;
  readonly timeoutMs: number;
  readonly logger: Logger;
  readonly weights?: Weights | undefined;
  readonly schema?: Schema<Data> | undefined;
  readonly maxJobBytes?: number | undefined;
  readonly defaults?: JobDefaults | undefined;
}

export function createQueue<Data, Result = unknown, Input = Data>(
  settings: QueueSettings<Data>,
): OwnedQueue<Data, Result, Input> {
  const { name, bucket, connect, prefix, timeoutMs, logger, schema } = settings;
  const { maxJobBytes = MAX_JOB_BYTES } = settings;
  const connection = connect("producer");
  const weightOf = createWeights(name, settings.weights);
  const access = createStoredAccess({ name, connection, prefix, timeoutMs, logger });
  const events = createEventStream({ name, access, connect, prefix, logger });
  const waits = createFinishedWaits(name, { access, events });
  const { lanes } = connection;
  const outlook = createForecasts({ queue: name, bucket, lanes, access });
  const steering = createControl({ queue: name, access, lanes, onRemoved: waits.end });
  const actions = createJobActions(access, {
    remove: (id) => steering.remove(id),
    until: waits.until,
    eta: outlook.eta,
    isParked: outlook.isParked,
  });
  const deadLetters = createDeadLetters<Data>(access, waits.end);
  const enqueuing = createEnqueuing<Data, Result, Input>({
    name,
    logger,
    bucket,
    lanes,
    weightOf,
    inTimeSince: (startedAtMs, question) => access.inTimeSince(startedAtMs, question),
    declareRun: (declaration) => connection.declareRun(name, declaration),
    rules: { schema, maxJobBytes },
    defaults: settings.defaults,
    actions,
    open: () => access.open("nothing was stored"),
  });

  return {
    name,
    bucket,
    weightOf,
    schema,
    maxJobBytes,
    ...enqueuing,
    ...createSchedules(access, (id) => steering.remove(id)),
    async job(given) {
      const id = readJobId("job()", given);
      if (id === undefined) return undefined;
      const found = await access.ask((stored) => stored.getJob(id));
      return found && queuedJob(readJob(found as Stored<Data>), actions);
    },
    stored: { name: storedQueueName(name), prefix },
    ...steering,
    ...deadLetters,
    forecast: outlook.forecast,
    on: (event, listener) => events.on(event, listener),
    off: (event, listener) => events.off(event, listener),
    async close() {
      waits.close();
      await events.close();
      await access.close();
    },
  };
}
