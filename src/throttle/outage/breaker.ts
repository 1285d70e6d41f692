/**
 * The breaker of one bucket in one process. It opens when several jobs in a row fail because their downstream is
 * unreachable. While it is open, no job starts. After `coolMs`, one job at a time tries. The first success closes the
 * breaker.
 *
 *       closed ──▶ `failures` different jobs in a row ──▶ open for `coolMs` ──▶ one job tries ──▶ closed
 *                                                            ▲                     │ unreachable: twice as long
 *                                                            └─────────────────────┘
 *
 * A job with a key also counts for its key, because each key may be a separate endpoint. For the bucket, each key
 * counts only once in a row. One unreachable endpoint therefore stops only its own jobs. Several unreachable keys in a
 * row stop all jobs.
 *
 * A job that fails while later jobs succeed is probably broken itself. For example, its URL does not exist. Its failures
 * no longer count in any row, and it becomes a dead letter after its attempts.
 */
import * as z from "zod";
import { reasonOf, withoutStop } from "../../core/describe.ts";
import { isMemberKey, namedOf } from "../../core/key-path.ts";
import type { Logger } from "../../core/logger.ts";
import { LONGEST_MS, wholeNumber } from "../../core/input/options.ts";
import { createLru } from "../lru.ts";
import { isUnreachable } from "./unreachable.ts";

/**
 * Settings for the breaker of a bucket, which stops the bucket's jobs while the downstream is
 * unreachable.
 */
export interface BreakerSettings {
  /** The number of failures in a row that open the breaker. Defaults to 5. */
  readonly failures?: number | undefined;
  /**
   * How long no job starts after the breaker opens, in ms. The time doubles each time that the
   * downstream is still unreachable. Defaults to 1,000 ms.
   */
  readonly coolMs?: number | undefined;
  /** The longest time that no job starts. Defaults to 60,000 ms. */
  readonly maxCoolMs?: number | undefined;
}

const SHOWN = "give { failures: 5, coolMs: 1_000, maxCoolMs: 60_000 }, or false";
/** @internal */
export const BREAKER: z.ZodType<BreakerSettings | false> = z.union(
  [
    z.literal(false),
    z.strictObject({
      failures: wholeNumber(1, 10_000, "failures").optional(),
      coolMs: wholeNumber(1, LONGEST_MS, "milliseconds").optional(),
      maxCoolMs: wholeNumber(1, LONGEST_MS, "milliseconds").optional(),
    }),
  ],
  { error: SHOWN },
);

/** The job or call that wants to start. */
export interface BreakerCall {
  readonly id: string;
  readonly key: string | undefined;
}

/**
 * Permission to start. For a probe, the breaker is open, and the probe's result decides whether the
 * breaker closes.
 */
export interface Pass {
  readonly passes: true;
  readonly isProbe: boolean;
  /** When the job started, on `performance.now()`. */
  readonly startedAtMs: number;
}

/** The job cannot start yet, because the breaker of its key or of the whole bucket is open. */
export interface Blocked {
  readonly passes: false;
  readonly scope: "key" | "bucket";
  /** Ms until the job may try again. */
  readonly inMs: number;
}

export interface Verdict {
  readonly opened: Omit<Blocked, "passes"> | undefined;
  readonly countsFor: readonly Blocked["scope"][];
}

export interface Breaker {
  /** Returns why a job cannot start now. Undefined if it can start. */
  blocked(call: BreakerCall): Blocked | undefined;
  /**
   * Decides whether a job may start now. After a {@link Pass}, call `failed`, `succeeded` or
   * `release` exactly once.
   */
  enter(call: BreakerCall): Pass | Blocked;
  /**
   * Records that a job failed. `unreachable` contains the error if the job's downstream was
   * unreachable. Returns the open scope if the attempt does not count, and undefined if it counts.
   */
  failed(
    call: BreakerCall,
    pass: Pass,
    unreachable: { readonly thrown: unknown } | undefined,
  ): Omit<Blocked, "passes"> | undefined;
  /**
   * Returns what happened after a counted failure of this job, since `sinceMs` (on `performance.now()`). `opened` is
   * set if the breaker has opened. Otherwise `countsFor` lists the scopes that still count the failure in their row.
   * `countsFor` is empty if other jobs have succeeded since the failure.
   */
  verdict(call: BreakerCall, sinceMs: number): Verdict;
  /** Records that a job succeeded. */
  succeeded(call: BreakerCall, pass: Pick<Pass, "startedAtMs">): void;
  /**
   * Records that a job ended without a result about the downstream. If the job was the probe,
   * another job may then be the probe.
   */
  release(call: BreakerCall, pass: Pass): void;
  /**
   * Records the result of a call that is not part of a job. Such calls count only if the bucket
   * sets `breaker`.
   */
  noteCall(key: string | undefined, resultOrError: unknown): void;
  /** True if the breaker of the bucket or of the call's key is open. */
  isOpenFor(call: BreakerCall): boolean;
  /**
   * Opens the breaker of the bucket or of one key, because another process has opened it. The first
   * job tries after `coolMs`, or immediately with `triesAtOnce`.
   */
  adoptOpen(
    key: string | undefined,
    coolMs: number,
    options?: { readonly triesAtOnce?: boolean },
  ): void;
  /** False if the bucket's `breaker` option switches the breaker off. */
  readonly isOn: boolean;
  /**
   * Ms until the next job tries, at least 1, while the breaker of the whole bucket is open.
   * Otherwise 0.
   */
  readonly unreachableForMs: number;
  /** The number of jobs that may start now: 0, 1 for a probe, or Infinity. */
  readonly admits: number;
}

/**
 * Reports that the downstream of a bucket, or of one key, became unreachable or reachable again.
 */
export interface DownstreamChange {
  /** True if the downstream responds again. False if it is unreachable. */
  readonly isBack: boolean;
  /** Ms until the next job tries. 0 if the downstream is reachable again. */
  readonly forMs: number;
  /**
   * Why the downstream counts as unreachable: `"TypeError: fetch failed (connect ECONNREFUSED …)"`.
   * Undefined if the downstream is reachable again.
   */
  readonly reason: string | undefined;
  /** True if another process detected this change. */
  readonly isRemote: boolean;
}

export interface BreakerParts {
  readonly bucket: string;
  readonly settings: BreakerSettings | false | undefined;
  readonly logger: Logger;
  /**
   * Returns true if a key has its own limits. A cooldown can then stop the calls of this key alone.
   */
  readonly hasOwnLimits: (key: string) => boolean;
  /**
   * Starts a cooldown of the bucket, or of one key with its own limits. It applies to all replicas.
   */
  readonly coolDown: (key: string | undefined, coolMs: number) => void;
  /**
   * Called each time that the breaker of the bucket or of one key opens, stays open for longer, or
   * closes.
   */
  readonly onChange: (key: string | undefined, change: DownstreamChange) => void;
}

/** The breaker's state for the bucket, or for one key. */
interface Scope {
  readonly key: string | undefined;
  /** The jobs, keys or calls that failed since the last success. */
  readonly failedInRow: Set<string>;
  /** For each failed job, key or call: the scope's number of successes before its first failure. */
  readonly successesBefore: Map<string, number>;
  successes: number;
  open: Open | undefined;
  /** When the breaker last opened, on `performance.now()`. */
  openedAtMs: number;
  /** When the breaker last closed, on `performance.now()`. */
  closedAtMs: number;
}

interface Failure {
  readonly thrown: unknown;
  readonly startedAtMs: number;
  /** True if this job was the scope's probe. */
  readonly isProbe: boolean;
}

interface Open {
  readonly sinceMs: number;
  coolMs: number;
  untilMs: number;
  /** The running probe, if there is one. */
  probe: Pass | undefined;
}

const MOST_KEYS = 10_000;
const MOST_REMEMBERED = 1_000;
const OFF: Breaker = {
  blocked: () => undefined,
  enter: () => ({ passes: true, isProbe: false, startedAtMs: 0 }),
  failed: () => undefined,
  verdict: () => ({ opened: undefined, countsFor: [] }),
  succeeded: () => {},
  release: () => {},
  noteCall: () => {},
  isOpenFor: () => false,
  adoptOpen: () => {},
  isOn: false,
  unreachableForMs: 0,
  admits: Infinity,
};

export function createBreaker(parts: BreakerParts): Breaker {
  const { bucket, settings, logger, hasOwnLimits, coolDown, onChange } = parts;
  if (settings === false) return OFF;
  const { failures = 5, coolMs: firstMs = 1_000, maxCoolMs = 60_000 } = settings ?? {};
  const wholeBucket = createScope(undefined);
  const isLimited = (key: string): boolean => {
    try {
      return hasOwnLimits(key);
    } catch {
      // `hasOwnLimits` calls a function of the application, which may throw.
      return false;
    }
  };
  let calls = 0;
  const keys = createLru<Scope>(MOST_KEYS);

  function* scopesOf({ key }: BreakerCall): Generator<Scope> {
    yield wholeBucket;
    const scope = key === undefined ? undefined : keys.get(key);
    if (scope !== undefined) yield scope;
  }

  function blockedMs({ open }: Scope, nowMs: number): number {
    if (open === undefined) return 0;
    if (nowMs < open.untilMs) return open.untilMs - nowMs;
    if (open.probe === undefined) return 0;
    // The wait for a probe is limited, because a hanging probe must not block the other jobs
    // forever.
    const leftMs = open.probe.startedAtMs + maxCoolMs - nowMs;
    return Math.max(0, Math.min(open.coolMs, leftMs));
  }

  function openFor(scope: Scope, coolMs: number, sinceMs: number, nowMs: number): void {
    const lengthMs = Math.min(coolMs, maxCoolMs);
    scope.openedAtMs = nowMs;
    scope.open = { sinceMs, coolMs: lengthMs, untilMs: nowMs + lengthMs, probe: undefined };
  }

  /** Records a failure in one scope. Returns true if the attempt does not count. */
  function note(scope: Scope, member: string, { isProbe, startedAtMs, thrown }: Failure): boolean {
    const nowMs = performance.now();
    const { open, failedInRow, successesBefore } = scope;
    if (open !== undefined) {
      if (!isProbe) return true;
      openFor(scope, 2 * open.coolMs, open.sinceMs, nowMs);
      notifyOpen(scope, reasonOf(thrown));
      return true;
    }
    // A job that started before the downstream became reachable again does not count.
    if (startedAtMs < scope.closedAtMs) return true;
    const before = successesBefore.get(member);
    if (before !== undefined && scope.successes > before) return false;
    if (before === undefined) remember(successesBefore, member, scope.successes);
    failedInRow.add(member);
    if (failedInRow.size < failures) return false;
    // Forgets the failures of the jobs in the row, because the downstream caused them.
    for (const each of failedInRow) successesBefore.delete(each);
    failedInRow.clear();
    openFor(scope, firstMs, nowMs, nowMs);
    cool(scope);
    const reason = withoutStop(reasonOf(thrown));
    notifyOpen(scope, reason);
    logOpen(scope, reason);
    return true;
  }

  function cool({ key, open }: Scope): void {
    if (key === undefined || isLimited(key)) coolDown(key, open!.coolMs);
  }

  function notifyOpen({ key, open }: Scope, reason: string, isRemote = false): void {
    onChange(key, { isBack: false, forMs: open!.coolMs, reason, isRemote });
  }

  function logOpen({ key }: Scope, reason: string): void {
    logger.warn(
      { bucket, ...namedOf(key), reason },
      openMessage(bucket, key, { failures, reason }),
    );
  }

  function close(scope: Scope): void {
    const { key, open } = scope;
    scope.open = undefined;
    scope.closedAtMs = performance.now();
    onChange(key, BACK);
    const forS = Math.ceil((performance.now() - open!.sinceMs) / 1_000);
    const reason = `after ${forS} s`;
    logger.warn({ bucket, ...namedOf(key), reason }, closeMessage(bucket, key, reason));
  }

  function scopeOfKey(key: string): Scope {
    const found = keys.get(key) ?? createScope(key);
    keys.set(key, found);
    return found;
  }

  function release(call: BreakerCall, pass: Pass): void {
    if (!pass.isProbe) return;
    for (const { open } of scopesOf(call)) if (open?.probe === pass) open.probe = undefined;
  }

  function isOpenFor(call: BreakerCall): boolean {
    for (const { open } of scopesOf(call)) if (open !== undefined) return true;
    return false;
  }

  function blocked(call: BreakerCall): Blocked | undefined {
    const nowMs = performance.now();
    for (const scope of scopesOf(call)) {
      const inMs = blockedMs(scope, nowMs);
      if (inMs > 0) return { passes: false, scope: scope === wholeBucket ? "bucket" : "key", inMs };
    }
    return undefined;
  }

  return {
    blocked,
    enter(call) {
      const found = blocked(call);
      if (found !== undefined) return found;
      const startedAtMs = performance.now();
      const pass: Pass = { passes: true, isProbe: isOpenFor(call), startedAtMs };
      if (pass.isProbe) for (const { open } of scopesOf(call)) if (open) open.probe = pass;
      return pass;
    },
    failed(call, pass, unreachable) {
      const { id, key } = call;
      if (unreachable === undefined) {
        // The downstream responded, even if with an error. A probe therefore closes the breaker.
        if (pass.isProbe) for (const scope of scopesOf(call)) if (scope.open) close(scope);
        return undefined;
      }
      const { thrown } = unreachable;
      const { startedAtMs } = pass;
      const failedIn = (scope: Scope, member: string): boolean =>
        note(scope, member, { thrown, startedAtMs, isProbe: scope.open?.probe === pass });
      let blocker: Scope | undefined;
      if (key !== undefined && failedIn(scopeOfKey(key), id)) blocker = scopeOfKey(key);
      if (failedIn(wholeBucket, memberOf(wholeBucket, call))) blocker = wholeBucket;
      if (blocker === undefined) return undefined;
      const inMs = Math.max(1, blockedMs(blocker, performance.now()));
      return { scope: blocker === wholeBucket ? "bucket" : "key", inMs };
    },
    verdict(call, sinceMs) {
      const nowMs = performance.now();
      const countsFor: Blocked["scope"][] = [];
      for (const each of scopesOf(call)) {
        const scope = each === wholeBucket ? "bucket" : "key";
        if (each.open !== undefined || each.openedAtMs >= sinceMs) {
          return { opened: { scope, inMs: Math.max(1, blockedMs(each, nowMs)) }, countsFor: [] };
        }
        if (each.failedInRow.has(memberOf(each, call))) countsFor.push(scope);
      }
      return { opened: undefined, countsFor };
    },
    succeeded(call, { startedAtMs }) {
      for (const scope of scopesOf(call)) {
        scope.successes += 1;
        if (scope.failedInRow.size > 0) scope.failedInRow.clear();
        // A job that started before the outage does not prove that the outage is over.
        if (scope.open !== undefined && startedAtMs >= scope.open.sinceMs) close(scope);
      }
      if (call.key !== undefined && wholeBucket.successesBefore.size > 0) {
        wholeBucket.successesBefore.delete(`key ${call.key}`);
      }
    },
    release,
    noteCall(key, resultOrError) {
      if (settings === undefined) return;
      const nowMs = performance.now();
      const scope = key !== undefined && isLimited(key) ? scopeOfKey(key) : wholeBucket;
      const { open } = scope;
      if (isUnreachable(resultOrError)) {
        const isProbe = open !== undefined && nowMs >= open.untilMs;
        calls += 1;
        note(scope, `call ${calls}`, { thrown: resultOrError, startedAtMs: nowMs, isProbe });
        if (isProbe) cool(scope);
      } else {
        scope.successes += 1;
        scope.failedInRow.clear();
        if (open !== undefined) close(scope);
      }
    },
    isOpenFor,
    adoptOpen(key, coolMs, { triesAtOnce = false } = {}) {
      const scope = key === undefined ? wholeBucket : scopeOfKey(key);
      const nowMs = performance.now();
      if (scope.open !== undefined) return;
      openFor(scope, coolMs, nowMs, nowMs);
      if (triesAtOnce) scope.open!.untilMs = nowMs;
      else notifyOpen(scope, FOUND_ELSEWHERE, true);
    },
    isOn: true,
    get unreachableForMs() {
      if (wholeBucket.open === undefined) return 0;
      return Math.max(1, Math.ceil(blockedMs(wholeBucket, performance.now())));
    },
    get admits() {
      if (wholeBucket.open === undefined) return Infinity;
      return blockedMs(wholeBucket, performance.now()) > 0 ? 0 : 1;
    },
  };
}

/**
 * Returns the name under which a job counts in a scope. For the bucket, all jobs of a key count as
 * one.
 */
function memberOf(scope: Scope, { id, key }: BreakerCall): string {
  if (scope.key !== undefined) return id;
  return key === undefined ? `job ${id}` : `key ${key}`;
}

function createScope(key: string | undefined): Scope {
  return {
    key,
    failedInRow: new Set(),
    successesBefore: new Map(),
    successes: 0,
    open: undefined,
    openedAtMs: -Infinity,
    closedAtMs: -Infinity,
  };
}

function remember(known: Map<string, number>, member: string, successes: number): void {
  known.set(member, successes);
  if (known.size > MOST_REMEMBERED) known.delete(known.keys().next().value!);
}

const BACK: DownstreamChange = { isBack: true, forMs: 0, reason: undefined, isRemote: false };
const FOUND_ELSEWHERE = "another process found it unreachable";

function openMessage(
  bucket: string,
  key: string | undefined,
  { failures, reason }: { readonly failures: number; readonly reason: string },
): string {
  const row = failures === 1 ? "a failure" : `${failures} failures in a row`;
  const fact = `${subject(bucket, key)} is unreachable after ${row} (${reason}).`;
  if (key !== undefined && isMemberKey(key)) return `${fact} The other members take its calls.`;
  return key === undefined
    ? `${fact} Calls wait. One job at a time tries, and its attempts do not count.`
    : `${fact} One of its jobs at a time tries, and its attempts do not count. Other keys continue.`;
}

function closeMessage(bucket: string, key: string | undefined, reason: string): string {
  return `${subject(bucket, key)} answers again (${reason}).`;
}

function subject(bucket: string, text: string | undefined): string {
  if (text === undefined) return `The downstream of bucket "${bucket}"`;
  const { key, keys, member } = namedOf(text);
  if (member !== undefined) return `Member ${JSON.stringify(member)} of pool "${bucket}"`;
  return `Key ${JSON.stringify(key ?? keys)} of bucket "${bucket}": its downstream`;
}
