import { withForever } from "../../core/describe.ts";
import { decodeKey, type Key } from "../../core/key-path.ts";
import type { EndedSince, QueueCounts } from "../../stores/redis/scripts/queue/steering.ts";
import type { LanesSeen } from "../../stores/redis/scripts/queue/lanes.ts";
import type { LaneStore } from "../../stores/redis/queue/store.ts";
import type { OwnedBucket } from "../../throttle/bucket.ts";
import type { SetBy } from "../../throttle/bucket/facts/status.ts";
import { encodedKeyOf, type Stored } from "../bullmq/stored-job.ts";
import { oldestFailedAtMs, type StoredAccess } from "../bullmq/stored-queue.ts";
import type { JobExplanation } from "./explain.ts";
import type { Forecast, Forecasts, NoForecastReason } from "./forecast.ts";

/** The state of a queue, across all processes. */
export interface QueueStatus extends SettingsStatus {
  readonly name: string;
  /**
   * A number that grows with each pause, resume and setting by an operator. `0` before the first change. Pass this
   * number to such a change, so that the change is rejected if another change came first.
   */
  readonly generation: number;
  /** How many jobs are in each state. */
  readonly jobs: QueueCounts;
  /**
   * The due job that has waited longest. Undefined if no due job waits. With more than 500 keys, only 500 of them are
   * checked.
   */
  readonly oldest: OldestDue | undefined;
  /** How long ago the oldest dead letter failed, in ms. Undefined without dead letters. */
  readonly oldestDeadLetterMs: number | undefined;
  /** @deprecated Use `oldestDeadLetterMs`, which has the same value. */
  readonly oldestDeadMs: number | undefined;
  /**
   * How much of the oldest job's wait is not explained by a limit, a cooldown, a pause or its turn, in ms. `0` while
   * such a reason applies. Grows while no worker is alive, or while workers are too few or hang. Less than 15 s counts
   * as 0.
   */
  readonly unexplainedMs: number;
  /** Ms until the backlog is gone, as in `forecast()`. Undefined if there is no forecast; `reason` says why. */
  readonly emptyInMs: number | undefined;
  /** @deprecated Use `emptyInMs`, which has the same value. */
  readonly goneInMs: number | undefined;
  readonly reason: NoForecastReason | undefined;
  /**
   * Up to 20 keys with the most pending jobs, the key with the most first. With more than 1,000 keys, only the keys
   * whose turn comes soon are checked.
   */
  readonly lanes: readonly LaneStatus[];
  /** How many keys have pending jobs. */
  readonly totalLanes: number;
  /** @deprecated Use `totalLanes`, which has the same value. */
  readonly lanesInAll: number;
  /** How many workers are alive, and how many jobs they can run at once. */
  readonly workers: number;
  readonly totalConcurrency: number;
  /** @deprecated Use `totalConcurrency`, which has the same value. */
  readonly places: number;
  /**
   * How many workers are needed to start the backlog at the rate of the bucket: `0` without a backlog. Assumes that
   * each worker can run as many jobs as a live worker on average. While the duration of handlers is unknown, it counts
   * as 0.
   */
  readonly workersWanted: number;
  /** How many attempts per second succeeded, and how many failed, in about the last minute. */
  readonly donePerSecond: number;
  readonly failedPerSecond: number;
  /** The share of attempts in the last minute that failed: `0.05`. `0` if no attempt ended. */
  readonly failureRate: number;
  /** How long handlers took on average in the last minute, in ms. Undefined if no attempt ended. */
  readonly handlerMs: number | undefined;
}

/** One value that operators and a rules file can set for a queue. */
export interface QueueSetting {
  /**
   * The name of the setting: `"maxBacklog.all"`, `"keepDone.count"`, `"defaults.attempts"`. For a weight,
   * `"weights.acme"`.
   */
  readonly name: string;
  readonly value: number | string;
  /** The source of the value: `"override"` by an operator, `"rules"`, or `"code"`, which includes the defaults. */
  readonly setBy: "override" | "rules" | "code";
  /** Who set the override, when, why and for how long. */
  readonly override?: SetBy | undefined;
}

export interface SettingsStatus {
  /** The active value of each setting, and its source. */
  readonly settings: readonly QueueSetting[];
  /** The version of the rules. Undefined if the rules set nothing for this queue. */
  readonly rulesVersion: number | undefined;
}

/** The state of one key's pending jobs. */
export interface LaneStatus {
  readonly key: Key;
  /** How many jobs of the key are due, including jobs that workers have fetched and not started. */
  readonly jobs: number;
  /** The weight of the key, relative to other keys: `1`. */
  readonly weight: number;
  /**
   * For how many ms the lane is blocked, because the key has no room or is paused. `0` if the lane is not blocked.
   * Infinity (in JSON `"forever"`) if the block has no end.
   */
  readonly blockedForMs: number;
  /** @deprecated Use `blockedForMs`, which has the same value. */
  readonly asideMs: number;
}

/** The oldest due job, and why it waits. */
export interface OldestDue {
  readonly id: string;
  readonly key: Key | undefined;
  /**
   * How long the job has waited since it became due, or due again after a retry, a replay or the death of its worker,
   * in ms.
   */
  readonly waitingMs: number;
  /** Why the job waits. Undefined if the job has started in the meantime. */
  readonly why: JobExplanation | undefined;
}

/**
 * Processes report their calls to Redis with a delay of up to this time, so an unexplained wait of this length is
 * ignored.
 */
const HEARD_MS = 15_000;
/** How far back in time a bucket knows how many calls it started. */
const KNOWN_MS = 86_000_000;
/** A worker fetches a job this long before the job's slot. */
const AHEAD_MS = 100;

export function createStatus({
  queue,
  bucket,
  lanes,
  access,
  counts,
  glance,
  explain,
  settings,
}: {
  readonly queue: string;
  readonly bucket: Pick<OwnedBucket, "status" | "history">;
  readonly lanes: Pick<LaneStore, "oldest" | "ended" | "byHand">;
  readonly access: StoredAccess;
  readonly counts: () => Promise<QueueCounts>;
  readonly glance: Forecasts["glance"];
  readonly explain: (id: string) => Promise<JobExplanation | undefined>;
  readonly settings: () => Promise<SettingsStatus>;
}): () => Promise<QueueStatus> {
  async function readOldest(): Promise<OldestDue | undefined> {
    const found = await access.ask(() => lanes.oldest({ queue }));
    if (found === undefined) return undefined;
    const { id, sinceMs } = found;
    const [why, stored] = await Promise.all([
      explain(id),
      access.ask((backend) => backend.getJob(id)),
    ]);
    if (stored === undefined) return undefined;
    const text = encodedKeyOf(stored as Stored<unknown>);
    const waitingMs = Math.max(0, access.clock.latestMs() - sinceMs);
    return { id, key: text === undefined ? undefined : decodeKey(text), waitingMs, why };
  }

  /** Returns the part of the oldest job's wait, in ms, that the calls made during the wait do not explain. */
  async function unexplainedOf(
    oldest: OldestDue | undefined,
    capPerSecond: number | undefined,
  ): Promise<number> {
    const { waitingMs = 0, why } = oldest ?? {};
    if (why?.waitsFor !== "no worker" && why?.waitsFor !== "lane") return 0;
    if (waitingMs <= HEARD_MS) return 0;
    const knownMs = Math.min(waitingMs, KNOWN_MS);
    const { points } = await bucket.history({ sinceMs: access.clock.latestMs() - knownMs });
    const started = points.reduce((sum, point) => sum + point.started, 0);
    const explainedMs = capPerSecond === undefined ? 0 : (started * 1_000) / capPerSecond;
    const unexplainedMs = Math.round(knownMs - explainedMs);
    return unexplainedMs <= HEARD_MS ? 0 : unexplainedMs;
  }

  return async () => {
    const [jobs, { expected, seen }, ended, oldest, deadAtMs, { capPerSecond }, set, hand] =
      await Promise.all([
        counts(),
        glance(),
        access.ask(() => lanes.ended({ queue })),
        readOldest(),
        access.ask(oldestFailedAtMs),
        bucket.status(),
        settings(),
        access.ask(() => lanes.byHand({ queue })),
      ]);
    const { workers, totalConcurrency, emptyInMs, reason } = expected;
    const oldestDeadLetterMs = deadAtMs && Math.max(0, access.clock.latestMs() - deadAtMs);
    const rates = ratesOf(ended);
    return {
      name: queue,
      generation: hand.generation,
      jobs,
      oldest,
      oldestDeadLetterMs,
      oldestDeadMs: oldestDeadLetterMs,
      unexplainedMs: await unexplainedOf(oldest, capPerSecond),
      emptyInMs,
      goneInMs: emptyInMs,
      reason,
      ...longestLanes(seen),
      workers,
      totalConcurrency,
      places: totalConcurrency,
      workersWanted: workersWanted(expected, capPerSecond, rates.handlerMs),
      ...rates,
      ...set,
    };
  };
}

const LANES_SHOWN = 20;
/** A lane that is blocked for longer than a century is blocked forever. */
const ENDLESS_MS = 3_155_760_000_000;

function longestLanes({
  lanes,
  others,
}: LanesSeen): Pick<QueueStatus, "lanes" | "totalLanes" | "lanesInAll"> {
  const waiting = lanes.filter(({ jobs }) => jobs > 0);
  const longest = waiting.toSorted((one, other) => other.jobs - one.jobs).slice(0, LANES_SHOWN);
  const totalLanes = waiting.length + others.lanes;
  return {
    totalLanes,
    lanesInAll: totalLanes,
    lanes: longest.map(({ key, jobs, weight, asideMs }) => {
      const blockedForMs = asideMs > ENDLESS_MS ? Infinity : asideMs;
      return withForever({
        key: decodeKey(key),
        jobs,
        weight,
        blockedForMs,
        asideMs: blockedForMs,
      });
    }),
  };
}

function ratesOf({ done, failed, busyMs, overMs }: EndedSince) {
  const all = done + failed;
  return {
    donePerSecond: (done * 1_000) / overMs,
    failedPerSecond: (failed * 1_000) / overMs,
    failureRate: all === 0 ? 0 : failed / all,
    handlerMs: all === 0 ? undefined : busyMs / all,
  };
}

/**
 * Returns how many workers are needed for the jobs that can run at once under the rate, and at most for the pending
 * jobs.
 */
function workersWanted(
  { waiting, workers, totalConcurrency }: Forecast,
  capPerSecond: number = Infinity,
  handlerMs: number = 0,
): number {
  const atOnce = Math.min(waiting, (capPerSecond * (handlerMs + AHEAD_MS)) / 1_000);
  return Math.ceil(workers === 0 ? Math.min(1, atOnce) : (atOnce * workers) / totalConcurrency);
}
