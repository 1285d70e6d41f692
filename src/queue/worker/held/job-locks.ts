/**
 * Keeps the locks of a worker's jobs. Each is known by its job and its token.
 *
 * BullMQ's own lock manager knows a lock by its job alone, and is not used. After a standstill longer than the lock, the
 * same worker may fetch a job again while the job's first wait goes on. The end of that wait ended the renewal of the new
 * lock, and so the job was lost again, and again, up to a dead letter. No upstream issue known; checked with bullmq 6.7.0
 * (`untrackJob` in lock-manager.js).
 */
import type { OwnedJobContext, Running } from "../context.ts";

export interface JobLocks {
  /** Whether the worker holds the job's lock, as far as it knows: it was confirmed no longer ago than it lasts. */
  isHeld(job: OwnedJobContext): boolean;
  /** Asks Redis for it, and renews the lock if so. */
  confirm(job: OwnedJobContext): Promise<boolean>;
  /** Renews no lock from now on. */
  close(): void;
}

export interface JobLocksSettings {
  readonly running: Pick<Running, "all">;
  readonly lockMs: number;
  /** Renews locks; resolves with the ids of those jobs whose locks could not be renewed. */
  readonly extend: (ids: string[], tokens: string[], lockMs: number) => Promise<readonly string[]>;
  readonly onError: (error: Error) => void;
}

/** How often locks are looked at while one lasts: each is renewed before half of that is over. */
const LOOKS = 4;
const LOST = "its lock was lost";

export function createJobLocks({ running, lockMs, extend, onError }: JobLocksSettings): JobLocks {
  const lookMs = lockMs / LOOKS;
  let isClosed = false;
  let timer = lookLater();

  function lookLater(): NodeJS.Timeout {
    return setTimeout(() => {
      void renew(dueJobs()).then(() => {
        if (!isClosed) timer = lookLater();
      });
    }, lookMs);
  }

  /** The jobs whose locks are to be renewed, each job once: what was fetched again had lost its earlier lock. */
  function dueJobs(): OwnedJobContext[] {
    const newest = new Map<string, OwnedJobContext>();
    for (const job of running.all()) {
      if (job.isLost || job.isGoingBack) continue;
      newest.get(job.jobId)?.lose(LOST);
      newest.set(job.jobId, job);
    }
    const byMs = performance.now() - lookMs / 2;
    return [...newest.values()].filter(({ lockedAtMs }) => lockedAtMs < byMs);
  }

  async function renew(jobs: readonly OwnedJobContext[]): Promise<void> {
    if (jobs.length === 0 || isClosed) return;
    const ids = jobs.map(({ jobId }) => jobId);
    const tokens = jobs.map(({ token }) => token);
    // A lock lasts from then on at least: the answer may be read much later.
    const askedAtMs = performance.now();
    try {
      const refused = new Set(await extend(ids, tokens, lockMs));
      for (const job of jobs) {
        if (refused.has(job.jobId)) job.lose(LOST);
        else job.lockedAtMs = askedAtMs;
      }
      if (refused.size === 0) return;
      onError(new Error(`Jobs lost their locks: ${refused.size}. They are fetched again`));
    } catch (error) {
      if (!isClosed) onError(error as Error);
    }
  }

  const isHeld = ({ isLost, lockedAtMs }: OwnedJobContext): boolean =>
    !isLost && performance.now() - lockedAtMs < lockMs;

  return {
    isHeld,
    async confirm(job) {
      if (!job.isLost) await renew([job]);
      return isHeld(job);
    },
    close() {
      isClosed = true;
      clearTimeout(timer);
    },
  };
}
