/**
 * What a job's failure says of its downstream. The breaker counts in this process (`throttle/outage/breaker.ts`); that it
 * is open is known to all workers of the bucket, so that the first failure elsewhere opens it there too. Redis is asked
 * only after a failure.
 */
import { isAway } from "../../../throttle/outage/away.ts";
import type { OwnedBucket } from "../../../throttle/bucket.ts";
import type { Blocked, Pass } from "../../../throttle/outage/breaker.ts";
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
  readonly bucket: Pick<OwnedBucket, "breaker" | "readAway">;
  readonly connection: Pick<QueueConnection, "inTime">;
}

/** How long a handler's end may wait for Redis to say whether other workers have found the downstream away. */
const ASK_MS = 1_000;

export function createDownstream({ bucket, connection }: DownstreamParts): Downstream {
  const { breaker } = bucket;

  /** Opens the breaker here if it is open elsewhere. */
  async function askOthers(
    scopes: readonly (string | undefined)[],
    options?: { readonly triesAtOnce: boolean },
  ): Promise<void> {
    const found = await connection.inTime(ASK_MS, bucket.readAway(scopes)).catch(() => []);
    for (const [at, away] of found.entries()) {
      if (away !== undefined) breaker.openAlike(scopes[at], away.coolMs, options);
    }
  }

  // One that starts meanwhile finds out by one job whether it still is.
  if (breaker.isOn) void askOthers([undefined], { triesAtOnce: true });

  return {
    async failed(job, pass, thrown) {
      const isDown = isAway(thrown);
      if (isDown && breaker.isOn && !breaker.isOpenFor(job)) await askOthers(scopesOf(job));
      return breaker.failed(job, pass, isDown ? { thrown } : undefined);
    },
    succeeded: (job, pass) => breaker.succeeded(job, pass),
  };
}

/** The whole bucket, and the job's key. */
function scopesOf({ key }: JobOfKey): (string | undefined)[] {
  return key === undefined ? [undefined] : [undefined, key];
}
