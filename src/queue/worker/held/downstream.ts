/**
 * What a job's failure says of its downstream. The breaker counts in this process (`throttle/outage/breaker.ts`); that it
 * is open is known to all workers of the queue, so that the first failure elsewhere opens it there too. Redis is asked
 * only after a failure.
 */
import { isAway } from "../../../throttle/outage/away.ts";
import type { Blocked, Breaker, Pass } from "../../../throttle/outage/breaker.ts";
import type { QueueConnection } from "../../bullmq/connection.ts";
import type { Job } from "../../job.ts";

export interface Downstream {
  /** Notes that a job failed. If its attempt is not to count, what keeps the job from starting again. */
  failed(job: JobOfKey, pass: Pass, thrown: unknown): Promise<WhyBlocked | undefined>;
  succeeded(job: JobOfKey, pass: Pass): void;
}

type JobOfKey = Pick<Job<unknown>, "id" | "key">;
export type WhyBlocked = Omit<Blocked, "passes">;

interface DownstreamParts {
  readonly queue: string;
  readonly bucket: { readonly breaker: Breaker };
  readonly connection: Pick<QueueConnection, "inTime" | "readOpen" | "noteOpen" | "noteClosed">;
}

/** How long a handler's end may wait for Redis to say whether other workers have found the downstream away. */
const ASK_MS = 1_000;
/** For how long others are told beyond the next try. */
const TOLD_MS = 60_000;

export function createDownstream({ queue, bucket, connection }: DownstreamParts): Downstream {
  const { breaker } = bucket;

  /** Opens the breaker here if it is open elsewhere. */
  async function askOthers(job: JobOfKey): Promise<void> {
    const scopes = scopesOf(job);
    const asked = Promise.all(scopes.map((scope) => connection.readOpen(queue, scope)));
    const found = await connection.inTime(ASK_MS, asked).catch(() => []);
    for (const [at, coolMs] of found.entries()) {
      if (coolMs !== undefined) breaker.openAlike(scopes[at], coolMs);
    }
  }

  function tellClosed(job: JobOfKey): void {
    for (const scope of scopesOf(job)) connection.noteClosed(queue, scope).catch(() => undefined);
  }

  return {
    async failed(job, pass, thrown) {
      const isDown = isAway(thrown);
      if (isDown && breaker.isOn && !breaker.isOpenFor(job)) await askOthers(job);
      const isNews = isDown && (pass.isProbe || !breaker.isOpenFor(job));
      const blocked = breaker.failed(job, pass, isDown ? { thrown } : undefined);
      if (blocked === undefined) {
        if (pass.isProbe) tellClosed(job);
      } else if (isNews) {
        const { scope, inMs } = blocked;
        const key = scope === "key" ? job.key : undefined;
        connection.noteOpen(queue, key, inMs, inMs + TOLD_MS).catch(() => undefined);
      }
      return blocked;
    },
    succeeded(job, pass) {
      breaker.succeeded(job, pass);
      if (pass.isProbe) tellClosed(job);
    },
  };
}

/** The whole bucket, and the job's key. */
function scopesOf({ key }: JobOfKey): (string | undefined)[] {
  return key === undefined ? [undefined] : [undefined, key];
}
