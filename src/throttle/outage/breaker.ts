/**
 * The breaker of one bucket in one process. It opens when jobs fail one after another because their downstream is
 * unreachable. While it is open, no job starts. After `coolMs` one job at a time tries, and the first success closes
 * it.
 *
 *       closed ──▶ `failures` different jobs in a row ──▶ open for `coolMs` ──▶ one job tries ──▶ closed
 *                                                            ▲                     │ unreachable: twice as long
 *                                                            └─────────────────────┘
 *
 * Each key may be a separate endpoint, so a job with a key counts for its key. For the bucket, each key counts once in
 * a row. One unreachable endpoint therefore stops only its own jobs, and several unreachable keys in a row stop all
 * jobs.
 *
 * A job that fails while later jobs succeed is probably broken itself, for example its URL does not exist. It no longer
 * counts in any row, and becomes a dead letter after its attempts.
 */
import * as z from "zod";
import { reasonOf, withoutStop } from "../../core/describe.ts";
import { namedOf } from "../../core/key-path.ts";
import type { Logger } from "../../core/logger.ts";
import { LONGEST_MS, wholeNumber } from "../../core/input/options.ts";
import { createLru } from "../lru.ts";
import { isUnreachable } from "./unreachable.ts";

/** When a bucket stops because its downstream is unreachable. */
export interface BreakerSettings {
  /** Failures in a row that open the breaker. Defaults to 5. */
  readonly failures?: number | undefined;
  /**
   * How long nothing starts after it opens; doubled each time that the downstream is still unreachable. Defaults to
   * 1,000 ms.
   */
  readonly coolMs?: number | undefined;
  /** The longest time that nothing starts. Defaults to 60,000 ms. */
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

/** Permission to start. For a probe, the breaker is open and its result decides whether it closes. */
export interface Pass {
  readonly passes: true;
  readonly isProbe: boolean;
  /** On `performance.now()`. */
  readonly startedAtMs: number;
}

/** The job cannot start yet: its key, or the whole bucket, is open. */
export interface Blocked {
  readonly passes: false;
  readonly scope: "key" | "bucket";
  /** Ms until it may try again. */
  readonly inMs: number;
}

export interface Verdict {
  readonly opened: Omit<Blocked, "passes"> | undefined;
  readonly countsFor: readonly Blocked["scope"][];
}

export interface Breaker {
  /** The reason that a job cannot start now; undefined if it can. */
  blocked(call: BreakerCall): Blocked | undefined;
  /** Whether a job may start now. After a pass, call `failed`, `succeeded` or `release` once. */
  enter(call: BreakerCall): Pass | Blocked;
  /**
   * Notes that a job failed; `unreachable` has the error if its downstream was unreachable. Returns the open scope if
   * the attempt does not count, and undefined if it counts.
   */
  failed(
    call: BreakerCall,
    pass: Pass,
    unreachable: { readonly thrown: unknown } | undefined,
  ): Omit<Blocked, "passes"> | undefined;
  /**
   * What followed from a counted failure of this job since `sinceMs` (on `performance.now()`). `opened`: the breaker
   * opened. Otherwise `countsFor` lists the scopes in whose row the failure still is; it is empty if other jobs
   * succeeded.
   */
  verdict(call: BreakerCall, sinceMs: number): Verdict;
  /** Notes that a job succeeded. */
  succeeded(call: BreakerCall, pass: Pick<Pass, "startedAtMs">): void;
  /** Notes that a job ended in a way that says nothing about the downstream. Another job may then be the probe. */
  release(call: BreakerCall, pass: Pass): void;
  /** Notes the result of a call outside of a job. Such calls count only if the bucket sets `breaker`. */
  noteCall(key: string | undefined, resultOrError: unknown): void;
  /** True if the bucket or the call's key is open. */
  isOpenFor(call: BreakerCall): boolean;
  /**
   * Opens the bucket or one key because another process has. The first job tries after `coolMs`, or at once with
   * `triesAtOnce`.
   */
  adoptOpen(
    key: string | undefined,
    coolMs: number,
    options?: { readonly triesAtOnce?: boolean },
  ): void;
  /** False if the breaker is switched off. */
  readonly isOn: boolean;
  /** While the whole bucket is open, ms until the next job tries, at least 1. Otherwise 0. */
  readonly awayForMs: number;
  /** How many more jobs may start: 0, 1 for a probe, or Infinity. */
  readonly admits: number;
}

/** Whether the downstream of a bucket, or of one key, became unreachable or reachable again. */
export interface DownstreamChange {
  /** True if it responds again; false if it is unreachable. */
  readonly isBack: boolean;
  /** Ms until the next job tries; 0 if it is back. */
  readonly forMs: number;
  /** Why it counts as unreachable: `"TypeError: fetch failed (connect ECONNREFUSED …)"`. Undefined if it is back. */
  readonly reason: string | undefined;
  /** True if another process found out. */
  readonly isRemote: boolean;
}

export interface BreakerParts {
  readonly bucket: string;
  readonly settings: BreakerSettings | false | undefined;
  readonly logger: Logger;
  /** Whether a key has its own limits, so that a cooldown can stop its calls alone. */
  readonly hasOwnLimits: (key: string) => boolean;
  /** Starts a cooldown for all replicas, of the bucket or of one key with its own limits. */
  readonly coolDown: (key: string | undefined, coolMs: number) => void;
  /** Called each time that the bucket or one key opens, stays open for longer, or closes. */
  readonly onChange: (key: string | undefined, change: DownstreamChange) => void;
}

/** The breaker's state for the bucket, or for one key. */
interface Scope {
  readonly key: string | undefined;
  /** The jobs, keys or calls that failed since the last success. */
  readonly failedInRow: Set<string>;
  /** For each of them, the number of successes before it first failed. */
  readonly successesBefore: Map<string, number>;
  successes: number;
  open: Open | undefined;
  /** When it last opened, on `performance.now()`. */
  openedAtMs: number;
  /** When it last closed, on `performance.now()`. */
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
  awayForMs: 0,
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
      // The application's function threw.
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
    // A probe that hangs must not block the other jobs forever.
    const leftMs = open.probe.startedAtMs + maxCoolMs - nowMs;
    return Math.max(0, Math.min(open.coolMs, leftMs));
  }

  function openFor(scope: Scope, coolMs: number, sinceMs: number, nowMs: number): void {
    const lengthMs = Math.min(coolMs, maxCoolMs);
    scope.openedAtMs = nowMs;
    scope.open = { sinceMs, coolMs: lengthMs, untilMs: nowMs + lengthMs, probe: undefined };
  }

  /** Notes a failure in one scope. Returns true if the attempt does not count. */
  function note(scope: Scope, member: string, { isProbe, startedAtMs, thrown }: Failure): boolean {
    const nowMs = performance.now();
    const { open, failedInRow, successesBefore } = scope;
    if (open !== undefined) {
      if (!isProbe) return true;
      openFor(scope, 2 * open.coolMs, open.sinceMs, nowMs);
      notifyOpen(scope, reasonOf(thrown));
      return true;
    }
    // It has been running since before the downstream came back.
    if (startedAtMs < scope.closedAtMs) return true;
    const before = successesBefore.get(member);
    if (before !== undefined && scope.successes > before) return false;
    if (before === undefined) remember(successesBefore, member, scope.successes);
    failedInRow.add(member);
    if (failedInRow.size < failures) return false;
    // The downstream failed, not these jobs.
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
        // The downstream responded, even if with an error.
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
    get awayForMs() {
      if (wholeBucket.open === undefined) return 0;
      return Math.max(1, Math.ceil(blockedMs(wholeBucket, performance.now())));
    },
    get admits() {
      if (wholeBucket.open === undefined) return Infinity;
      return blockedMs(wholeBucket, performance.now()) > 0 ? 0 : 1;
    },
  };
}

/** The name under which a job counts in a scope: for the bucket, all jobs of a key count once. */
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
  const fact = `${subject(bucket, key)} is unreachable after ${failures} failures in a row (${reason}).`;
  return key === undefined
    ? `${fact} Calls wait. One job at a time tries, and its attempts do not count.`
    : `${fact} One of its jobs at a time tries, and its attempts do not count. Other keys continue.`;
}

function closeMessage(bucket: string, key: string | undefined, reason: string): string {
  return `${subject(bucket, key)} answers again (${reason}).`;
}

function subject(bucket: string, text: string | undefined): string {
  if (text === undefined) return `The downstream of bucket "${bucket}"`;
  const { key, keys } = namedOf(text);
  return `Key ${JSON.stringify(key ?? keys)} of bucket "${bucket}": its downstream`;
}
