/** Returns jobs to the queue without a counted attempt. Each function throws the error that BullMQ expects for this. */
import type { RunName } from "../../../stores/redis/scripts/queue/runs.ts";
import type { Pass } from "../../../throttle/outage/breaker.ts";
import { codeOf, movedToDelayed, movedToWait, NOT_THERE } from "../../bullmq/errors.ts";
import { PARK_MS, encodedKeyOf, type Stored } from "../../bullmq/stored-job.ts";
import type { Fetcher } from "../../lanes/fetcher.ts";
import { parkFromWorker } from "../../lanes/park.ts";
import type { WorkerReport } from "../report.ts";
import type { UncountedFailure } from "../attempt.ts";
import type { OwnedJobContext, WorkerContext } from "../context.ts";
import type { ScheduledRuns } from "../runs.ts";
import type { WhyBlocked } from "./downstream.ts";

/** The functions that return a job to the queue. All of them reject or throw. */
export interface JobReturns<Data> {
  /**
   * Puts the job into its lane, so that other jobs can use its place in this worker. The job comes back in its turn,
   * once its key, or the parent key that has no room, has room again.
   */
  park(
    bullJob: Stored<Data>,
    context: OwnedJobContext,
    room?: { readonly inMs: () => number | undefined; readonly of?: string | undefined },
  ): Promise<never>;
  /** Puts the job back into the queue, because the downstream of its key or of the whole bucket is unreachable. */
  holdBack(bullJob: Stored<Data>, context: OwnedJobContext, why: WhyBlocked): Promise<never>;
  /** Puts a job back into the queue whose attempt failed but does not count. */
  returnUncounted(
    bullJob: Stored<Data>,
    context: OwnedJobContext,
    how: { readonly error: UncountedFailure; readonly pass: Pass },
  ): Promise<never>;
  /**
   * Puts the job back into its old position in the queue. A cancelled run of a schedule is not put back: it counts as
   * missed, and the schedule plans its next run.
   */
  giveBack(bullJob: Stored<Data>, context: OwnedJobContext, run?: RunName): Promise<never>;
  /**
   * Leaves the job as it is in Redis. Used when the lock is lost or Redis is unreachable: the job returns to the queue
   * by itself.
   */
  readonly leave: () => never;
}

export function createJobReturns<Data>(
  worker: Pick<WorkerContext, "queue" | "lanes" | "weightsOf" | "connection"> & {
    readonly runs: Pick<ScheduledRuns, "leaveOut">;
  },
  fetcher: Pick<Fetcher, "park">,
  report: Pick<WorkerReport<Data, unknown>, "notCounted">,
): JobReturns<Data> {
  const { connection, runs } = worker;

  async function park(
    bullJob: Stored<Data>,
    context: OwnedJobContext,
    room?: { readonly inMs: () => number | undefined; readonly of?: string | undefined },
  ): Promise<never> {
    if (context.isLost) return leave();
    context.isGoingBack = true;
    await bullJob.moveToDelayed(Date.now() + PARK_MS, context.token).catch(leaveRemoved);
    const weights = worker.weightsOf(encodedKeyOf(bullJob));
    fetcher.park({ id: bullJob.id!, weights, roomInMs: room?.inMs(), aside: room?.of });
    throw movedToDelayed();
  }

  function holdBack(
    bullJob: Stored<Data>,
    context: OwnedJobContext,
    { scope, inMs }: WhyBlocked,
  ): Promise<never> {
    if (scope === "bucket") return giveBack(bullJob, context);
    return park(bullJob, context, { inMs: () => Math.ceil(inMs) });
  }

  async function returnUncounted(
    bullJob: Stored<Data>,
    context: OwnedJobContext,
    { error, pass }: { readonly error: UncountedFailure; readonly pass: Pass },
  ): Promise<never> {
    const { failure, blocked } = error;
    if (context.isLost || !connection.isReady()) return leave();
    report.notCounted(bullJob, failure, blocked.inMs);
    if (!pass.isProbe) return holdBack(bullJob, context, blocked);
    // Puts the job behind other jobs, so that another job tests the downstream next. This job itself may be the cause
    // of the failure.
    context.isGoingBack = true;
    const delayMs = Math.ceil(blocked.inMs * (1 + Math.random()));
    await bullJob
      .moveToDelayed(Date.now() + (delayMs === PARK_MS ? PARK_MS + 1 : delayMs), context.token)
      .catch(leaveRemoved);
    throw movedToDelayed();
  }

  async function giveBack(
    bullJob: Stored<Data>,
    context: OwnedJobContext,
    run?: RunName,
  ): Promise<never> {
    if (run !== undefined && context.isCancelled && (await runs.leaveOut(run))) return leave();
    if (context.isLost || !connection.isReady()) return leave();
    context.isGoingBack = true;
    return parkFromWorker(bullJob, context.token, worker).catch(leaveRemoved);
  }

  /** Handles the error that the job no longer exists: it was a run whose schedule has ended. */
  function leaveRemoved(error: unknown): never {
    if (codeOf(error) === NOT_THERE) return leave();
    throw error;
  }

  function leave(): never {
    throw movedToWait();
  }

  return { park, holdBack, returnUncounted, giveBack, leave };
}
