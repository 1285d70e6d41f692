import { setTimeout as pause } from "node:timers/promises";
import { StoreUnavailableError, WaitTooLongError } from "../core/errors.ts";
import type { OwnedBucket } from "../throttle/bucket.ts";
import type { Slot } from "../throttle/slot.ts";
import type { TooFar, WaitOptions } from "../throttle/waiting-call.ts";
import type { Job } from "./job.ts";
import { expiredFailure } from "./outcome.ts";

/** Draws slots for the jobs of one worker. */
export interface JobSlots {
  /**
   * The job's slot; or why there is none: its key's time is too far off, or undefined: the worker is closed.
   *
   * @throws the failure of a job that did not start in time.
   */
  draw(job: Job<unknown>): Promise<Slot | TooFar | undefined>;
  /** Ends all waits. */
  close(reason: string): void;
}

const STORE_RETRY_MS = 1_000;
const NO_KEY = "";

export function createJobSlots(bucket: OwnedBucket, patienceMs: number): JobSlots {
  /** What ends the waits of jobs for their slots. */
  const waits = new Set<(reason: string) => void>();
  let isClosed = false;

  /** An outage is waited out. */
  async function drawUntilClosed(job: Job<unknown>): Promise<Slot | TooFar | undefined> {
    while (!isClosed) {
      try {
        return await bucket.drawForJob(waitOptions(job, patienceMs), waits);
      } catch (error) {
        if (isClosed) return undefined;
        if (!(error instanceof StoreUnavailableError)) throw error;
        await pauseUnlessClosed();
      }
    }
    return undefined;
  }

  async function pauseUnlessClosed(): Promise<void> {
    const pausing = new AbortController();
    const stop = (): void => pausing.abort();
    waits.add(stop);
    await pause(STORE_RETRY_MS, undefined, pausing).catch(() => undefined);
    waits.delete(stop);
  }

  return {
    async draw(job) {
      try {
        return await drawUntilClosed(job);
      } catch (error) {
        if (!(error instanceof WaitTooLongError)) throw error;
        throw expiredFailure(job, Date.now());
      }
    },
    close(reason) {
      isClosed = true;
      for (const stopWaiting of waits) stopWaiting(reason);
    },
  };
}

function waitOptions(job: Job<unknown>, patienceMs: number): WaitOptions {
  const { key, cost, priority, startByMs } = job;
  // Jobs without a key take turns with the lanes as if they were one.
  const own = key === undefined ? { lane: NO_KEY } : { key, patienceMs, lane: key };
  if (startByMs === undefined) return { cost, priority, ...own };
  const maxWaitMs = startByMs - Date.now();
  if (maxWaitMs < 1) throw expiredFailure(job, Date.now());
  return { cost, priority, maxWaitMs, ...own };
}
