import { sayEndless } from "../../core/describe.ts";
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

/** How a queue is, over all processes. */
export interface QueueStatus extends SettingsStatus {
  readonly name: string;
  /**
   * Grows with each pause, resume and setting by hand: give it to one that is based on what you saw. `0` before the first.
   */
  readonly generation: number;
  /** How many jobs are in each state. */
  readonly jobs: QueueCounts;
  /** The job that has waited longest of those that are due; undefined if none waits. Of more than 500 keys 500 are looked at. */
  readonly oldest: OldestDue | undefined;
  /** How long ago the oldest dead letter failed for the last time, in ms; undefined if there is none. */
  readonly oldestDeadMs: number | undefined;
  /**
   * How much of its wait no limit, cooldown, pause or turn explains, in ms: `0` while there is a reason. It grows while no
   * worker is alive, or workers are too few or stand still; what is less than 15 s counts as 0.
   */
  readonly unexplainedMs: number;
  /** Ms until the backlog is gone, as `forecast()` says; undefined while nothing is promised, for this `reason`. */
  readonly goneInMs: number | undefined;
  readonly reason: NoPromise | undefined;
  /** The keys of which most jobs wait, up to 20, those with the most first; of more than 1,000 keys those whose turn comes soon are looked at. */
  readonly lanes: readonly LaneStatus[];
  /** How many keys have jobs that wait. */
  readonly lanesInAll: number;
  /** How many workers are alive, and how many jobs they can have at once. */
  readonly workers: number;
  readonly places: number;
  /**
   * How many workers, each with as many places as those that are alive have on average, are enough for the backlog at the
   * rate of the bucket: `0` if nothing waits. Where it is not known how long handlers take, they count as taking no time.
   */
  readonly workersWanted: number;
  /** Attempts of about the last minute that were done, and that failed, by second. */
  readonly donePerSecond: number;
  readonly failedPerSecond: number;
  /** The part of them that failed: `0.05`. `0` if none ended. */
  readonly failureRate: number;
  /** How long their handlers took on average; undefined if none ended. */
  readonly handlerMs: number | undefined;
}

/** One value that operators and a rules file can set of a queue, as far as there is one. */
export interface QueueSetting {
  /** `"maxBacklog.all"`, `"keepDone.count"`, `"defaults.attempts"`, or of these `"weights.acme"`. */
  readonly name: string;
  readonly value: number | string;
  /** Whether it was set by hand, or else a rules file says it, or else the code; where that says nothing, the default. */
  readonly setBy: "override" | "rules" | "code";
  /** Who set it by hand, when, why and for how long. */
  readonly override?: SetBy | undefined;
}

export interface SettingsStatus {
  /** What holds of what can be set, and who set it. */
  readonly settings: readonly QueueSetting[];
  /** The version of the rules, if they say anything of the queue. */
  readonly rulesVersion: number | undefined;
}

/** The jobs of one key that wait. */
export interface LaneStatus {
  readonly key: Key;
  /** How many are due and wait, those that workers have fetched and not started included. */
  readonly jobs: number;
  /** Its share of the turns beside others: `1`. */
  readonly weight: number;
  /** Ms for which it stands aside, since its key has no room or is paused: `0` if it is in line. In JSON `"forever"` without an end. */
  readonly asideMs: number;
}

/** The oldest of the jobs that are due. */
export interface OldestDue {
  readonly id: string;
  readonly key: Key | undefined;
  /** How long it has waited since it was due, or due again: after a retry, a replay or the death of its worker. */
  readonly waitingMs: number;
  /** What it waits for; undefined if it has begun meanwhile. */
  readonly why: JobExplanation | undefined;
}

/** Replicas tell of their calls after up to so long. */
const HEARD_MS = 15_000;
/** For how long a bucket knows how many calls it started. */
const KNOWN_MS = 86_000_000;
/** A job is fetched a little before its slot. */
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

  /** What the calls that were made in the meantime do not explain of its wait. */
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
/** A lane that is aside for longer than a century is so for good. */
const ENDLESS_MS = 3_155_760_000_000;

function longestLanes({ lanes, others }: LanesSeen): Pick<QueueStatus, "lanes" | "lanesInAll"> {
  const waiting = lanes.filter(({ jobs }) => jobs > 0);
  const longest = waiting.toSorted((one, other) => other.jobs - one.jobs).slice(0, LANES_SHOWN);
  return {
    lanesInAll: waiting.length + others.lanes,
    lanes: longest.map(({ key, jobs, weight, asideMs }) =>
      sayEndless({
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

/** As many as have places for the jobs that the rate lets run at once, and for no more than wait. */
function workersWanted(
  { waiting, workers, places }: Forecast,
  capPerSecond: number = Infinity,
  handlerMs: number = 0,
): number {
  const atOnce = Math.min(waiting, (capPerSecond * (handlerMs + AHEAD_MS)) / 1_000);
  return Math.ceil(workers === 0 ? Math.min(1, atOnce) : (atOnce * workers) / places);
}
