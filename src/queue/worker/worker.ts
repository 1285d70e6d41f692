/**
 * Creates a worker, which passes each job through these steps:
 *
 *     taken ──▶ which deadline? ──▶ waits for a slot ──▶ handler ──▶ done, failed, delayed
 *                                     │ its key has no room within `patienceMs`: parked in its lane
 *                                     │ too late: fails as expired
 *                                     │ the worker closes: back into the queue
 *
 * A job that has started before has met its `maxWaitMs`. A job fails for good if too many workers died while it ran
 * (`job-start.ts`). BullMQ's worker holds the job (`bullmq/stored-worker.ts`), and `held/held-jobs.ts` renews the job's
 * lock until the job ends.
 */
import { availableParallelism } from "node:os";
import { setTimeout as pause, setImmediate as nextTurn } from "node:timers/promises";
import type { Worker as StoredWorker } from "bullmq";
import type { Payloads } from "../../core/codec.ts";
import { assertArgumentCount } from "../../core/input/arguments.ts";
import { reasonOf } from "../../core/describe.ts";
import { InvalidOptionError } from "../../core/errors.ts";
import { headsOfText } from "../../core/key-path.ts";
import { sampled, type Logger } from "../../core/logger.ts";
import type { Observing } from "../../core/events/observer.ts";
import type { Arrival } from "../../stores/redis/scripts/queue/lanes.ts";
import type { JobsLeft } from "../../stores/redis/scripts/queue/steering.ts";
import type { OwnedBucket } from "../../throttle/bucket.ts";
import type { Pass } from "../../throttle/outage/breaker.ts";
import { createLru } from "../../throttle/lru.ts";
import { DrawnSlot } from "../../throttle/slot/slot.ts";
import { NoRoomYet } from "../../throttle/waiting/waiting-call.ts";
import type { ConnectQueue } from "../bullmq/connection.ts";
import {
  fillDefaults,
  encodedKeyOf,
  blamedParentIn,
  hasParents,
  wasCancelled,
  type Stored,
  forgetCancel,
} from "../bullmq/stored-job.ts";
import {
  createStoredWorker,
  storedJobOf,
  type AnyWorker,
  type HeldJob,
} from "../bullmq/stored-worker.ts";
import type { Schema } from "../enqueue/data.ts";
import type { QueueSettingsLive } from "../enqueue/settings.ts";
import { floorsOf } from "../../core/policy/fair.ts";
import { createFetcher, probeOf, type Fetcher } from "../lanes/fetcher.ts";
import { parkFromWorker } from "../lanes/park.ts";
import { keyTextOf, mapInTurns, type Job } from "../job.ts";
import {
  createPresence,
  createReport,
  type WorkerEmitter,
  type WorkerReport,
  type WorkerStatus,
} from "./report.ts";
import { weightsOrNone, type WeightsOf } from "../lanes/lane-options.ts";
import {
  readCloseOptions,
  readDrainOptions,
  readWorkerOptions,
  type BatchOptions,
  type CloseOptions,
  type DrainOptions,
  type WorkerOptions,
} from "./worker-options.ts";
import { CANCELLED } from "../errors.ts";
import { loadBullmq } from "../bullmq/load-bullmq.cjs";
import { encodedResult, runAttempt, UncountedFailure } from "./attempt.ts";
import { createDownstream } from "./held/downstream.ts";
import {
  createRunning,
  type BatchHandler,
  type HandlerInput,
  type OwnedJobContext,
  type WorkerContext,
} from "./context.ts";
import { drain, type Drainable, type Drained } from "./drain.ts";
import { createBatches } from "./handlers/batches.ts";
import { createFetchedJobs, createJobLocks, createJobOrders } from "./held/held-jobs.ts";
import {
  aroundBatch,
  aroundHandler,
  createMiddlewares,
  type Middlewares,
  type WorkerMiddleware,
} from "./handlers/middleware.ts";
import { areHandlers, openHandler } from "./handlers/open-handler.ts";
import {
  createJobSlots,
  decodeFetched,
  mayHaveBegun,
  noteStart,
  readFetched,
} from "./job-start.ts";
import type { Flows } from "../manage/flows.ts";
import { createChildReports } from "./held/child-reports.ts";
import { cancelledFailure, HandOver, parentFailure } from "./outcome.ts";
import { createFailedRetention, createRetention } from "./retention.ts";
import { createScheduledRuns, runOf } from "./runs.ts";
import { createJobReturns, type JobReturns } from "./held/job-returns.ts";
import { createHandedOver, type HandedOver } from "./held/handed-over.ts";
import { limitFrom } from "./held/receipt.ts";

/** Runs the jobs of a queue. The worker draws a slot for each job just before the job's handler runs. */
export interface Worker<Data = unknown, Result = unknown> extends WorkerEmitter<Data, Result> {
  /** Returns the worker's current state, read from local memory. Makes no request to Redis. */
  status(): WorkerStatus;
  /**
   * Stops the worker. The worker fetches no more jobs, puts jobs without a slot back into the queue, and waits for
   * running handlers. At the deadline, it aborts the signals of handlers that still run. Their jobs run again in other
   * workers once their locks have expired. No handler starts after this promise resolves. If you call this several
   * times, the earliest deadline counts. A handler must not await this call, because the handler would wait for itself
   * until the deadline.
   */
  close(options?: CloseOptions): Promise<void>;
  /**
   * Works until nothing was left for `idleMs` that could run, then closes the worker. Resolves with what the worker did
   * since it was created. Waits for jobs of other workers, for the rate of the bucket, and for jobs that are due within
   * `idleMs`. Jobs that are due later stay in the queue: delayed jobs, retries and the next runs of recurring jobs. So
   * do the jobs of a queue, key or bucket that is paused for longer than `idleMs`. An outage of Redis is waited for.
   *
   * @throws {@link InvalidOptionError} when `idleMs` can never work.
   * @throws {@link StoreUnavailableError} when Redis is unreachable at the start. The worker then keeps running.
   */
  drain(options?: DrainOptions): Promise<Drained>;
  /**
   * Adds functions around the handler of this worker. They run inside the middleware of the sluice and of the queue, in
   * the order in which they were added. Returns a function that removes them.
   *
   * @throws {@link InvalidOptionError} when it has no function, something that is not a function, or `enqueue`.
   */
  use(middleware: WorkerMiddleware<Data, Result>): () => void;
  [Symbol.asyncDispose](): Promise<void>;
}

/** A worker, with its internal members. */
export interface OwnedWorker<Data = unknown, Result = unknown> extends Worker<Data, Result> {
  /** Drains the worker together with others. */
  readonly drainable: Drainable;
  /** Ends the jobs of this queue that programs outside of this process run. */
  readonly handedOver: HandedOver & {
    /** Called when {@link Demand.jobs} has changed. */
    onDemand(): void;
  };
}

/** Bounds the jobs of a worker by the demand of the programs that run them. */
export interface Demand {
  /** Returns how many more jobs these programs wait for. The worker fetches no job without a demand. */
  readonly jobs: () => number;
}

export interface WorkerSettings<Data, Result> {
  /** An id that no other worker has. */
  readonly workerId: string;
  readonly queue: { readonly name: string };
  readonly bucket: OwnedBucket;
  readonly handler: HandlerInput<Data, Result> | BatchHandler<Data, Result>;
  readonly schema: Schema<Data> | undefined;
  readonly payloads: Payloads;
  /** Returns the codecs of another queue, whose jobs may be parents. */
  readonly payloadsOf: (queue: string) => Pick<Payloads, "decode">;
  readonly options: WorkerOptions | undefined;
  readonly connect: ConnectQueue;
  /** Access to the flows of this queue and of the others. */
  readonly flows: Flows;
  readonly prefix: string;
  /** How long a request to Redis may take before it counts as lost. */
  readonly timeoutMs: number;
  readonly logger: Logger;
  readonly observing?: Observing | undefined;
  /** The weights of a key's lane and of its parent keys. */
  readonly weightsOf: WeightsOf;
  /** Which done jobs and dead letters to keep. */
  readonly kept: Pick<QueueSettingsLive, "now" | "current">;
  /** The middleware of the sluice and of the queue. */
  readonly middlewares: Pick<Middlewares, "all">;
  readonly onClosed: () => void;
  /** Undefined if the handler runs the jobs itself. */
  readonly demand?: Demand | undefined;
}

const CLOSED = "the worker is closed";
/** With shorter locks, an idle worker searches for expired locks of other workers as often as a busy worker. */
const LEAST_QUIET_LOCK_MS = 30_000;
/** How long a closing worker waits for Redis, after its handlers have ended, to store the outcomes of their jobs. */
const REDIS_GRACE_MS = 2_000;
/** The least number of jobs that a worker fetches for programs that wait for as many. */
const LEAST_HANDED = 8;
/** How often a worker tries to extend the lock of a job that it hands over. */
const MOST_LOCK_ATTEMPTS = 3;
/** The most handed-over jobs that a worker remembers. */
const MOST_HANDED = 100_000;

export function createWorker<Data, Result>(
  settings: WorkerSettings<Data, Result>,
): OwnedWorker<Data, Result> {
  const { queue, bucket, connect, prefix, onClosed, demand } = settings;
  const options = readWorkerOptions(settings.options);
  const isInline = typeof settings.handler === "function" || areHandlers(settings.handler);
  const { timeoutMs, batch, failOnResponse = true } = options;
  const { concurrency: atOnce = isInline ? 50 : availableParallelism() } = options;
  const concurrency = atOnce * (batch?.size ?? 1);
  const { closeDeadlineMs = 30_000, lockMs = 30_000, patienceMs = 250 } = options;
  const logger = sampled(settings.logger, () => performance.now());
  const opening = { processes: atOnce, logger, failOnResponse };
  const opened = openHandler(singleHandler(settings.handler, batch), opening);
  const middlewares = createMiddlewares(settings.middlewares, true);
  const connection = connect("worker");
  const running = createRunning();
  const reported = { queue: queue.name, payloads: settings.payloads, logger: settings.logger };
  const report = createReport<Data, Result>(reported, settings.observing);
  let status: Pick<WorkerStatus, "state" | "sinceMs"> = { state: "running", sinceMs: Date.now() };
  const shared = { bucket, connection, lanes: connection.lanes, running };
  const downstream = createDownstream({ queue: queue.name, ...shared });
  const capacity = (): number => {
    const free = concurrency - running.count + downstream.undecided;
    return demand === undefined ? free : Math.min(free, demand.jobs() - running.unbegun);
  };
  const worker: WorkerContext<Data, Result> = {
    queue: queue.name,
    workerId: settings.workerId,
    ...shared,
    clock: connection.clockOf(queue.name),
    downstream,
    prefix,
    logger,
    handler: aroundHandler(opened.handle, middlewares),
    schema: settings.schema,
    payloads: settings.payloads,
    concurrency,
    lockMs,
    patienceMs,
    timeoutMs,
    failOnResponse,
    weightsOf: weightsOrNone(settings.weightsOf, (error) => {
      const message = "weights failed; the key's lane counts with weight 1.";
      logger.warn({ queue: queue.name, reason: reasonOf(error) }, message);
    }),
    capacity,
    // While jobs wait here, admits one job less, so that only one job tests the downstream.
    admits: () => (running.unbegun === 0 ? bucket.breaker.admits : bucket.breaker.admits - 1),
    deferred: () => bucket.deferred,
    floors: () => floorsOf(bucket.policy),
  };
  const slots = createJobSlots(worker);
  const batches =
    batch &&
    createBatches<Data, Result>(worker, {
      slots,
      handler: aroundBatch(settings.handler as BatchHandler<Data, Result>, {
        ...middlewares,
        onSkipped() {
          const problem = `A middleware of queue "${queue.name}" has a handler function and no batch function, so it does not run for batches.`;
          logger.warn({ queue: queue.name }, problem);
        },
      }),
      options: batch,
    });
  const fetchedJobs = createFetchedJobs(worker);
  const orders = createJobOrders({
    ...worker,
    onMissed: (id) => void removeCancelled(worker, id),
  });
  const fetcher = createFetcher({
    ...worker,
    applyOrders: (...seen) => orders.apply(...seen),
    onFlows: () => children.begin(),
    // Room for two batches: one that waits for its slot, and one that fills. Programs outside may ask for many at once.
    least: batch === undefined ? (demand === undefined ? 1 : LEAST_HANDED) : 2 * batch.size,
    // If no program waits here, a worker in another process may have room for the job.
    onUnused: demand && (() => void connection.wakeIdle({ queue: queue.name }).catch(() => {})),
  });
  const isIdle = (): boolean => running.count === 0 && fetcher.isQuiet;
  const children = createChildReports({
    queue: queue.name,
    flows: settings.flows,
    isUsed: () => connection.flows.isUsed({ queue: queue.name }),
  });
  const presence = createPresence({ ...worker, isIdle, tally: report.tally });
  const runs = createScheduledRuns(worker);
  const back = createJobReturns<Data>({ ...worker, runs }, fetcher, report);
  /** The breaker's passes of the jobs that this worker has handed over, by the tokens of their locks. */
  const handed = createLru<Pass>(MOST_HANDED);
  let closing: Promise<void> | undefined;
  /** The number of changes of limits, cooldowns and pauses so far. */
  let changes = 0;
  const stopListening = bucket.onChange((key = "*") => {
    changes += 1;
    fetcher.wake(key);
  });

  // An idle worker need not look for expired locks: each worker stops being idle before the lock of any new job can
  // expire.
  const mayStall = (): boolean => lockMs < LEAST_QUIET_LOCK_MS || !isIdle();
  connection.restWhile(() => !mayStall());
  const storedParts = { ...worker, mayStall, onStored: runs.settle, onRecovered: runs.recover };
  const ends = { ...storedParts, onEnded: children.note };
  const stored = createStoredWorker(ends, fetcher, process);
  report.follow(stored);
  connection.onReady(
    () => void giveLostBack(worker, stored, fetcher, (token) => handed.has(token)),
  );
  forgetCancels(stored);
  const locks = createJobLocks({
    running,
    lockMs,
    extend: (...asked) => stored.extendJobLocks(...asked),
    onError: (error) => void stored.emit("error", error),
  });
  // Emits no error while Redis is unreachable, because the outage is reported already.
  const onForgetError = (error: Error): void =>
    void (connection.isReady() && stored.emit("error", error));
  const { kept } = settings;
  const settle = (ids: readonly string[]): Promise<void> => settings.flows.settle(queue.name, ids);
  const forgetDone = async (): Promise<void> => {
    const bounds = { queue: queue.name, ...(await kept.current()).keepDone };
    const unsettled = await connection.forgetDone(bounds);
    if (unsettled.length === 0) return;
    // The worker that ended these jobs has not notified their children. Until then, the jobs stay.
    await settle(unsettled);
    await connection.forgetDone(bounds);
  };
  const retention = createRetention(forgetDone, onForgetError, () => kept.now.keepDone.forMs);
  stored.on("completed", () => retention.note());
  const failedRetention = createFailedRetention({
    queue: queue.name,
    kept,
    async forget(given) {
      const bounds = { queue: queue.name, ...given };
      const { removed, unsettled } = await connection.forgetFailed(bounds);
      if (unsettled.length === 0) return removed;
      await settle(unsettled);
      return removed + (await connection.forgetFailed(bounds)).removed;
    },
    onError: onForgetError,
    logger: settings.logger,
  });
  stored.on("failed", (job) => void (job?.finishedOn !== undefined && failedRetention.note()));

  async function process(bullJob: Stored<Data>, taken: HeldJob): Promise<Result | undefined> {
    const { token, arrival, takenAtMs } = taken;
    fillDefaults(bullJob);
    const attempt = bullJob.attemptsMade + 1;
    const call = { id: bullJob.id!, key: encodedKeyOf(bullJob) };
    // An expired job has no key here, so that it fails even while its key is paused.
    const key = arrival === "expired" ? undefined : call.key;
    const context = running.add({ jobId: call.id, key, token, attempt, lockedAtMs: takenAtMs });
    fetchedJobs.add();
    orders.add(context);
    const run = runOf(taken);
    let drawn: DrawnSlot | NoRoomYet | undefined;
    let pass: Pass | undefined;
    let isKept = false;
    try {
      if (wasCancelled(taken.fields)) {
        // If a handler may have started this cancelled job before, the job ends as failed. Otherwise it is removed.
        if (mayHaveBegun(bullJob)) throw cancelledFailure(bullJob.id!);
        context.cancel();
      }
      if (children.hasBegun) {
        const blamed = blamedParentIn(taken.fields);
        if (blamed !== undefined) throw parentFailure(blamed);
        if (hasParents(taken.fields)) {
          const own = { queue: queue.name, id: bullJob.id! };
          context.readParents = async () =>
            mapInTurns(await settings.flows.outcomes(own), async (parent) => {
              const of = { kind: "result", id: parent.id } as const;
              const decoded = settings.payloadsOf(parent.queue).decode(parent.result, of);
              return { ...parent, result: await decoded };
            });
        }
      }
      const reading = readFetched(worker, bullJob);
      let job = reading instanceof Promise ? await reading : reading;
      const refusal = opened.refusalOf(job);
      if (refusal !== undefined) throw refusal;
      const isReady = opened.ready();
      if (isReady !== undefined) await isReady;
      const blocked = arrival === "expired" ? undefined : bucket.breaker.blocked(call);
      if (blocked !== undefined && !context.isLeaving)
        return await back.holdBack(bullJob, context, blocked);
      if (run !== undefined && !(await runs.mayWait(run))) return back.leave();
      if (arrival !== "expired") {
        const decoding = decodeFetched(worker, bullJob, job);
        if (decoding instanceof Promise) job = await decoding;
      }
      const changesBefore = changes;
      drawn = await draw(job, context, arrival);
      while (drawn instanceof DrawnSlot && !orders.areFresh) {
        release(context, drawn);
        await orders.untilFresh(context);
        drawn = await draw(job, context, arrival);
      }
      if (drawn instanceof NoRoomYet && !context.isLeaving) {
        const { roomInMs } = drawn;
        // After a change of limits, the computed time is no longer valid. The change woke the lane before the job was
        // in it, so the job must not wait for that time.
        const inMs = () => (changesBefore === changes ? Math.ceil(roomInMs) : undefined);
        return await back.park(bullJob, context, { inMs, of: drawn.of });
      }
      if (!(drawn instanceof DrawnSlot)) return await back.giveBack(bullJob, context, run);
      if (!locks.isHeld(context) && !(await locks.confirm(context))) return back.leave();
      if (context.isLeaving) return await back.giveBack(bullJob, context, run);
      const entered = bucket.breaker.enter(call);
      if (!entered.passes) return await back.holdBack(bullJob, context, entered);
      pass = entered;
      if (run !== undefined && !(await runs.mayBegin(run, token))) return back.leave();
      running.started(context);
      fetchedJobs.remove(context.jobId);
      const noting = noteStart(worker, bullJob, job);
      fetcher.start(call.key, probeOf(job, arrival, drawn));
      if (noting !== undefined) await noting;
      if (context.isLeaving) return await back.giveBack(bullJob, context);
      report.started(bullJob);
      const { hasLease } = drawn;
      try {
        const attempt = { stored: bullJob, job, context, slot: drawn, pass };
        const ended = await (batches?.run(attempt) ?? runAttempt(worker, attempt));
        if (!(ended instanceof HandOver)) {
          if (!worker.payloads.mustEncode(ended)) return ended;
          report.noteResult(bullJob, ended);
          return await encodedResult(worker, job, ended);
        }
        if (ended.isRefused) return await back.giveBack(bullJob, context);
        isKept = ended.keepsSlot;
        handed.set(token, pass);
        // From here on, only the program that runs the job renews its lock.
        context.isGoingBack = true;
        if (ended.lockMs !== undefined) {
          await keepLock(call.id, token, ended.lockMs);
          const limit = limitFrom(drawn.atMs, context.limitMs);
          handedOver.limit({ id: call.id, token, limit });
        }
        return back.leave();
      } catch (error) {
        if (error instanceof UncountedFailure)
          return await back.returnUncounted(bullJob, context, { error, pass });
        throw error;
      } finally {
        if (hasLease && !isKept && key !== undefined)
          for (const head of headsOfText(key)) fetcher.wake(head);
      }
    } catch (error) {
      const isUnbegunRun = run !== undefined && !context.hasBegun;
      if (isUnbegunRun && !(await runs.mayFail(run, token, error))) return back.leave();
      throw error;
    } finally {
      if (pass !== undefined && !handed.has(token)) bucket.breaker.release(call, pass);
      running.end(context);
      if (!isKept) release(context, drawn);
      fetchedJobs.remove(context.jobId);
      fetcher.end();
    }
  }

  /** Releases a job's slot. The slot of a batch is released when the last job of the batch ends. */
  function release(context: OwnedJobContext, drawn: DrawnSlot | NoRoomYet | undefined): void {
    if (batches !== undefined) batches.end(context);
    else if (drawn instanceof DrawnSlot) drawn.release({ outcome: "ignored" });
  }

  function draw(
    job: Job<Data>,
    context: OwnedJobContext,
    arrival: Arrival,
  ): Promise<DrawnSlot | NoRoomYet | undefined> {
    const drawing = batches === undefined ? slots.draw(job, context) : batches.draw(job, context);
    if (arrival === "probe") drawing.catch(() => fetcher.missProbe(keyTextOf(job)!));
    // An expired job draws no slot, so it does not count as waiting for a slot.
    return arrival === "expired" ? drawing : fetcher.whileWaiting(keyTextOf(job), drawing);
  }

  function closeWithin(deadlineMs: number): Promise<void> {
    running.endWithin(deadlineMs);
    return (closing ??= close());
  }

  async function close(): Promise<void> {
    status = { state: "closing", sinceMs: Date.now() };
    // Stops fetching first. Otherwise BullMQ would fetch another job for each job that goes back.
    await stored.pause(true);
    stopListening();
    downstream.close();
    slots.close();
    batches?.close();
    running.leave(CLOSED);
    const lastReports = Promise.all([leaveQueue(), fetchedJobs.close(), presence.close()]);
    if (connection.isReady()) await withinGrace(lastReports);
    const haveAllEnded = await running.untilNone();
    running.lose(CLOSED);
    await withinGrace(closeStored(!haveAllEnded || !connection.isReady()));
    await withinGrace(children.close());
    handedOver.close();
    locks.close();
    orders.close();
    // Closes the child processes only after the handlers have ended, because a job whose child process is killed counts
    // as failed.
    await opened.close();
    connection.close();
    status = { state: "closed", sinceMs: Date.now() };
    await withinGrace(report.close());
    onClosed();
  }

  async function leaveQueue(): Promise<void> {
    const left = await fetcher.close();
    const back = left.map((taken) =>
      parkFromWorker(storedJobOf(stored, taken), taken.token, worker),
    );
    await Promise.allSettled(back);
  }

  /** Closes BullMQ's worker. Unless forced, this waits for all handlers, and without a time limit for Redis. */
  async function closeStored(isForced: boolean): Promise<void> {
    await stored.close(isForced);
    if (!connection.isReady()) return;
    const kept = [retention.close(), failedRetention.close()];
    await Promise.all([...kept, fetcher.sendLast(), presence.sendLast()]);
  }

  /** Extends the lock of a job that was handed over. Never rejects. */
  async function keepLock(id: string, token: string, forMs: number): Promise<void> {
    let reason = "its lock is lost";
    for (let attempt = 0; attempt < MOST_LOCK_ATTEMPTS; attempt++) {
      try {
        const lost = await stored.extendJobLocks([id], [token], forMs);
        if (lost.length === 0) return;
        break;
      } catch (error) {
        reason = reasonOf(error);
      }
    }
    const problem = `The lock of a job that was handed over could not be extended, so the job may run twice: ${reason}`;
    logger.warn({ queue: queue.name, job: id, reason }, problem);
  }

  /**
   * Counts the jobs that are left in the queue. While an operator has paused the bucket for longer than `soonMs`, no
   * job can run.
   */
  async function left(soonMs: number): Promise<JobsLeft> {
    const asking = connection.lanes.left({ queue: queue.name, soonMs });
    const found = await connection.inTime(settings.timeoutMs, asking);
    const isAnyBegun = running.count > running.unbegun;
    if (found.runnable === 0 || isAnyBegun) return found;
    const { pausedForMs } = await bucket.peek();
    if (pausedForMs <= soonMs) return found;
    return { ...found, runnable: 0, blocked: found.runnable + found.blocked };
  }

  function warnOfDrain(error: unknown): void {
    const reason = reasonOf(error);
    const problem = `Could not see which jobs of queue "${queue.name}" are left; the worker keeps draining it: ${reason}`;
    logger.warn({ queue: queue.name, reason }, problem);
  }

  const drainable: Drainable = {
    queue: queue.name,
    totals: report.totals,
    get isClosing() {
      return closing !== undefined;
    },
    left,
    onMissed: warnOfDrain,
    close: () => closeWithin(closeDeadlineMs),
  };

  const handedOver = createHandedOver({
    worker: worker as WorkerContext,
    stored: stored as unknown as AnyWorker,
    fetcher,
    onEnded: children.note,
    report: report as unknown as WorkerReport<unknown, unknown>,
    runs,
    back: back as unknown as JobReturns<unknown>,
    takePass(token) {
      const pass = handed.get(token);
      handed.delete(token);
      return pass;
    },
  });

  /** Sends jobs back to the queue that no program waits for any more. */
  function onDemand(): void {
    let left = demand?.jobs() ?? Infinity;
    for (const context of running.waiting()) {
      left -= 1;
      if (left < 0) context.recall();
    }
    fetcher.end();
  }

  const methods: Worker<Data, Result> = {
    on: (event, listener, listening) => report.emitter.on(event, listener, listening),
    off: (event, listener) => report.emitter.off(event, listener),
    use: (middleware) => middlewares.use(middleware),
    status() {
      const waiting = running.unbegun;
      const counts = { running: running.count - waiting, waiting, concurrency };
      const { unreachableForMs } = bucket.breaker;
      return {
        ...status,
        ...counts,
        paused: orders.isPaused,
        unreachableForMs,
        awayForMs: unreachableForMs,
      };
    },
    async close(given) {
      const { deadlineMs = closeDeadlineMs } = readCloseOptions(given);
      await closeWithin(deadlineMs);
    },
    async drain(given) {
      const { idleMs } = readDrainOptions("drain()", given);
      return drain([drainable], idleMs);
    },
    async [Symbol.asyncDispose]() {
      await closeWithin(closeDeadlineMs);
    },
  };
  return Object.assign(assertArgumentCount(methods, { throws: ["on", "off", "status", "use"] }), {
    drainable,
    handedOver: { ...handedOver, onDemand },
  });
}

/** Returns the handler for single jobs. In a worker with batches, this handler is never called. */
function singleHandler<Data, Result>(
  given: HandlerInput<Data, Result> | BatchHandler<Data, Result>,
  batch: BatchOptions | undefined,
): HandlerInput<Data, Result> {
  if (batch === undefined || typeof given === "function")
    return given as HandlerInput<Data, Result>;
  const remedy = "give one function, which gets an array of jobs; or leave batch out";
  throw new InvalidOptionError({ where: "worker()", option: "handler", value: given, remedy });
}

async function withinGrace(asking: Promise<unknown>): Promise<void> {
  await Promise.race([asking, pause(REDIS_GRACE_MS, undefined, { ref: false })]);
}

/**
 * Removes the cancellation mark from jobs that ended as cancelled, so that other tools can retry them. `replay()`
 * removes the mark by itself.
 */
function forgetCancels(stored: StoredWorker): void {
  stored.on("failed", (job, error) => {
    if (job?.id === undefined || error.message !== CANCELLED) return;
    forgetCancel(stored, job.id).catch(() => undefined);
  });
}

/**
 * Removes a cancelled job that waits for its next attempt, because its attempt failed before this worker learned of the
 * cancellation. Never rejects. If the removal fails, the worker that fetches the job next ends it.
 */
async function removeCancelled(
  { queue, lanes }: Pick<WorkerContext, "queue" | "lanes">,
  id: string,
): Promise<void> {
  try {
    if ((await lanes.cancel({ queue, id })) === "waits")
      await lanes.remove({ queue, state: "pending", ids: [id] });
  } catch {
    // Redis is unreachable. The next worker ends the job.
  }
}

/**
 * Puts jobs back into the queue if the connection was lost before their fetch reply came. Redis has locked such a job
 * for this worker, but the worker does not know of the job. Without this function, the job would wait until its lock
 * expires. Called each time Redis becomes reachable again. Never rejects: a job that could not be put back returns to
 * the queue when its lock expires.
 */
async function giveLostBack(
  worker: Pick<WorkerContext, "queue" | "workerId" | "connection" | "lanes" | "weightsOf">,
  stored: StoredWorker,
  fetcher: Pick<Fetcher, "isRequesting" | "holds">,
  isHandedOver: (token: string) => boolean,
): Promise<void> {
  // No request was in flight when the connection was lost.
  if (!fetcher.isRequesting) return;
  const { queue, workerId, connection } = worker;
  try {
    // This request is sent after all resent requests on the same connection, so their replies come first.
    const held = await connection.heldBy({ queue, tokens: `${workerId}:` });
    await nextTurn();
    for (const { id, token } of held) {
      if (fetcher.holds(id, token) || isHandedOver(token)) continue;
      const job = await loadBullmq().Job.fromId(stored, id);
      if (job !== undefined) await giveBack(job as Stored<unknown>, token);
    }
  } catch {
    // The connection was lost again, or the worker is closed.
  }

  async function giveBack(job: Stored<unknown>, token: string): Promise<void> {
    // Redis rejects this if another worker has the lock by now. `parkFromWorker` always throws, because BullMQ expects
    // an error from a processor.
    await parkFromWorker(job, token, worker).catch(() => undefined);
  }
}
