/**
 * Reports this process, its buckets, queues and workers to the store. A process reports at most
 * once a second, and only while something happens. The store's reply names overrides that have
 * expired. The first process that receives such an override makes the code's policy active again.
 */
import { hostname } from "node:os";
import process from "node:process";
import { reasonOf } from "../core/describe.ts";
import { ChangedError, StoreUnavailableError } from "../core/errors.ts";
import { sampled, type Logger } from "../core/logger.ts";
import type {
  BucketReport,
  BucketActivity,
  InsightStore,
  Override,
  ReplicaReport,
} from "../core/stores/insight/store.ts";
import type { OwnedBucket, LocalActivity } from "../throttle/bucket.ts";
import { createQueueReports, type QueueReportsParts } from "./queue-reports.ts";

/** The minimum time between two reports. */
const EVERY_MS = 1_000;
/** The delay before the first report. It lets one report cover several calls. */
const FIRST_MS = 50;
/**
 * The interval at which a process reports callers that are still waiting if nothing else happens.
 */
const AT_REST_MS = 10_000;
/** The interval at which an idle process reports that it is alive. */
const IDLE_MS = 30_000;
/**
 * How long a closing process waits for its last report. It does not wait for an unreachable Redis.
 */
const LAST_MS = 500;
/** The tolerance for timers that fire early. */
const SLACK_MS = 500;
/** A process that was frozen reports at most this much waiting time at once. */
const LONGEST_WAITED_MS = 20_000;

export interface ReporterParts extends QueueReportsParts {
  readonly insight: InsightStore;
  readonly logger: Logger;
  readonly replica: string;
  readonly version: string;
  readonly buckets: () => Iterable<OwnedBucket>;
  /** Finds the bucket with this name, whichever process declares it. */
  readonly find: (bucket: string) => Promise<OwnedBucket | undefined>;
}

export interface Reporter {
  /** Schedules a report within a second. */
  readonly onActivity: () => void;
  /** Sends a last report and stops reporting. */
  close(): Promise<void>;
}

/** What a process remembers about a bucket between two reports. */
interface ReportedBucket {
  readonly recent: RecentCalls;
  state: string;
  /** How many callers were waiting at the last report, by rank. */
  waiting: readonly number[];
  reportedAtMs: number;
  /**
   * `waitedSinceMs` is the start of the unreported waiting time. `waited` is the
   * caller-milliseconds since then, by rank.
   */
  waitedSinceMs: number;
  waited: readonly number[];
  /** True if the policy declared in the code was reported. */
  isDeclared: boolean;
}

export function createReporter(parts: ReporterParts): Reporter {
  const { insight, replica, version } = parts;
  const logger = sampled(parts.logger, () => performance.now());
  const about = { host: hostname(), pid: process.pid, version, startedAtMs: Date.now() };
  const known = new Map<string, ReportedBucket>();
  const ofQueues = createQueueReports(parts);
  let timer: NodeJS.Timeout | undefined;
  let timerAtMs = Infinity;
  let lastAtMs = -Infinity;
  let hasReported = false;
  let isClosed = false;
  /** True if the last report failed. */
  let hasFailed = false;
  /** Allows one report at a time. */
  let reporting = Promise.resolve();

  /** Returns what changed in a bucket since the last report. Undefined if nothing changed. */
  function changesIn(
    bucket: OwnedBucket,
    nowMs: number,
    isOfQueue: boolean,
  ): BucketReport | undefined {
    const { name } = bucket;
    const { started, refused, ...here } = bucket.takeActivity();
    const isNew = !known.has(name);
    const reported = known.get(name) ?? {
      recent: createRecentCalls(EVERY_MS),
      state: "",
      waiting: [],
      reportedAtMs: -Infinity,
      waitedSinceMs: nowMs,
      waited: [],
      isDeclared: false,
    };
    reported.recent.add(nowMs, started);
    const startedIn10s = reported.recent.count();
    const state: BucketActivity = { ...here, startedIn10s };
    const text = textOf(here, startedIn10s);
    const isAtRest = text === reported.state && started + refused === 0;
    const isDue = sum(here.waiting) > 0 && nowMs - reported.reportedAtMs >= AT_REST_MS - SLACK_MS;
    const isIdle = started === 0 && sum(here.waiting) === 0;
    if (!isOfQueue && (isNew ? isIdle : isAtRest && !isDue)) return undefined;
    known.set(name, reported);
    addWaited(reported, nowMs);
    const hasEnded = sum(here.waiting) === 0 && startedIn10s === 0;
    // The waiting time is reported only once per step, because it costs as much as all other fields
    // of the report.
    const isStepOver = nowMs - reported.waitedSinceMs >= AT_REST_MS - SLACK_MS;
    const waited = hasEnded || isStepOver ? takeWaited(reported, nowMs) : undefined;
    reported.state = text;
    reported.waiting = here.waiting;
    reported.reportedAtMs = nowMs;
    const declared = reported.isDeclared ? undefined : declaredBy(bucket);
    reported.isDeclared = true;
    return { bucket: name, state, started, refused, declared, waited };
  }

  async function report(): Promise<void> {
    const nowMs = performance.now();
    const queueReport = ofQueues.take(nowMs);
    // A process that manages a queue also needs the queue's bucket.
    const named = new Set(queueReport.queues.map(({ bucket }) => bucket));
    const buckets = [...parts.buckets()].flatMap(
      (bucket) => changesIn(bucket, nowMs, named.has(bucket.name)) ?? [],
    );
    const isQuiet =
      buckets.length + queueReport.queues.length === 0 && queueReport.workers === undefined;
    if (isQuiet && nowMs - lastAtMs < IDLE_MS - SLACK_MS) return;
    lastAtMs = nowMs;
    await send({ replica, about, isLast: false, buckets, ...queueReport });
  }

  /** Reports the remaining calls, and reports all other numbers of this process as zero. */
  async function reportLast(): Promise<void> {
    const state: BucketActivity = {
      waiting: [],
      oldestMs: 0,
      startedIn10s: 0,
      limitedBy: undefined,
    };
    const queueReport = ofQueues.take(performance.now(), true);
    const named = new Set(queueReport.queues.map(({ bucket }) => bucket));
    const buckets = [...parts.buckets()].flatMap((bucket): BucketReport[] => {
      const { name } = bucket;
      const { started, refused } = bucket.takeActivity();
      const reported = known.get(name);
      if (reported === undefined && started === 0 && !named.has(name)) return [];
      const declared = reported?.isDeclared === true ? undefined : declaredBy(bucket);
      if (reported !== undefined) addWaited(reported, performance.now());
      const waited = reported && takeWaited(reported, performance.now());
      return [{ bucket: name, state, started, refused, declared, waited }];
    });
    const hasChanges =
      buckets.length + queueReport.queues.length > 0 || queueReport.workers !== undefined;
    if (hasChanges) await send({ replica, about, isLast: true, buckets, ...queueReport });
  }

  async function send(replicaReport: ReplicaReport): Promise<void> {
    try {
      const { over, isNew } = await insight.report(replicaReport);
      hasFailed = false;
      // Makes the next report complete if the store has lost its data.
      if (isNew && hasReported) {
        reportAgain(known.keys());
        ofQueues.reportAgain();
      }
      hasReported = true;
      await expire(over);
    } catch (error) {
      hasFailed = true;
      // The calls in the lost report are never counted, because a later report would put them at
      // the wrong time.
      reportAgain(replicaReport.buckets.map(({ bucket }) => bucket));
      ofQueues.reportAgain();
      warn(error, "What this process does could not be reported");
    }
  }

  function reportAgain(buckets: Iterable<string>): void {
    for (const bucket of buckets) {
      const reported = known.get(bucket);
      if (reported !== undefined) Object.assign(reported, { state: "", isDeclared: false });
    }
  }

  function warn(error: unknown, what: string): void {
    // Logs nothing if Redis is unreachable, because callers already get that error.
    if (error instanceof StoreUnavailableError || isClosed) return;
    const reason = reasonOf(error);
    logger.warn({ reason }, `${what}: ${reason}`);
  }

  async function expire(overrides: readonly Override[]): Promise<void> {
    for (const override of overrides) {
      if (isClosed) return;
      try {
        const bucket = await parts.find(override.bucket);
        await (bucket?.expire(override) ?? insight.endOverride(override));
      } catch (error) {
        // The store will name this override again later. A `ChangedError` only means that the
        // bucket kept changing.
        if (error instanceof ChangedError) continue;
        warn(error, `The policy of bucket "${override.bucket}" could not be ended`);
      }
    }
  }

  /** Returns the time until the next check if nothing happens before, in ms. */
  function nextInMs(): number {
    // A failed report is not repeated soon: if Redis rejected one report, it will probably reject
    // the next one too.
    if (hasFailed) return AT_REST_MS;
    const isBusy = [...known.values()].some(({ recent }) => recent.count() > 0);
    // Workers are checked each second, because reading them costs almost nothing and only changes
    // are sent.
    if (isBusy || ofQueues.hasWorkers) return EVERY_MS;
    return [...parts.buckets()].some(({ waiting }) => waiting > 0) ? AT_REST_MS : IDLE_MS;
  }

  function wait(ms: number): void {
    if (isClosed || timerAtMs <= performance.now() + ms) return;
    clearTimeout(timer);
    timerAtMs = performance.now() + ms;
    timer = setTimeout(() => {
      timerAtMs = Infinity;
      reporting = reporting.then(report).finally(() => wait(nextInMs()));
    }, ms);
    // The timer must not keep the process alive.
    timer.unref();
  }

  return {
    onActivity() {
      const inMs = lastAtMs + EVERY_MS - performance.now();
      wait(Math.max(FIRST_MS, Math.min(EVERY_MS, inMs)));
    },
    async close() {
      isClosed = true;
      clearTimeout(timer);
      let ended: NodeJS.Timeout | undefined;
      const timeIsOver = new Promise<void>((resolve) => (ended = setTimeout(resolve, LAST_MS)));
      await Promise.race([reporting.then(reportLast), timeIsOver]);
      clearTimeout(ended);
    },
  };
}

/**
 * Returns the policy that this process's code declares. Undefined if only rules declare a policy,
 * or there is no declaration.
 */
function declaredBy({ isDeclared, policy }: OwnedBucket): string | undefined {
  return isDeclared ? policy.text : undefined;
}

/**
 * Adds the waiting time since the last report. The number of callers has not changed since then,
 * because a change would have been reported.
 */
function addWaited(reported: ReportedBucket, nowMs: number): void {
  const { waiting, waited, reportedAtMs } = reported;
  if (sum(waiting) === 0) return;
  reported.waited = waiting.map(
    (count, rank) => (waited[rank] ?? 0) + count * (nowMs - reportedAtMs),
  );
}

function takeWaited(reported: ReportedBucket, nowMs: number): BucketReport["waited"] {
  const { waited, waitedSinceMs } = reported;
  const forMs = Math.round(Math.min(nowMs - waitedSinceMs, LONGEST_WAITED_MS));
  reported.waited = [];
  reported.waitedSinceMs = nowMs;
  if (sum(waited) === 0 || forMs === 0) return undefined;
  const callers = waited.map((total) => Number((total / (nowMs - waitedSinceMs)).toFixed(2)));
  return { callers, forMs };
}

/**
 * Returns a text that is compared to detect changes. The text excludes the waiting time, which
 * grows by itself.
 */
function textOf(
  { waiting, limitedBy }: Pick<LocalActivity, "waiting" | "limitedBy">,
  startedIn10s: number,
): string {
  return JSON.stringify([waiting, limitedBy, startedIn10s]);
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0);
}

/**
 * Counts the calls that a bucket started in the last ten seconds. It is updated about once a
 * second.
 */
export interface RecentCalls {
  /** Adds the calls that started since the previous reading. */
  add(nowMs: number, started: number): void;
  /**
   * Returns the number of calls in the ten seconds before the last reading: `30`. A reading that
   * began earlier counts only in part. A bucket at its limit is therefore never shown above the
   * limit.
   */
  count(): number;
}

const WINDOW_MS = 10_000;

interface Reading {
  readonly fromMs: number;
  readonly atMs: number;
  readonly started: number;
}

/**
 * Creates a counter of recent calls. `withinMs` is the maximum time between the first call after a
 * pause and the reading that includes it.
 */
export function createRecentCalls(withinMs: number): RecentCalls {
  let readings: readonly Reading[] = [];

  return {
    add(atMs, started) {
      const last = readings.at(-1);
      const fromMs = last !== undefined && last.started > 0 ? last.atMs : atMs - withinMs;
      const recent = readings.filter((reading) => reading.atMs > atMs - WINDOW_MS);
      readings = [...recent, { fromMs: Math.max(fromMs, last?.atMs ?? fromMs), atMs, started }];
    },
    count() {
      const sinceMs = (readings.at(-1)?.atMs ?? 0) - WINDOW_MS;
      return readings.reduce((sum, { fromMs, atMs, started }) => {
        if (fromMs >= sinceMs) return sum + started;
        return sum + Math.floor((started * (atMs - sinceMs)) / (atMs - fromMs));
      }, 0);
    },
  };
}
