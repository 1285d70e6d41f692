/**
 * Runs batches: several jobs in one call of the handler, on one slot:
 *
 *     taken ──▶ joins the open batch of its group ──▶ full, or `waitMs` over: draws ──▶ slot ──▶ all have come ──▶ handler
 *
 * Each job keeps its own lock, deadline, time limit, cancellation and outcome. If one job is cancelled or expires, the
 * other jobs of the batch continue. If keys have their own limits, all jobs of a batch have the same key. Otherwise, a
 * batch may contain jobs of any key. While a batch waits for its slot and is not full, it accepts more jobs, unless its
 * cost depends on its jobs.
 */
import { InvalidOptionError } from "../../../core/errors.ts";
import { COST } from "../../../throttle/call-options.ts";
import type { Cost } from "../../../throttle/costs.ts";
import {
  endJobSlot,
  jobSlotOf,
  mayCallBucket,
  runWithJobSlot,
} from "../../../throttle/slot/job-slot.ts";
import type { JobSlot } from "../../../throttle/slot/job-slot.ts";
import type { DrawnSlot } from "../../../throttle/slot/slot.ts";
import type { CancellableWait } from "../../../throttle/waiting/wait.ts";
import type { NoRoomYet } from "../../../throttle/waiting/waiting-call.ts";
import { decodeKey } from "../../../core/key-path.ts";
import { LONGEST_MS, PRIORITIES } from "../../../core/input/options.ts";
import { keyTextOf, type Job } from "../../job.ts";
import type { BatchOptions } from "../worker-options.ts";
import { checked, inTime, failedOutcome, outcomeOf, whyBlocked, type Attempt } from "../attempt.ts";
import type { BatchHandler, BatchOutcomes, OwnedJobContext, WorkerContext } from "../context.ts";
import type { JobSlots } from "../job-start.ts";
import { asFailure, expiredFailure, responseFailure } from "../outcome.ts";

/** Draws slots and runs attempts for batches, in place of single jobs. */
export interface Batches<Data, Result> {
  /** Like {@link JobSlots.draw}, but resolves with the slot that the job's whole batch shares. */
  draw(job: Job<Data>, context: OwnedJobContext): Promise<DrawnSlot | NoRoomYet | undefined>;
  /** Runs a job with its batch. Resolves with the job's own result, or rejects with its own failure. */
  run(attempt: Attempt<Data>): Promise<Result | undefined>;
  /**
   * Records that a job has ended or goes back to the queue, so that its batch no longer waits for the job. If the batch
   * has no job left, its slot is released.
   */
  end(context: OwnedJobContext): void;
  /** Stops accepting jobs: from now on, {@link Batches.draw} resolves with undefined. */
  close(): void;
}

type Drawn = DrawnSlot | NoRoomYet | undefined;
type BatchWorker<Data, Result> = Pick<
  WorkerContext<Data, Result>,
  | "queue"
  | "bucket"
  | "clock"
  | "downstream"
  | "failOnResponse"
  | "payloads"
  | "schema"
  | "timeoutMs"
  | "logger"
>;

interface Member<Data> {
  readonly job: Job<Data>;
  readonly context: OwnedJobContext;
  readonly settle: (drawn: Drawn) => void;
  readonly fail: (error: unknown) => void;
  readonly timer: NodeJS.Timeout | undefined;
}

/** The outcome of one handler call for a batch. */
interface CallOutcome {
  readonly outcomes: readonly unknown[];
  readonly askedMs: number | undefined;
}

interface Batch<Data> {
  readonly group: string;
  readonly key: string | undefined;
  /**
   * The jobs of the batch. Before the slot comes, these are the jobs that wait for it. After that, the jobs that are
   * not ready for the call yet.
   */
  readonly members: Map<OwnedJobContext, Member<Data>>;
  readonly arrived: Attempt<Data>[];
  timer: NodeJS.Timeout | undefined;
  wait: CancellableWait | undefined;
  cost: Cost | undefined;
  isDrawing: boolean;
  slot: DrawnSlot | undefined;
  called: Promise<CallOutcome>;
  startCall: (calling: Promise<CallOutcome>) => void;
}

const DEFAULT_WAIT_MS = 100;

export function createBatches<Data, Result>(
  worker: BatchWorker<Data, Result>,
  {
    slots,
    handler,
    options,
  }: {
    readonly slots: Pick<JobSlots, "draw">;
    readonly handler: BatchHandler<Data, Result>;
    readonly options: BatchOptions<Data>;
  },
): Batches<Data, Result> {
  const { bucket, clock } = worker;
  const { size, waitMs = DEFAULT_WAIT_MS, cost: costOf } = options;
  /** The batches that accept more jobs, by group. */
  const open = new Map<string, Batch<Data>>();
  const batchOf = new Map<OwnedJobContext, Batch<Data>>();
  let isClosed = false;

  function begin(group: string, key: string | undefined): Batch<Data> {
    let startCall!: Batch<Data>["startCall"];
    const called = new Promise<CallOutcome>((resolve) => (startCall = resolve));
    const batch: Batch<Data> = {
      group,
      key,
      members: new Map(),
      arrived: [],
      timer: undefined,
      wait: undefined,
      cost: undefined,
      isDrawing: false,
      slot: undefined,
      called,
      startCall,
    };
    batch.timer = setTimeout(() => void draw(batch), waitMs);
    open.set(group, batch);
    return batch;
  }

  function close(batch: Batch<Data>): void {
    clearTimeout(batch.timer);
    if (open.get(batch.group) === batch) open.delete(batch.group);
  }

  async function draw(batch: Batch<Data>): Promise<void> {
    if (batch.isDrawing) return;
    batch.isDrawing = true;
    clearTimeout(batch.timer);
    const members = [...batch.members.values()];
    let drawn: Drawn;
    try {
      if (costOf !== undefined) {
        close(batch);
        batch.cost = readCost(costOf(members.map(({ job }) => job)));
      }
      drawn = await slots.draw(jobFor(batch, members), waitsOf(batch));
    } catch (error) {
      close(batch);
      for (const member of leaveAll(batch)) member.fail(asFailure(error));
      return;
    }
    close(batch);
    if (drawn === undefined || !("release" in drawn)) {
      for (const member of leaveAll(batch)) member.settle(drawn);
      return;
    }
    batch.slot = drawn;
    if (batch.members.size === 0) drawn.release({ outcome: "ignored" });
    for (const { context, timer, settle } of batch.members.values()) {
      clearTimeout(timer);
      context.delete(batch.wait!);
      settle(drawn);
    }
  }

  /** Returns a job that represents a batch in the draw of its slot. The jobs of the batch keep their own deadlines. */
  function jobFor(batch: Batch<Data>, members: readonly Member<Data>[]): Job<Data> {
    const { cost } = batch;
    const key = batch.key === undefined ? undefined : decodeKey(batch.key);
    const urgent = Math.min(...members.map(({ job }) => PRIORITIES.indexOf(job.priority)));
    return { ...members[0]!.job, key, cost, priority: PRIORITIES[urgent]!, startByMs: undefined };
  }

  function waitsOf(batch: Batch<Data>): Parameters<JobSlots["draw"]>[1] {
    return {
      add: (wait) => void (batch.wait = wait),
      delete: () => void (batch.wait = undefined),
      get isLeaving() {
        return batch.members.size === 0;
      },
    };
  }

  function leaveAll(batch: Batch<Data>): Member<Data>[] {
    const members = [...batch.members.values()];
    for (const { context } of members) leave(batch, context);
    return members;
  }

  function leave(batch: Batch<Data>, context: OwnedJobContext): void {
    const member = batch.members.get(context);
    if (member === undefined) return;
    clearTimeout(member.timer);
    batch.members.delete(context);
    batchOf.delete(context);
    if (batch.slot !== undefined) return callIfComplete(batch);
    if (batch.members.size > 0) return;
    close(batch);
    batch.wait?.cancel("no job of the batch is left");
  }

  function end(context: OwnedJobContext): void {
    const batch = batchOf.get(context);
    if (batch !== undefined) leave(batch, context);
  }

  function callIfComplete(batch: Batch<Data>): void {
    if (batch.members.size > 0) return;
    if (batch.arrived.length === 0) batch.slot!.release({ outcome: "ignored" });
    else batch.startCall(call(batch));
  }

  /** Calls the handler for a batch. Never rejects: an error becomes the outcome of each job. */
  async function call(batch: Batch<Data>): Promise<CallOutcome> {
    const { arrived, cost, key } = batch;
    const slot = batch.slot!;
    let jobSlot: JobSlot | undefined;
    if (mayCallBucket(handler, bucket, slot)) jobSlot = jobSlotOf({ bucket, slot }, { key, cost });
    const jobs = arrived.map(({ job }) => job);
    const contexts = arrived.map(({ context }) => context);
    const context = { slot, contexts, signal: signalOfAll(contexts) };
    const run = (): ReturnType<BatchHandler<Data, Result>> => handler(jobs, context);
    let outcomes: readonly unknown[];
    try {
      const given = await (jobSlot === undefined ? run() : runWithJobSlot(jobSlot, run));
      outcomes = readOutcomes(given, jobs.length).map((outcome) =>
        worker.failOnResponse === false ? outcome : (responseFailure(outcome) ?? outcome),
      );
    } catch (thrown) {
      slot.noteOutcome(thrown);
      outcomes = jobs.map(() => new Thrown(thrown));
    } finally {
      slot.release();
      if (jobSlot !== undefined) endJobSlot(jobSlot);
    }
    // Reports one outcome for the whole batch, because the downstream sent one response.
    const first = outcomes.find((outcome) => outcome instanceof Error) ?? outcomes;
    const reported = first instanceof Thrown ? first.thrown : first;
    const { askedMs } = await bucket.report(reported, { slot: jobSlot?.replacedBy ?? slot, cost });
    return { outcomes, askedMs };
  }

  return {
    draw(job, context) {
      end(context);
      if (isClosed || context.isLeaving) return Promise.resolve(undefined);
      const leftMs = job.startByMs === undefined ? undefined : job.startByMs - clock.latestMs();
      if (leftMs !== undefined && leftMs < 1) {
        return Promise.reject(expiredFailure(job, clock.latestMs()));
      }
      const key = bucket.policy.perKey === undefined ? undefined : keyTextOf(job);
      const group = key === undefined ? "" : `key ${key}`;
      const batch = open.get(group) ?? begin(group, key);
      batchOf.set(context, batch);
      return new Promise((settle, fail) => {
        const expire = (): void => {
          leave(batch, context);
          fail(expiredFailure(job, clock.latestMs()));
        };
        const timer =
          leftMs === undefined ? undefined : setTimeout(expire, Math.min(leftMs, LONGEST_MS));
        batch.members.set(context, { job, context, settle, fail, timer });
        context.add({
          cancel() {
            leave(batch, context);
            settle(undefined);
          },
        });
        if (batch.members.size < size) return;
        close(batch);
        void draw(batch);
      });
    },
    async run(attempt) {
      const { stored, context, slot } = attempt;
      const batch = batchOf.get(context)!;
      context.begin(stored, slot, worker.payloads);
      slot.onLeaseEnding((reason) => context.abort(reason));
      let job: Job<Data>;
      try {
        job = await checked(worker, attempt);
      } catch (thrown) {
        return outcomeOf<Result>(worker, attempt, { thrown, blocked: undefined });
      }
      batch.arrived.push({ ...attempt, job });
      const index = batch.arrived.length - 1;
      leave(batch, context);
      const limitMs = job.timeoutMs ?? worker.timeoutMs;
      const ending = limitMs === undefined ? batch.called : inTime(batch.called, limitMs, context);
      const ended = await ending.catch((error: unknown) => ({ late: error }));
      const fail = async (thrown: unknown, askedMs?: number): Promise<Result | undefined> => {
        // A failed call counts once for the breaker, whatever the number of its jobs and keys.
        const failed = { id: batch.arrived[0]!.job.id, key: batch.key };
        const blocked = await whyBlocked(worker, { ...attempt, job: failed }, thrown);
        return failedOutcome<Result>(worker, attempt, { thrown, askedMs, blocked }, failed);
      };
      if ("late" in ended) return fail(ended.late);
      const outcome = ended.outcomes[index];
      const { askedMs } = ended;
      if (outcome instanceof Thrown) return fail(outcome.thrown, askedMs);
      if (outcome instanceof Error) return fail(outcome, askedMs);
      return outcomeOf<Result>(worker, attempt, { result: outcome as Result });
    },
    end,
    close() {
      isClosed = true;
    },
  };
}

/**
 * Checks the return value of the batch's `cost` function.
 *
 * @throws {@link InvalidOptionError} when the value is not a cost.
 */
function readCost(given: unknown): Cost {
  const read = COST.safeParse(given);
  if (read.success) return read.data as Cost;
  const remedy = read.error.issues[0]!.message;
  throw new InvalidOptionError({ where: "worker()", option: "batch.cost()", value: given, remedy });
}

/** Wraps a value that a batch handler threw, for all jobs of the batch. The value need not be an error. */
class Thrown extends Error {
  readonly thrown: unknown;

  constructor(thrown: unknown) {
    super("thrown for all jobs of a batch");
    this.thrown = thrown;
  }
}

function readOutcomes(given: BatchOutcomes<unknown>, count: number): readonly unknown[] {
  if (given === undefined) return Array.from({ length: count });
  if (Array.isArray(given) && given.length === count) return given as readonly unknown[];
  const what = Array.isArray(given) ? `an array of ${given.length}` : typeof given;
  throw new Error(
    `The handler of a batch returned ${what}; return nothing, or an array with an outcome for each of its ${count} jobs`,
  );
}

/** Returns a signal that is aborted once the signals of all jobs are aborted. */
function signalOfAll(contexts: readonly OwnedJobContext[]): AbortSignal {
  const all = new AbortController();
  let left = contexts.length;
  for (const { signal } of contexts) {
    const abort = (): void => {
      left -= 1;
      if (left === 0) all.abort(signal.reason);
    };
    if (signal.aborted) abort();
    else signal.addEventListener("abort", abort, { once: true });
  }
  return all.signal;
}
