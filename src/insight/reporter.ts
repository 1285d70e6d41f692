/**
 * Tells the store what this process is and what its buckets do: at most once a second, and only while something happens.
 * The answer names the policies whose time is over; the first process that hears of one puts that of the code in force.
 */
import { hostname } from "node:os";
import process from "node:process";
import { reasonOf } from "../core/describe.ts";
import { StoreUnavailableError } from "../core/errors.ts";
import type { Logger } from "../core/logger.ts";
import type {
  BucketReport,
  BucketTold,
  InsightStore,
  Override,
  ReplicaReport,
} from "../core/stores/insight/store.ts";
import type { OwnedBucket, ToldHere } from "../throttle/bucket.ts";

/** The least time between two reports. */
const EVERY_MS = 1_000;
/** How often a process tells that it is there, and what still waits, when nothing happens. */
const AT_REST_MS = 10_000;
/** Rates are of the last ten seconds. */
const RATE_MS = 10_000;

export interface ReporterParts {
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
  /** Calls, and when they were told of. */
  recent: { readonly atMs: number; readonly started: number }[];
  state: string;
  toldAtMs: number;
}

export function createReporter(parts: ReporterParts): Reporter {
  const { insight, logger, replica, version } = parts;
  const about = { host: hostname(), pid: process.pid, version, startedAtMs: Date.now() };
  const known = new Map<string, Told>();
  let timer: NodeJS.Timeout | undefined;
  let lastAtMs = -Infinity;
  let isClosed = false;
  let reporting: Promise<void> | undefined;

  /** What is new of a bucket; undefined if nothing is. */
  function newsOf(bucket: OwnedBucket, nowMs: number): BucketReport | undefined {
    const { name } = bucket;
    const { started, ...here } = bucket.told();
    const told = known.get(name) ?? { recent: [], state: "", toldAtMs: -Infinity };
    const isNew = !known.has(name);
    told.recent.push({ atMs: nowMs, started });
    told.recent = told.recent.filter(({ atMs }) => atMs > nowMs - RATE_MS);
    const startedIn10s = told.recent.reduce((total, each) => total + each.started, 0);
    const state: BucketTold = { ...here, startedIn10s };
    const text = textOf(here, startedIn10s);
    const isAtRest = text === told.state && started === 0;
    const isDue = sum(here.waiting) > 0 && nowMs - told.toldAtMs >= AT_REST_MS;
    const isIdle = started === 0 && sum(here.waiting) === 0;
    if (isNew ? isIdle : isAtRest && !isDue) return undefined;
    known.set(name, told);
    told.state = text;
    told.toldAtMs = nowMs;
    return { bucket: name, state, started, declared: isNew ? bucket.policy.text : undefined };
  }

  async function report(): Promise<void> {
    const nowMs = performance.now();
    const buckets = [...parts.buckets()].flatMap((bucket) => newsOf(bucket, nowMs) ?? []);
    if (buckets.length === 0 && nowMs - lastAtMs < AT_REST_MS) return;
    lastAtMs = nowMs;
    await send({ replica, about, isLast: false, buckets });
  }

  /** The calls that were not told of yet; all else that was told is forgotten. */
  async function reportLast(): Promise<void> {
    if (known.size === 0) return;
    const state: BucketTold = { waiting: [], oldestMs: 0, startedIn10s: 0, limitedBy: undefined };
    const told = [...parts.buckets()].filter(({ name }) => known.has(name));
    const buckets = told.map((bucket): BucketReport => {
      const { started } = bucket.told();
      return { bucket: bucket.name, state, started, declared: undefined };
    });
    await send({ replica, about, isLast: true, buckets });
  }

  async function send(told: ReplicaReport): Promise<void> {
    try {
      await expire(await insight.report(told));
    } catch (error) {
      // It is told again what the code declares; calls that were to be counted are not.
      for (const { bucket } of told.buckets) known.delete(bucket);
      // Who draws hears of a Redis that does not answer.
      if (error instanceof StoreUnavailableError || isClosed) return;
      const reason = reasonOf(error);
      logger.warn({ reason }, `What this process does could not be reported: ${reason}`);
    }
  }

  async function expire(overrides: readonly Override[]): Promise<void> {
    for (const override of overrides) {
      if (isClosed) return;
      const bucket = await parts.find(override.bucket);
      await (bucket?.expire(override) ?? insight.endOverride(override));
    }
  }

  function isBusy(): boolean {
    return [...known.values()].some(({ recent }) => recent.some(({ started }) => started > 0));
  }

  function wait(ms: number): void {
    if (timer !== undefined || isClosed) return;
    timer = setTimeout(() => {
      timer = undefined;
      reporting = report().finally(() => wait(isBusy() ? EVERY_MS : AT_REST_MS));
    }, ms);
    // A report keeps no process alive.
    timer.unref();
  }

  return {
    onActivity() {
      const inMs = Math.max(0, lastAtMs + EVERY_MS - performance.now());
      if (timer !== undefined) clearTimeout(timer);
      timer = undefined;
      wait(Math.min(EVERY_MS, Number.isFinite(inMs) ? Math.max(inMs, 50) : 50));
    },
    async close() {
      isClosed = true;
      if (timer !== undefined) clearTimeout(timer);
      await reporting;
      await reportLast();
    },
  };
}

/** What is compared to see whether something has changed; how long somebody waits grows by itself. */
function textOf({ waiting, limitedBy }: Omit<ToldHere, "started">, startedIn10s: number): string {
  return JSON.stringify([waiting, limitedBy, startedIn10s]);
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0);
}
