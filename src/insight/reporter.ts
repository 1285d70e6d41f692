/**
 * Tells the store what this process is and what its buckets, queues and workers do: at most once a second, and only while something happens.
 * The answer names the policies whose time is over; the first process that hears of one puts that of the code in force.
 */
import { hostname } from "node:os";
import process from "node:process";
import { reasonOf } from "../core/describe.ts";
import { StoreUnavailableError } from "../core/errors.ts";
import { sampled, type Logger } from "../core/logger.ts";
import type {
  BucketReport,
  BucketTold,
  InsightStore,
  Override,
  ReplicaReport,
} from "../core/stores/insight/store.ts";
import type { OwnedBucket, ToldHere } from "../throttle/bucket.ts";
import { createQueueNews, type QueueNewsParts } from "./queue-news.ts";

/** The least time between two reports. */
const EVERY_MS = 1_000;
/** The first calls are told of together. */
const FIRST_MS = 50;
/** How often a process tells what still waits, when nothing happens … */
const AT_REST_MS = 10_000;
/** … and that it is there, when nothing waits either. */
const IDLE_MS = 30_000;
/** How long a process that closes waits for its last report: a Redis that is away is not waited for. */
const LAST_MS = 500;
/** A timer may be early by some of this. */
const SLACK_MS = 500;
/** A process that stood still does not tell of more at once. */
const LONGEST_WAITED_MS = 20_000;

export interface ReporterParts extends QueueNewsParts {
  readonly insight: InsightStore;
  readonly logger: Logger;
  readonly replica: string;
  readonly version: string;
  readonly buckets: () => Iterable<OwnedBucket>;
  /** The bucket of this name, whichever process declares it. */
  readonly find: (bucket: string) => Promise<OwnedBucket | undefined>;
}

export interface Reporter {
  /** Something happens: it is told within a second. */
  readonly onActivity: () => void;
  /** Tells what has not been told yet, and nothing after that. */
  close(): Promise<void>;
}

/** What a process remembers of a bucket between its reports. */
interface Told {
  readonly recent: RecentCalls;
  state: string;
  /** Who waited then, by rank. */
  waiting: readonly number[];
  toldAtMs: number;
  /** Since when it was not told who waited; and caller-milliseconds since then, by rank. */
  waitedSinceMs: number;
  waited: readonly number[];
  /** Whether the store was told what the code declares. */
  isDeclared: boolean;
}

export function createReporter(parts: ReporterParts): Reporter {
  const { insight, replica, version } = parts;
  const logger = sampled(parts.logger, () => performance.now());
  const about = { host: hostname(), pid: process.pid, version, startedAtMs: Date.now() };
  const known = new Map<string, Told>();
  const ofQueues = createQueueNews(parts);
  let timer: NodeJS.Timeout | undefined;
  let timerAtMs = Infinity;
  let lastAtMs = -Infinity;
  let hasReported = false;
  let isClosed = false;
  /** Whether the last report could not be told. */
  let hasFailed = false;
  /** One report is under way at a time. */
  let reporting = Promise.resolve();

  /** What is new of a bucket; undefined if nothing is. */
  function newsOf(
    bucket: OwnedBucket,
    nowMs: number,
    isOfQueue: boolean,
  ): BucketReport | undefined {
    const { name } = bucket;
    const { started, refused, ...here } = bucket.told();
    const isNew = !known.has(name);
    const told = known.get(name) ?? {
      recent: createRecentCalls(EVERY_MS),
      state: "",
      waiting: [],
      toldAtMs: -Infinity,
      waitedSinceMs: nowMs,
      waited: [],
      isDeclared: false,
    };
    told.recent.add(nowMs, started);
    const startedIn10s = told.recent.count();
    const state: BucketTold = { ...here, startedIn10s };
    const text = textOf(here, startedIn10s);
    const isAtRest = text === told.state && started + refused === 0;
    const isDue = sum(here.waiting) > 0 && nowMs - told.toldAtMs >= AT_REST_MS - SLACK_MS;
    const isIdle = started === 0 && sum(here.waiting) === 0;
    if (!isOfQueue && (isNew ? isIdle : isAtRest && !isDue)) return undefined;
    known.set(name, told);
    addWaited(told, nowMs);
    const hasEnded = sum(here.waiting) === 0 && startedIn10s === 0;
    // Once in a step is often enough: it costs as much as all else that is told of a bucket.
    const isStepOver = nowMs - told.waitedSinceMs >= AT_REST_MS - SLACK_MS;
    const waited = hasEnded || isStepOver ? takeWaited(told, nowMs) : undefined;
    told.state = text;
    told.waiting = here.waiting;
    told.toldAtMs = nowMs;
    const declared = told.isDeclared ? undefined : declaredBy(bucket);
    told.isDeclared = true;
    return { bucket: name, state, started, refused, declared, waited };
  }

  async function report(): Promise<void> {
    const nowMs = performance.now();
    const news = ofQueues.take(nowMs);
    // Who manages a queue that this process has declared needs its bucket.
    const named = new Set(news.queues.map(({ bucket }) => bucket));
    const buckets = [...parts.buckets()].flatMap(
      (bucket) => newsOf(bucket, nowMs, named.has(bucket.name)) ?? [],
    );
    const isQuiet = buckets.length + news.queues.length === 0 && news.workers === undefined;
    if (isQuiet && nowMs - lastAtMs < IDLE_MS - SLACK_MS) return;
    lastAtMs = nowMs;
    await send({ replica, about, isLast: false, buckets, ...news });
  }

  /** The calls that were not told of yet; all else that was told is forgotten. */
  async function reportLast(): Promise<void> {
    const state: BucketTold = { waiting: [], oldestMs: 0, startedIn10s: 0, limitedBy: undefined };
    const news = ofQueues.take(performance.now(), true);
    const named = new Set(news.queues.map(({ bucket }) => bucket));
    const buckets = [...parts.buckets()].flatMap((bucket): BucketReport[] => {
      const { name } = bucket;
      const { started, refused } = bucket.told();
      const told = known.get(name);
      if (told === undefined && started === 0 && !named.has(name)) return [];
      const declared = told?.isDeclared === true ? undefined : declaredBy(bucket);
      if (told !== undefined) addWaited(told, performance.now());
      const waited = told && takeWaited(told, performance.now());
      return [{ bucket: name, state, started, refused, declared, waited }];
    });
    const isTold = buckets.length + news.queues.length > 0 || news.workers !== undefined;
    if (isTold) await send({ replica, about, isLast: true, buckets, ...news });
  }

  async function send(told: ReplicaReport): Promise<void> {
    try {
      const { over, isNew } = await insight.report(told);
      hasFailed = false;
      // A store that lost all is told all again.
      if (isNew && hasReported) {
        tellAgain(known.keys());
        ofQueues.tellAgain();
      }
      hasReported = true;
      await expire(over);
    } catch (error) {
      hasFailed = true;
      // Calls that were to be counted are not: they would be counted for another time.
      tellAgain(told.buckets.map(({ bucket }) => bucket));
      ofQueues.tellAgain();
      warn(error, "What this process does could not be reported");
    }
  }

  function tellAgain(buckets: Iterable<string>): void {
    for (const bucket of buckets) {
      const told = known.get(bucket);
      if (told !== undefined) Object.assign(told, { state: "", isDeclared: false });
    }
  }

  function warn(error: unknown, what: string): void {
    // Who draws hears of a Redis that does not answer.
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
        // The store names it again a while later.
        warn(error, `The policy of bucket "${override.bucket}" could not be ended`);
      }
    }
  }

  /** When to look again if nothing happens until then. */
  function nextInMs(): number {
    // All of it is to be told again, and what Redis refused it refuses a second later, too.
    if (hasFailed) return AT_REST_MS;
    const isBusy = [...known.values()].some(({ recent }) => recent.count() > 0);
    // A look at workers costs nothing here; it is told only what has changed.
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
    // A report keeps no process alive.
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

/** What the code of this process says of a bucket; undefined if only rules do, or nobody. */
function declaredBy({ isDeclared, policy }: OwnedBucket): string | undefined {
  return isDeclared ? policy.text : undefined;
}

/** Since the last report as many waited as then, or another would have been told. */
function addWaited(told: Told, nowMs: number): void {
  const { waiting, waited, toldAtMs } = told;
  if (sum(waiting) === 0) return;
  told.waited = waiting.map((count, rank) => (waited[rank] ?? 0) + count * (nowMs - toldAtMs));
}

function takeWaited(told: Told, nowMs: number): BucketReport["waited"] {
  const { waited, waitedSinceMs } = told;
  const forMs = Math.round(Math.min(nowMs - waitedSinceMs, LONGEST_WAITED_MS));
  told.waited = [];
  told.waitedSinceMs = nowMs;
  if (sum(waited) === 0 || forMs === 0) return undefined;
  const callers = waited.map((total) => Number((total / (nowMs - waitedSinceMs)).toFixed(2)));
  return { callers, forMs };
}

/** What is compared to see whether something has changed; how long somebody waits grows by itself. */
function textOf(
  { waiting, limitedBy }: Pick<ToldHere, "waiting" | "limitedBy">,
  startedIn10s: number,
): string {
  return JSON.stringify([waiting, limitedBy, startedIn10s]);
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0);
}

/** How many calls a bucket started here in the last ten seconds, as counts that are read about once a second say. */
export interface RecentCalls {
  /** Takes in how many calls started since the last reading. */
  add(nowMs: number, started: number): void;
  /**
   * How many started in the ten seconds before the last reading: `30`. Of a reading that began before them, no more than
   * its part in proportion counts, so that a bucket at its cap is never shown above it.
   */
  count(): number;
}

const WINDOW_MS = 10_000;

interface Reading {
  readonly fromMs: number;
  readonly atMs: number;
  readonly started: number;
}

/** A first call is read after `withinMs` at the latest: one that comes after a rest has started within that time. */
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
