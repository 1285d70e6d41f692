/**
 * The breaker of a bucket, in one process. Jobs that fail one after another because their downstream is away make it
 * open; then nothing starts for a while, and after that one job at a time tries, until one goes well.
 *
 *     closed ──▶ `failures` different jobs in a row ──▶ open for `coolMs` ──▶ one job tries ──▶ closed
 *                                                          ▲                     │ away: twice as long
 *                                                          └─────────────────────┘
 *
 * A key may be an endpoint of its own. So a job with a key counts for its key, and in the row of the bucket each key
 * counts once: one endpoint that is away stops its own jobs, and several keys in a row stop all.
 *
 * A job that failed while others went well after it is taken to be at fault itself, as one whose URL leads nowhere: it
 * counts in no row, and ends as a dead letter after its attempts.
 */
import * as z from "zod";
import { reasonOf, withoutStop } from "../../core/describe.ts";
import { namedOf } from "../../core/key-path.ts";
import type { Logger } from "../../core/logger.ts";
import { LONGEST_MS, wholeNumber } from "../../core/input/options.ts";
import { createLru } from "../lru.ts";
import { isAway } from "./away.ts";
import { BACK, ELSEWHERE, wordsOfClose, wordsOfOpen, type AwayNews } from "./away-news.ts";

/** When a bucket stops because its downstream is away. */
export interface BreakerSettings {
  /** After how many failures in a row. Defaults to 5. */
  readonly failures?: number | undefined;
  /** For how long at first; twice as long each time that it is still away. Defaults to 1,000 ms. */
  readonly coolMs?: number | undefined;
  /** For how long at most. Defaults to 60,000 ms. */
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

/** The job, or the call, that asks. */
export interface BreakerCall {
  readonly id: string;
  readonly key: string | undefined;
}

/** A job may start; it is a probe if the breaker is open and waits for what comes of it. */
export interface Pass {
  readonly passes: true;
  readonly isProbe: boolean;
  /** On `performance.now()`. */
  readonly startedAtMs: number;
}

/** A job may not start yet: its key, or the whole bucket, is open. */
export interface Blocked {
  readonly passes: false;
  readonly scope: "key" | "bucket";
  /** In how many ms it may ask again. */
  readonly inMs: number;
}

export interface Verdict {
  readonly opened: Omit<Blocked, "passes"> | undefined;
  readonly countsFor: readonly Blocked["scope"][];
}

export interface Breaker {
  /** What keeps a job from starting now, if anything does. */
  blocked(call: BreakerCall): Blocked | undefined;
  /** Whether a job may start now. What passes has to be ended by one of the three below. */
  enter(call: BreakerCall): Pass | Blocked;
  /**
   * Notes that a job failed, and whether by an error that says its downstream is away. If its attempt is not to count,
   * what keeps it from starting again.
   */
  failed(
    call: BreakerCall,
    pass: Pass,
    away: { readonly thrown: unknown } | undefined,
  ): Omit<Blocked, "passes"> | undefined;
  /**
   * What has become, since `sinceMs` (on `performance.now()`), of a failure by which a job's downstream is away and which
   * counted: it has opened; or it counts still towards that, in which scopes; or neither: others went well.
   */
  verdict(call: BreakerCall, sinceMs: number): Verdict;
  /** Notes that a job went well. */
  succeeded(call: BreakerCall, pass: Pick<Pass, "startedAtMs">): void;
  /** Notes that a job has ended otherwise: it says nothing of the downstream. */
  left(call: BreakerCall, pass: Pass): void;
  /** Notes what a call that is no job's came to, if calls count too. */
  noteCall(key: string | undefined, resultOrError: unknown): void;
  /** Whether the bucket is open, or the call's key. */
  isOpenFor(call: BreakerCall): boolean;
  /** Opens the bucket, or one key, as another process has; the first job tries after `coolMs`, or at once. */
  openAlike(
    key: string | undefined,
    coolMs: number,
    options?: { readonly triesAtOnce?: boolean },
  ): void;
  /** Whether it opens at all. */
  readonly isOn: boolean;
  /** In how many ms the next job tries, at least 1, while the whole bucket is open; else 0. */
  readonly awayForMs: number;
  /** How many jobs may start that are not here yet: none, one that tries, or any number. */
  readonly admits: number;
}

export interface BreakerParts {
  readonly bucket: string;
  readonly settings: BreakerSettings | false | undefined;
  readonly logger: Logger;
  /** Whether a key has limits of its own, so that its calls can be slowed down alone. */
  readonly hasOwnLimits: (key: string) => boolean;
  /** Slows the bucket, or one key that has limits of its own, down for all replicas. */
  readonly coolDown: (key: string | undefined, coolMs: number) => void;
  /** Told each time that the bucket, or one key, opens anew, and when it may start again. */
  readonly onAway: (key: string | undefined, news: AwayNews) => void;
}

/** A bucket, or one key of it. */
interface Scope {
  readonly key: string | undefined;
  /** Those that failed since something went well, each once. */
  readonly row: Set<string>;
  /** How often something had gone well when each of them first failed. */
  readonly marks: Map<string, number>;
  successes: number;
  open: Open | undefined;
  /** When it was opened last, on `performance.now()`. */
  openedAtMs: number;
  /** When it was closed last, on `performance.now()`. */
  closedAtMs: number;
}

interface Failure {
  readonly thrown: unknown;
  readonly startedAtMs: number;
  /** Whether the scope has waited for what comes of it. */
  readonly isProbe: boolean;
}

interface Open {
  readonly sinceMs: number;
  coolMs: number;
  untilMs: number;
  /** The last one that tries, until it has ended. */
  probe: Pass | undefined;
}

const MOST_KEYS = 10_000;
const MOST_MARKS = 1_000;
const OFF: Breaker = {
  blocked: () => undefined,
  enter: () => ({ passes: true, isProbe: false, startedAtMs: 0 }),
  failed: () => undefined,
  verdict: () => ({ opened: undefined, countsFor: [] }),
  succeeded: () => {},
  left: () => {},
  noteCall: () => {},
  isOpenFor: () => false,
  openAlike: () => {},
  isOn: false,
  awayForMs: 0,
  admits: Infinity,
};

export function createBreaker(parts: BreakerParts): Breaker {
  const { bucket, settings, logger, hasOwnLimits, coolDown, onAway } = parts;
  if (settings === false) return OFF;
  const { failures = 5, coolMs: firstMs = 1_000, maxCoolMs = 60_000 } = settings ?? {};
  const whole = createScope(undefined);
  const isLimited = (key: string): boolean => {
    try {
      return hasOwnLimits(key);
    } catch {
      // The application's own function fails.
      return false;
    }
  };
  let calls = 0;
  const keys = createLru<Scope>(MOST_KEYS);

  function* scopesOf({ key }: BreakerCall): Generator<Scope> {
    yield whole;
    const scope = key === undefined ? undefined : keys.get(key);
    if (scope !== undefined) yield scope;
  }

  function blockedMs({ open }: Scope, nowMs: number): number {
    if (open === undefined) return 0;
    if (nowMs < open.untilMs) return open.untilMs - nowMs;
    if (open.probe === undefined) return 0;
    // One that hangs does not hold up the others without end.
    const leftMs = open.probe.startedAtMs + maxCoolMs - nowMs;
    return Math.max(0, Math.min(open.coolMs, leftMs));
  }

  function openFor(scope: Scope, coolMs: number, sinceMs: number, nowMs: number): void {
    const lengthMs = Math.min(coolMs, maxCoolMs);
    scope.openedAtMs = nowMs;
    scope.open = { sinceMs, coolMs: lengthMs, untilMs: nowMs + lengthMs, probe: undefined };
  }

  /** Notes a failure in one scope; whether its attempt is not to count. */
  function note(scope: Scope, member: string, { isProbe, startedAtMs, thrown }: Failure): boolean {
    const nowMs = performance.now();
    const { open, row, marks } = scope;
    if (open !== undefined) {
      if (!isProbe) return true;
      openFor(scope, 2 * open.coolMs, open.sinceMs, nowMs);
      tellAway(scope, reasonOf(thrown));
      return true;
    }
    // It hung since before the downstream came back.
    if (startedAtMs < scope.closedAtMs) return true;
    const mark = marks.get(member);
    if (mark !== undefined && scope.successes > mark) return false;
    if (mark === undefined) remember(marks, member, scope.successes);
    row.add(member);
    if (row.size < failures) return false;
    // It is not their own fault.
    for (const each of row) marks.delete(each);
    row.clear();
    openFor(scope, firstMs, nowMs, nowMs);
    cool(scope);
    const reason = withoutStop(reasonOf(thrown));
    tellAway(scope, reason);
    logOpen(scope, reason);
    return true;
  }

  function cool({ key, open }: Scope): void {
    if (key === undefined || isLimited(key)) coolDown(key, open!.coolMs);
  }

  function tellAway({ key, open }: Scope, reason: string, isHeard = false): void {
    onAway(key, { isBack: false, forMs: open!.coolMs, reason, isHeard });
  }

  function logOpen({ key }: Scope, reason: string): void {
    logger.warn(
      { bucket, ...namedOf(key), reason },
      wordsOfOpen(bucket, key, { failures, reason }),
    );
  }

  function close(scope: Scope): void {
    const { key, open } = scope;
    scope.open = undefined;
    scope.closedAtMs = performance.now();
    onAway(key, BACK);
    const forS = Math.ceil((performance.now() - open!.sinceMs) / 1_000);
    const reason = `after ${forS} s`;
    logger.warn({ bucket, ...namedOf(key), reason }, wordsOfClose(bucket, key, reason));
  }

  function scopeOfKey(key: string): Scope {
    const found = keys.get(key) ?? createScope(key);
    keys.set(key, found);
    return found;
  }

  function left(call: BreakerCall, pass: Pass): void {
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
      if (inMs > 0) return { passes: false, scope: scope === whole ? "bucket" : "key", inMs };
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
    failed(call, pass, away) {
      const { id, key } = call;
      if (away === undefined) {
        // Whatever answered, the downstream is there.
        if (pass.isProbe) for (const scope of scopesOf(call)) if (scope.open) close(scope);
        return undefined;
      }
      const { thrown } = away;
      const { startedAtMs } = pass;
      const failedIn = (scope: Scope, member: string): boolean =>
        note(scope, member, { thrown, startedAtMs, isProbe: scope.open?.probe === pass });
      let blocker: Scope | undefined;
      if (key !== undefined && failedIn(scopeOfKey(key), id)) blocker = scopeOfKey(key);
      if (failedIn(whole, memberOf(whole, call))) blocker = whole;
      if (blocker === undefined) return undefined;
      const inMs = Math.max(1, blockedMs(blocker, performance.now()));
      return { scope: blocker === whole ? "bucket" : "key", inMs };
    },
    verdict(call, sinceMs) {
      const nowMs = performance.now();
      const countsFor: Blocked["scope"][] = [];
      for (const each of scopesOf(call)) {
        const scope = each === whole ? "bucket" : "key";
        if (each.open !== undefined || each.openedAtMs >= sinceMs) {
          return { opened: { scope, inMs: Math.max(1, blockedMs(each, nowMs)) }, countsFor: [] };
        }
        if (each.row.has(memberOf(each, call))) countsFor.push(scope);
      }
      return { opened: undefined, countsFor };
    },
    succeeded(call, { startedAtMs }) {
      for (const scope of scopesOf(call)) {
        scope.successes += 1;
        if (scope.row.size > 0) scope.row.clear();
        // One that began before says nothing of what came since.
        if (scope.open !== undefined && startedAtMs >= scope.open.sinceMs) close(scope);
      }
      if (call.key !== undefined && whole.marks.size > 0) whole.marks.delete(`key ${call.key}`);
    },
    left,
    noteCall(key, resultOrError) {
      if (settings === undefined) return;
      const nowMs = performance.now();
      const scope = key !== undefined && isLimited(key) ? scopeOfKey(key) : whole;
      const { open } = scope;
      if (isAway(resultOrError)) {
        const isProbe = open !== undefined && nowMs >= open.untilMs;
        calls += 1;
        note(scope, `call ${calls}`, { thrown: resultOrError, startedAtMs: nowMs, isProbe });
        if (isProbe) cool(scope);
      } else {
        scope.successes += 1;
        scope.row.clear();
        if (open !== undefined) close(scope);
      }
    },
    isOpenFor,
    openAlike(key, coolMs, { triesAtOnce = false } = {}) {
      const scope = key === undefined ? whole : scopeOfKey(key);
      const nowMs = performance.now();
      if (scope.open !== undefined) return;
      openFor(scope, coolMs, nowMs, nowMs);
      if (triesAtOnce) scope.open!.untilMs = nowMs;
      else tellAway(scope, ELSEWHERE, true);
    },
    isOn: true,
    get awayForMs() {
      if (whole.open === undefined) return 0;
      return Math.max(1, Math.ceil(blockedMs(whole, performance.now())));
    },
    get admits() {
      if (whole.open === undefined) return Infinity;
      return blockedMs(whole, performance.now()) > 0 ? 0 : 1;
    },
  };
}

/** As what a job stands in the row of a scope. */
function memberOf(scope: Scope, { id, key }: BreakerCall): string {
  if (scope.key !== undefined) return id;
  return key === undefined ? `job ${id}` : `key ${key}`;
}

function createScope(key: string | undefined): Scope {
  return {
    key,
    row: new Set(),
    marks: new Map(),
    successes: 0,
    open: undefined,
    openedAtMs: -Infinity,
    closedAtMs: -Infinity,
  };
}

function remember(marks: Map<string, number>, member: string, successes: number): void {
  marks.set(member, successes);
  if (marks.size > MOST_MARKS) marks.delete(marks.keys().next().value!);
}
