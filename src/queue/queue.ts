import { createPayloads, type Codec, type Payloads } from "../core/codec.ts";
import { assertArgumentCount } from "../core/input/arguments.ts";
import type { Logger } from "../core/logger.ts";
import type { QueueSettings } from "../core/input/queue-settings.ts";
import { weightsOfKey } from "../core/policy/fair.ts";
import type { QueueDeclared } from "../core/stores/insight/store.ts";
import type { ChangeLog } from "../core/stores/insight/change-log.ts";
import type { Observing } from "../core/events/observer.ts";
import type { RateInput } from "../core/limits/rate.ts";
import type { Bucket, OwnedBucket } from "../throttle/bucket.ts";
import type { PreviewOptions } from "../throttle/bucket/facts/preview.ts";
import { storedQueueName, type ConnectQueue } from "./bullmq/connection.ts";
import { readAwaits, readJob, type Stored } from "./bullmq/stored-job.ts";
import { createStoredAccess, findDeduped, keepAccess } from "./bullmq/stored-queue.ts";
import { MAX_JOB_BYTES, type Schema } from "./enqueue/data.ts";
import { createElsewhere } from "./enqueue/declared-elsewhere.ts";
import {
  createEnqueuing,
  ENQUEUE_TAKES,
  keepOutboxRows,
  type Enqueuing,
} from "./enqueue/enqueue.ts";
import { createGroups, keepEnqueuing, type Groups } from "./enqueue/groups.ts";
import { queuedJob, type JobSource, type QueuedJob } from "./enqueue/job-handle.ts";
import { createWakeWatch } from "./enqueue/storing.ts";
import { createSettings, type QueueSettingsLive, type ReadSettings } from "./enqueue/settings.ts";
import { createSchedules, type Schedules } from "./enqueue/schedules.ts";
import { createExplanations } from "./forecast/explain.ts";
import { createForecasts, type Forecast, type QueuePreview } from "./forecast/forecast.ts";
import { createStatus, type QueueStatus } from "./forecast/status.ts";
import { decodeJob, mapInTurns, readJobId } from "./job.ts";
import {
  createLaneOrders,
  type Ordered,
  createWeights,
  type Weights,
  type WeightsOf,
} from "./lanes/lane-options.ts";
import { type KeyFilter, readDedupeId } from "./options.ts";
import { createBulkChanges, type BulkChanges, createRetriedRuns } from "./manage/bulk.ts";
import { createChanges, createNoteBulk } from "./manage/changes.ts";
import { createControl, type QueueSteering } from "./manage/control.ts";
import { createDeadLetters, type DeadLetters, createKeyCheck } from "./manage/dead-letters.ts";
import { createEventStream, type QueueEmitter } from "./manage/events.ts";
import type { Flows } from "./manage/flows.ts";
import { createFinishedWaits } from "./manage/finished.ts";
import { createPages, type JobsOptions } from "./manage/pages.ts";
import { createPauses, type Pauses } from "./manage/pauses.ts";
import { createSettingByHand, type SettingByHand } from "./manage/overrides.ts";
import type { EnqueueMiddleware } from "./enqueue/middleware.ts";
import {
  createMiddlewares,
  type Middleware,
  type Middlewares,
} from "./worker/handlers/middleware.ts";

/**
 * Durable jobs for one bucket, stored in Redis until a worker has a slot for them. Handlers get `Data` and return
 * `Result`. Producers enqueue `Input`, which the queue's schema turns into `Data`. Without a schema, `Input` and `Data`
 * are the same.
 */
export interface Queue<Data, Result = unknown, Input = Data>
  extends
    Enqueuing<Data, Result, Input>,
    Groups<Data, Result, Input>,
    Schedules,
    QueueSteering,
    Pauses,
    SettingByHand,
    BulkChanges,
    DeadLetters<Data>,
    QueueEmitter {
  readonly name: string;
  readonly bucket: Bucket;
  /**
   * Returns one page of the jobs that match, in all states or in one. Ended jobs come newest first. Other jobs are
   * ordered by when they are due or were enqueued. To get the next page, pass the `cursor` of this page, until a page
   * has no cursor. A page may have fewer jobs than `limit`, or none, because Redis does only bounded work for each
   * page. A job that keeps its state, priority and time is never missed. A job may appear twice.
   *
   * @throws {@link InvalidOptionError} when an option can never work.
   */
  jobs(options?: JobsOptions): Promise<JobsPage<Data, Result>>;
  /** Returns the job with this id, from any process. Undefined if the job does not exist. Throws as `counts` does. */
  job(id: string): Promise<QueuedJob<Data, Result> | undefined>;
  /**
   * Returns the job that has this `dedupeId`, from any process. If several jobs have it, returns the job that was
   * stored last. For a recurring job, returns its next run. Undefined if there is no such job. Throws as `counts` does.
   */
  jobOf(dedupeId: string): Promise<QueuedJob<Data, Result> | undefined>;
  /**
   * Returns when the backlog will be gone if nothing changes, computed from the active limits and all pending jobs.
   * With a key, the forecast covers the jobs of that key. The forecast has no time while no worker is alive. Limits on
   * concurrent calls are ignored, because the duration of handlers is unknown. If the shared limits do not count calls,
   * each job is assumed to cost one call. Throws as `counts` does.
   */
  forecast(options?: KeyFilter): Promise<Forecast>;
  /**
   * Predicts what a different bucket policy, or a pause of the bucket, would do to the backlog: when the backlog would
   * be gone, and which jobs would miss their deadlines. Computes this as `forecast` does, and changes nothing. Rejects
   * every change that `configure` rejects.
   *
   * @throws {@link InvalidOptionError} when the change can never work, or would change nothing. Throws as `counts`
   * does, too.
   */
  preview<const Rate extends RateInput = RateInput, const KeyRate extends RateInput = RateInput>(
    change: PreviewOptions<Rate, KeyRate>,
  ): Promise<QueuePreview>;
  /**
   * Returns the state of the queue across all processes. This includes the number of jobs in each state, the oldest due
   * job, why that job waits, and how much of its wait no limit explains. It also includes when the backlog will be
   * gone, how many workers are alive, how many are needed, and how recent attempts ended. Throws as `counts` does.
   */
  status(): Promise<QueueStatus>;
  /**
   * Adds functions around `enqueue` and around the handlers of the queue's workers in this process. They run inside the
   * middleware of the sluice, in the order in which they were added. Returns a function that removes them.
   *
   * @throws {@link InvalidOptionError} when it has no function, or something that is not a function.
   */
  use(middleware: Middleware<Data, Result, Input>): () => void;
  /** The queue's name and prefix in BullMQ, for dashboards such as bull-board: `new Queue(name, { prefix, connection })`. */
  readonly stored: { readonly name: string; readonly prefix: string };
}

/** A page of a queue's jobs. */
export interface JobsPage<Data, Result = unknown> {
  readonly jobs: QueuedJob<Data, Result>[];
  /** Pass this to `jobs()` to get the next page. Undefined on the last page. */
  readonly cursor: string | undefined;
}

/** A queue, with internal members that its sluice and its workers use. */
export interface OwnedQueue<Data, Result = unknown, Input = Data> extends Queue<
  Data,
  Result,
  Input
> {
  /** The weights of a key's lane and of its parent keys. */
  readonly weightsOf: WeightsOf;
  /** Checks the data of each job when it is enqueued, and again before it runs. */
  readonly schema: Schema<Data> | undefined;
  readonly maxJobBytes: number;
  readonly payloads: Payloads;
  /** The codecs that only other processes give this queue. */
  readonly missingCodecs: readonly string[];
  /** The queue settings that rules and operators can change, such as how many done jobs are kept. */
  readonly settings: QueueSettingsLive;
  /** The middleware of the sluice and of the queue. */
  readonly middlewares: Middlewares;
  close(): Promise<void>;
}

export interface QueueParts<Data> extends QueueSettings {
  readonly name: string;
  readonly bucket: OwnedBucket;
  readonly connect: ConnectQueue;
  /** Access to the flows of this queue and of the others. */
  readonly flows: Flows;
  readonly prefix: string;
  readonly timeoutMs: number;
  readonly logger: Logger;
  readonly weights?: Weights | undefined;
  readonly ordered?: Ordered | undefined;
  readonly schema?: Schema<Data> | undefined;
  readonly maxJobBytes?: number | undefined;
  readonly codec?: Codec | readonly Codec[] | undefined;
  /**
   * Reads the queue's settings from the rules and from operators' overrides. Undefined for a queue that neither can
   * change.
   */
  readonly readSettings?: ReadSettings | undefined;
  /** How other processes declare this queue in their code. Set only if this process does not declare the queue. */
  readonly elsewhere?: QueueDeclared | undefined;
  readonly observing?: Observing | undefined;
  readonly changeLog: ChangeLog;
  /** The middleware of the sluice. */
  readonly middlewares: Pick<Middlewares, "all">;
  /**
   * True for the queue of a webhook sender. Its jobs are Sluice's own, so no middleware runs when they are stored.
   */
  readonly isSender?: boolean | undefined;
}

export function createQueue<Data, Result = unknown, Input = Data>(
  settings: QueueParts<Data>,
): OwnedQueue<Data, Result, Input> {
  const { name, bucket, connect, prefix, timeoutMs, logger, schema } = settings;
  const { maxJobBytes = MAX_JOB_BYTES } = settings;
  const payloads = createPayloads(name, settings.codec);
  // Codecs may make the data larger or smaller, so its size is checked when it is encoded.
  const rules = { schema, maxJobBytes: payloads.codecs.length > 0 ? Infinity : maxJobBytes };
  const connection = connect("producer");
  const { lanes } = connection;
  const { elsewhere } = settings;
  const found = elsewhere && createElsewhere(name, elsewhere);
  // Jobs of a queue without weights have the weights of calls. In a process that does not declare the queue, a lane
  // keeps its stored weight.
  const ofBucket: WeightsOf = (key) =>
    key === undefined ? undefined : weightsOfKey(bucket.policy.fair, key);
  const ofDeclared =
    settings.weights === undefined ? ofBucket : createWeights(name, settings.weights);
  const ofCode = found === undefined ? ofDeclared : () => undefined;
  const access = createStoredAccess({ name, connection, prefix, timeoutMs, logger });
  const { readSettings: read } = settings;
  const live = createSettings({ code: settings, weightsOf: ofCode, read, logger });
  const weightsOf: WeightsOf = (key) => live.now.weightsOf(key);
  const events = createEventStream({ name, access, connection, logger, payloads });
  const waits = createFinishedWaits({ name, connection, access, events, payloads });
  const forecasts = createForecasts({ queue: name, bucket, lanes, access });
  const pages = createPages({ queue: name, access, lanes });
  const isOrdered = (settings.ordered ?? false) !== false || elsewhere?.ordered !== undefined;
  const withKeyCheck = createKeyCheck({ queue: name, access, lanes, isOrdered });
  const wakes = createWakeWatch((id) => connection.wakeFor({ queue: name, id }));
  const onDue = (id: string, atMs = 0): void => wakes.watch(id, atMs - access.clock.earliestMs());
  const changes = createChanges({ queue: name, access, lanes, onDue });
  const runParts = { queue: name, access, runs: connection.runs };
  const retriedRuns = createRetriedRuns(runParts);
  const { changeLog: log } = settings;
  const noteBulk = createNoteBulk({ queue: name, log, counts: () => control.counts() });
  const { flows } = settings;
  const stores = { access, lanes, pages, flows };
  const parts = {
    queue: name,
    ...stores,
    withKeyCheck,
    retriedRuns,
    noteBulk,
    onRemoved: async (ids: readonly string[]) => {
      waits.end(ids);
      await access.ask(() => flows.settleRemoved(name, ids));
    },
  };
  const bulk = createBulkChanges({ ...parts, changes });
  const control = createControl({ ...parts, bulk });
  const explain = createExplanations({
    queue: name,
    bucket,
    lanes,
    access,
    awaited: (id, most) => flows.awaited({ queue: name, id }, most),
  });
  const jobs: JobSource = {
    queue: name,
    access,
    isParked: forecasts.isParked,
    eta: async (id, about) => {
      const { awaits } = await access.ask((stored) => readAwaits(stored, id));
      return awaits ? undefined : forecasts.eta(id, about);
    },
    explain,
    flow: (id) => access.ask(() => flows.linksOf({ queue: name, id })),
    remove: (id) => control.remove(id),
    cancel: (id) => control.cancel(id),
    changes,
    jsonOf: (where, data) => jsonOf(where, data as Input),
    finished: waits.until,
    payloads,
  };
  const middlewares = createMiddlewares(settings.middlewares);
  const { enqueuing, linked, rows, jsonOf } = createEnqueuing<Data, Result, Input>({
    name,
    bucket,
    connection,
    logger,
    weightsOf,
    orderOf: found?.orderOf ?? createLaneOrders(name, settings.ordered),
    checkCost: found?.checkCost,
    checkCodec: found?.checkCodec,
    ...rules,
    mostStoredBytes: maxJobBytes,
    payloads,
    settings: live,
    observing: settings.observing,
    jobs,
    flows,
    wakes,
    middleware: () =>
      settings.isSender === true
        ? []
        : (middlewares
            .all()
            .flatMap((each) => each.enqueue ?? []) as unknown as readonly EnqueueMiddleware<
            Data,
            Result,
            Input
          >[]),
  });

  async function handleOf(stored: Stored<Data>): Promise<QueuedJob<Data, Result>> {
    return queuedJob(await decodeJob(payloads, readJob(stored)), jobs);
  }

  const steering = { queue: name, access, lanes, log };
  const { pauses, inverseOfPause } = createPauses(steering);

  const queue: Queue<Data, Result, Input> = {
    name,
    bucket,
    ...enqueuing,
    ...createGroups({ linked, flows }),
    ...createSchedules({ ...runParts, isParked: forecasts.isParked, onRemoved: waits.end }),
    async job(given) {
      const id = readJobId("job()", given);
      if (id === undefined) return undefined;
      const found = await access.ask((stored) => stored.getJob(id));
      return found && handleOf(found as Stored<Data>);
    },
    async jobOf(given) {
      const dedupeId = readDedupeId("jobOf()", given);
      const found = await access.ask(async (stored) => {
        const holder = await connection.holderOf({ queue: name, dedupeId });
        return findDeduped<Data>(stored, dedupeId, holder);
      });
      return found && handleOf(found);
    },
    stored: { name: storedQueueName(name), prefix },
    ...control,
    ...pauses,
    ...createSettingByHand({
      ...steering,
      settings: live,
      isSettable: read !== undefined,
      inverseOfPause,
    }),
    removeJobs: (filter, byHand) => bulk.removeJobs(filter, byHand),
    rescheduleJobs: (filter, due, byHand) => bulk.rescheduleJobs(filter, due, byHand),
    async jobs(options) {
      const { jobs: found, cursor } = await pages.read("jobs()", options);
      return { jobs: await mapInTurns(found, (each) => handleOf(each as Stored<Data>)), cursor };
    },
    ...createDeadLetters<Data>({
      ...parts,
      onDue,
      keepAll: () => connection.keepAllFailed({ queue: name }),
      payloads,
    }),
    forecast: forecasts.forecast,
    preview: forecasts.preview,
    status: createStatus({
      queue: name,
      bucket,
      lanes,
      access,
      explain,
      counts: () => control.counts(),
      glance: forecasts.glance,
      settings: () => live.status(),
    }),
    on: (event, listener, listening) => events.on(event, listener, listening),
    off: (event, listener) => events.off(event, listener),
    use: (middleware) => middlewares.use(middleware),
  };
  assertArgumentCount(queue, {
    throws: ["on", "off", "use", "group"],
    takes: { enqueue: ENQUEUE_TAKES },
  });
  const owned: OwnedQueue<Data, Result, Input> = Object.assign(queue, {
    weightsOf,
    missingCodecs: elsewhere?.codecs ?? [],
    schema,
    maxJobBytes,
    payloads,
    settings: live,
    middlewares,
    async close() {
      wakes.close();
      waits.close();
      await events.close();
      await access.close();
    },
  });
  keepAccess(owned, access);
  keepOutboxRows(owned, rows);
  keepEnqueuing(owned, linked);
  return owned;
}
