/** How a job that a worker has leaves it without an attempt that counts: each of these throws what tells BullMQ so. */
import type { RunName } from "../../../stores/redis/scripts/queue/runs.ts";
import type { Pass } from "../../../throttle/outage/breaker.ts";
import { codeOf, movedToDelayed, movedToWait, NOT_THERE } from "../../bullmq/errors.ts";
import { PARK_MS, encodedKeyOf, type Stored } from "../../bullmq/stored-job.ts";
import type { Fetcher } from "../../lanes/fetcher.ts";
import { parkFromWorker } from "../../lanes/park.ts";
import type { WorkerReport } from "../../report.ts";
import type { Spared } from "../attempt.ts";
import type { OwnedJobContext, WorkerContext } from "../context.ts";
import type { ScheduledRuns } from "../runs.ts";
import type { WhyBlocked } from "./downstream.ts";

/** All reject, or throw. */
export interface WaysBack<Data> {
  /** Gives the job's place here to another; it comes back in its turn, once its key, or what of that has none, has room. */
  park(
    bullJob: Stored<Data>,
    context: OwnedJobContext,
    room?: { readonly inMs: () => number | undefined; readonly of?: string | undefined },
  ): Promise<never>;
  /** The downstream is away, of the job's key or of all: it waits in its place, where it uses up nothing. */
  holdBack(bullJob: Stored<Data>, context: OwnedJobContext, why: WhyBlocked): Promise<never>;
  /** An attempt failed that does not count. */
  spare(
    bullJob: Stored<Data>,
    context: OwnedJobContext,
    how: { readonly error: Spared; readonly pass: Pass },
  ): Promise<never>;
  /** Puts it back into its place in the queue; of a run that was cancelled, its schedule goes on without it. */
  giveBack(bullJob: Stored<Data>, context: OwnedJobContext, run?: RunName): Promise<never>;
  /** With its lock lost, or Redis away, a job comes back by itself. */
  readonly leave: () => never;
}

export function createWaysBack<Data>(
  worker: Pick<WorkerContext, "queue" | "lanes" | "weightsOf" | "connection"> & {
    readonly runs: Pick<ScheduledRuns, "leaveOut">;
  },
  fetcher: Pick<Fetcher, "park">,
  report: Pick<WorkerReport<Data, unknown>, "spared">,
): WaysBack<Data> {
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

  async function spare(
    bullJob: Stored<Data>,
    context: OwnedJobContext,
    { error, pass }: { readonly error: Spared; readonly pass: Pass },
  ): Promise<never> {
    const { failure, blocked } = error;
    if (context.isLost || !connection.isReady()) return leave();
    report.spared(bullJob, failure, blocked.inMs);
    if (!pass.isProbe) return holdBack(bullJob, context, blocked);
    // Behind others: the next to try is another, in case that this one is to blame.
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

  /** A run whose schedule was ended is gone. */
  function leaveRemoved(error: unknown): never {
    if (codeOf(error) === NOT_THERE) return leave();
    throw error;
  }

  function leave(): never {
    throw movedToWait();
  }

  return { park, holdBack, spare, giveBack, leave };
}
