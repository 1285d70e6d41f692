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
import type { Forecast, Forecasts, NoPromise } from "./forecast.ts";

/** The state of a queue, over all processes. */
export interface QueueStatus extends SettingsStatus {
  readonly name: string;
  /**
   * Grows with each pause, resume and setting by an operator. Pass it to such a change to have it refused if another
   * came first. `0` before the first.
   */
  readonly generation: number;
  /** How many jobs are in each state. */
  readonly jobs: QueueCounts;
  /** The due job that has waited longest; undefined if none waits. With more than 500 keys, 500 of them are checked. */
  readonly oldest: OldestDue | undefined;
  /** How long ago the oldest dead letter failed, in ms; undefined if there is none. */
  readonly oldestDeadMs: number | undefined;
  /**
   * How much of that job's wait no limit, cooldown, pause or turn explains, in ms: `0` while there is such a reason. It
   * grows while no worker is alive, or while workers are too few or hang. Less than 15 s counts as 0.
   */
  readonly unexplainedMs: number;
  /** Ms until the backlog is gone, as in `forecast()`; undefined while no time can be given, because of `reason`. */
  readonly goneInMs: number | undefined;
  readonly reason: NoPromise | undefined;
  /**
   * The keys with the most pending jobs, up to 20, the most first. With more than 1,000 keys, only those whose turn
   * comes soon are checked.
   */
  readonly lanes: readonly LaneStatus[];
  /** How many keys have pending jobs. */
  readonly lanesInAll: number;
  /** How many workers are alive, and how many jobs they can run at once. */
  readonly workers: number;
  readonly places: number;
  /**
   * How many workers are enough for the backlog at the rate of the bucket, if each can run as many jobs as the live
   * ones do on average: `0` without a backlog. While it is unknown how long handlers take, they count as taking no
   * time.
   */
  readonly workersWanted: number;
  /** Attempts of about the last minute that succeeded, and that failed, per second. */
  readonly donePerSecond: number;
  readonly failedPerSecond: number;
  /** The share of them that failed: `0.05`. `0` if none ended. */
  readonly failureRate: number;
  /** How long their handlers took on average; undefined if none ended. */
  readonly handlerMs: number | undefined;
}

/** One value that operators and a rules file can set for a queue. */
export interface QueueSetting {
  /** `"maxBacklog.all"`, `"keepDone.count"`, `"defaults.attempts"`; for a weight, `"weights.acme"`. */
  readonly name: string;
  readonly value: number | string;
  /** Where it comes from: `"override"` by an operator, `"rules"`, or `"code"`, which includes the defaults. */
  readonly setBy: "override" | "rules" | "code";
  /** Who made the override, when, why and for how long. */
  readonly override?: SetBy | undefined;
}

export interface SettingsStatus {
  /** The values in force, and who set each of them. */
  readonly settings: readonly QueueSetting[];
  /** The version of the rules, if they set anything for the queue. */
  readonly rulesVersion: number | undefined;
}

/** The pending jobs of one key. */
export interface LaneStatus {
  readonly key: Key;
  /** How many are due, with those that workers have fetched and not started. */
  readonly jobs: number;
  /** Its weight beside other keys: `1`. */
  readonly weight: number;
  /**
   * Ms for which its lane is blocked, because its key has no room or is paused: `0` if it is not. In JSON `"forever"`
   * without an end.
   */
  readonly asideMs: number;
}

/** The oldest due job. */
export interface OldestDue {
  readonly id: string;
  readonly key: Key | undefined;
  /** How long it has waited since it became due, or due again after a retry, a replay or the death of its worker. */
  readonly waitingMs: number;
  /** What it waits for; undefined if it has started in the meantime. */
  readonly why: JobExplanation | undefined;
}

/** Replicas report their calls with up to this delay. */
const HEARD_MS = 15_000;
/** How far back a bucket knows how many calls it started. */
const KNOWN_MS = 86_000_000;
/** A job is fetched this long before its slot. */
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

  /** Returns the part of its wait that the calls that were made in that time do not explain. */
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
    const { workers, places, goneInMs, reason } = expected;
    const rates = ratesOf(ended);
    return {
      name: queue,
      generation: hand.generation,
      jobs,
      oldest,
      oldestDeadMs: deadAtMs && Math.max(0, access.clock.latestMs() - deadAtMs),
      unexplainedMs: await unexplainedOf(oldest, capPerSecond),
      goneInMs,
      reason,
      ...longestLanes(seen),
      workers,
      places,
      workersWanted: workersWanted(expected, capPerSecond, rates.handlerMs),
      ...rates,
      ...set,
    };
  };
}

const LANES_SHOWN = 20;
/** A lane that is blocked for longer than a century is blocked forever. */
const ENDLESS_MS = 3_155_760_000_000;

function longestLanes({ lanes, others }: LanesSeen): Pick<QueueStatus, "lanes" | "lanesInAll"> {
  const waiting = lanes.filter(({ jobs }) => jobs > 0);
  const longest = waiting.toSorted((one, other) => other.jobs - one.jobs).slice(0, LANES_SHOWN);
  return {
    lanesInAll: waiting.length + others.lanes,
    lanes: longest.map(({ key, jobs, weight, asideMs }) =>
      withForever({
        key: decodeKey(key),
        jobs,
        weight,
        asideMs: asideMs > ENDLESS_MS ? Infinity : asideMs,
      }),
    ),
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

/** Returns how many workers have room for the jobs that the rate lets run at once, but for no more than are pending. */
function workersWanted(
  { waiting, workers, places }: Forecast,
  capPerSecond: number = Infinity,
  handlerMs: number = 0,
): number {
  const atOnce = Math.min(waiting, (capPerSecond * (handlerMs + AHEAD_MS)) / 1_000);
  return Math.ceil(workers === 0 ? Math.min(1, atOnce) : (atOnce * workers) / places);
}
