import * as z from "zod";
import { withForever } from "../../../core/describe.ts";
import { InvalidOptionError } from "../../../core/errors.ts";
import { readOptions, PRIORITIES, type Priority } from "../../../core/input/options.ts";
import { formatLimit, hasPace } from "../../../core/limits/registry.ts";
import type { PolicySource } from "../../../core/store.ts";
import type { Policy } from "../../../core/policy/policy.ts";
import {
  HISTORY_KEPT_MS,
  HISTORY_STEP_MS,
  overrideOf,
  REPLICA_ALIVE_MS,
  type BucketFacts,
  type BucketActivity,
  type InsightStore,
  type Point as StoredPoint,
} from "../../../core/stores/insight/store.ts";
import type { BriefState, BucketState, InForce, MemberState } from "../bucket-state.ts";
import type { BudgetState } from "../budgets.ts";

/** The author, reason and end of an active override or pause. */
export interface SetBy {
  readonly by: string;
  readonly reason: string | undefined;
  /** When the change was made, in ms since 1970, by the clock of Redis. */
  readonly atMs: number;
  /** Ms until the override or pause ends by itself. Infinity if it has no end, written as `"forever"` in JSON. */
  readonly endsInMs: number;
}

/** The waiting callers of all replicas. */
export interface Waiting {
  readonly total: number;
  readonly byPriority: Readonly<Record<Priority, number>>;
  /** How long the longest-waiting caller has waited so far, in ms. `0` if no caller waits. */
  readonly oldestMs: number;
}

/** A replica's latest report about a bucket. */
export interface ReplicaOfBucket {
  /** The unique name of the process, the same as in `sluice.overview()`. */
  readonly replica: string;
  /** The age of the report, in ms. */
  readonly reportedAgoMs: number;
  /** @deprecated Use `reportedAgoMs`. */
  readonly toldAgoMs: number;
  readonly waiting: number;
  /** The average calls per second that the replica started in the last ten seconds: `12.3`. */
  readonly perSecond: number;
}

/** An operator's view of a bucket: its cap and actual rate, the limit that delays callers, and who set the policy. */
export interface BucketStatus extends BucketState, OfAllReplicas {
  /** The balances of the budgets that all keys share. Undefined in an overview, and without such budgets. */
  readonly budgets?: readonly BudgetState[] | undefined;
  /** The members of a pool. Undefined in an overview, and for other buckets. */
  readonly members?: readonly MemberState[] | undefined;
}

/** A {@link BucketStatus} without the state of each limit. */
export interface BucketBrief extends BriefState, OfAllReplicas {}

interface OfAllReplicas {
  readonly name: string;
  /** The most calls of cost 1 per second under the shared rates: `100`. Undefined without a shared rate. */
  readonly capPerSecond: number | undefined;
  /** The average calls per second that all replicas started in the last ten seconds: `98.4`. */
  readonly actualPerSecond: number;
  /**
   * The number of responses that caused a cooldown or a rate cut, over all replicas: `12`. This counter never
   * decreases.
   */
  readonly refusals: number;
  /** The source of the active policy. */
  readonly source: PolicySource;
  /** The version of the rules. Undefined if the rules do not name the bucket. */
  readonly rulesVersion: number | undefined;
  /** The author and end of the override. Undefined without an override, or if its author is unknown. */
  readonly setBy: SetBy | undefined;
  /** The author and end of the pause. Undefined if the bucket is not paused, or if the author is unknown. */
  readonly pausedBy: SetBy | undefined;
  /**
   * The limit or pause that delays most of the waiting callers: `"100/s"`, `"a pause"`. Undefined if no caller waits.
   */
  readonly limitedBy: string | undefined;
  readonly waiting: Waiting;
  /** The latest report of each replica that uses the bucket. */
  readonly reports: readonly ReplicaOfBucket[];
  /** @deprecated Use `reports`. */
  readonly toldBy: readonly ReplicaOfBucket[];
  /** True if any process used the bucket in the last 30 days. False for a bucket that only a rules file names. */
  readonly hasCalls: boolean;
  /** True if the bucket has a budget that all keys share. */
  readonly hasBudgets: boolean;
  /** True if the bucket is a pool. */
  readonly isPool: boolean;
  /** True if the bucket has a shared concurrency limit that adapts to latency. */
  readonly isAdaptive: boolean;
}

export interface HistoryOptions {
  /** The start of the range, in ms since 1970. Defaults to 24 hours ago, because older steps are not stored. */
  readonly sinceMs?: number | undefined;
  /** The end of the range, in ms since 1970. Defaults to now. */
  readonly untilMs?: number | undefined;
}

/** One step of the history of a bucket. */
export interface Point extends Omit<StoredPoint, "waiting"> {
  /**
   * The average number of waiting callers over all processes, by priority: `{ normal: 12.5 }`. Priorities without
   * callers are omitted.
   */
  readonly waiting: Readonly<Partial<Record<Priority, number>>>;
}

/**
 * The history of a bucket in steps of ten seconds: started calls, refusals by the downstream and waiting callers. Empty
 * steps are omitted.
 */
export interface History {
  /** The length of a step, in ms: `10000`. */
  readonly stepMs: number;
  /** The steps, the oldest first. `atMs` is the start of a step. */
  readonly points: readonly Point[];
}

/** Reports older than this are ignored. Replicas with waiting callers report at least every ten seconds. */
const FRESH_MS = 15_000;

export async function readStatus(
  name: string,
  insight: InsightStore,
  inForce: Promise<Pick<InForce, "policy" | "state">>,
  read: {
    readonly budgets: () => Promise<readonly BudgetState[]>;
    readonly members: () => Promise<readonly MemberState[]>;
  },
): Promise<BucketStatus> {
  const [{ policy, state }, facts] = await Promise.all([inForce, insight.bucket(name)]);
  const status = describeStatus(name, policy, state, facts);
  return {
    ...status,
    ...(status.hasBudgets && { budgets: await read.budgets() }),
    ...(status.isPool && { members: await read.members() }),
  };
}

export function describeStatus<State extends BriefState>(
  name: string,
  { limits, text, pool }: Pick<Policy, "limits" | "text" | "pool">,
  state: State,
  facts: BucketFacts,
): State & OfAllReplicas {
  const { nowMs, reports, pause } = facts;
  const alive = reports.filter(({ atMs }) => nowMs - atMs < REPLICA_ALIVE_MS);
  const fresh = alive.filter(({ atMs }) => nowMs - atMs < FRESH_MS);
  const isOverride = state.policyFrom === "configured";
  const override = isOverride ? overrideOf(facts, text) : undefined;
  const waiting = waitingOf(fresh);
  const actualPerSecond = sum(fresh.map((each) => recentOf(each, nowMs))) / 10;
  const isHeldBack = state.pausedForMs > 0 || state.coolingForMs > 0 || state.unreachableForMs > 0;
  const latest = alive.map((each) => {
    const reportedAgoMs = Math.max(0, nowMs - each.atMs);
    return {
      replica: each.replica,
      reportedAgoMs,
      toldAgoMs: reportedAgoMs,
      waiting: sum(each.waiting),
      perSecond: recentOf(each, nowMs) / 10,
    };
  });
  return withForever({
    ...state,
    name,
    capPerSecond: capOf({ limits, pool }),
    actualPerSecond,
    refusals: facts.refusals,
    source: isOverride ? ("override" as const) : (state.policyFrom as "code" | "rules"),
    rulesVersion: facts.rules?.version,
    setBy: override && setBy(override, override.untilMs, nowMs),
    pausedBy:
      pause !== undefined && state.pausedForMs > 0
        ? setBy(pause, pause.forMs === undefined ? undefined : pause.atMs + pause.forMs, nowMs)
        : undefined,
    limitedBy:
      mostWaiting(fresh)?.limitedBy ??
      (waiting.total > 0 && !isHeldBack ? rateInUse(limits, actualPerSecond) : undefined),
    waiting,
    hasCalls: facts.hasCalls,
    hasBudgets: limits.some(({ budget }) => budget !== undefined),
    isPool: pool !== undefined,
    isAdaptive: limits.some(({ adaptive }) => adaptive !== undefined),
    reports: latest,
    toldBy: latest,
  });
}

/** Returns a status as an overview in brief contains it. */
export function briefOf(status: BucketStatus): BucketBrief {
  const { limits: _limits, turns: _turns, budgets: _budgets, members: _members, ...brief } = status;
  return withForever(brief);
}

/** The longest time between two reports of a replica that starts calls. */
const REPORTS_MS = 2_000;
const RATE_MS = 10_000;

/**
 * Estimates the number of calls that a replica started in the last ten seconds. The older the replica's report, the
 * lower the estimate.
 */
function recentOf({ startedIn10s, atMs }: BucketFacts["reports"][number], nowMs: number): number {
  const agoMs = nowMs - atMs;
  if (agoMs <= REPORTS_MS) return startedIn10s;
  return Math.max(0, Math.round(startedIn10s * (1 - agoMs / RATE_MS)));
}

/**
 * Returns the most calls of cost 1 per second under the shared rates and those of all members of a pool together.
 * Undefined without such a rate.
 */
export function capOf({ limits, pool }: Pick<Policy, "limits" | "pool">): number | undefined {
  const rates = ratesOf(limits).map(({ perSecond }) => perSecond);
  const ofMembers = pool?.members
    .filter(({ isDrained }) => !isDrained)
    .map((member) => Math.min(...ratesOf(member.limits).map(({ perSecond }) => perSecond)));
  const all = ofMembers === undefined ? rates : [...rates, sum(ofMembers)];
  const least = Math.min(...all);
  return least === Infinity ? undefined : least;
}

function ratesOf(limits: Policy["limits"]) {
  const shared = limits.filter(({ kind, unit }) => unit === "calls" && hasPace(kind));
  return shared.map((limit) => ({ limit, perSecond: (limit.count * 1_000_000) / limit.periodUs }));
}

/** Returns the number of waiting callers over all replicas, from their latest reports. */
export async function countWaiting(name: string, insight: InsightStore): Promise<number> {
  const { nowMs, reports } = await insight.bucket(name);
  return waitingOf(reports.filter(({ atMs }) => nowMs - atMs < FRESH_MS)).total;
}

function setBy(
  { by, reason, atMs }: Pick<SetBy, "by" | "reason" | "atMs">,
  untilMs: number | undefined,
  nowMs: number,
): SetBy {
  const endsInMs = untilMs === undefined ? Infinity : Math.max(0, untilMs - nowMs);
  return withForever({ by, reason, atMs, endsInMs });
}

function waitingOf(reports: readonly BucketActivity[]): Waiting {
  const byRank = PRIORITIES.map((_, rank) => sum(reports.map(({ waiting }) => waiting[rank] ?? 0)));
  const byPriority = Object.fromEntries(PRIORITIES.map((name, rank) => [name, byRank[rank]!]));
  const oldestMs = Math.max(0, ...reports.map((each) => each.oldestMs));
  return { total: sum(byRank), byPriority: byPriority as Waiting["byPriority"], oldestMs };
}

/** Returns the report with the most waiting callers. Ignores reports that do not name a limit. */
function mostWaiting(reports: readonly BucketActivity[]): BucketActivity | undefined {
  return reports
    .filter(({ limitedBy, waiting }) => limitedBy !== undefined && sum(waiting) > 0)
    .toSorted((a, b) => sum(b.waiting) - sum(a.waiting))[0];
}

/**
 * A shared rate counts as the cause of waits if at least this fraction of the rate is used. Reports name no limit for
 * callers that already hold a slot in the near future.
 */
const USED_SHARE = 0.9;

/**
 * Returns the lowest shared rate if it is used up. Callers that hold slots in the near future, such as jobs, wait
 * because of this rate.
 */
function rateInUse(limits: Policy["limits"], actualPerSecond: number): string | undefined {
  const [lowest] = ratesOf(limits).toSorted((a, b) => a.perSecond - b.perSecond);
  if (lowest === undefined || actualPerSecond < USED_SHARE * lowest.perSecond) return undefined;
  return formatLimit(lowest.limit);
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0);
}

const A_TIME = { error: "give ms since 1970, as Date.now() does" };
const TIME = z.number(A_TIME).int(A_TIME).min(0, A_TIME);
const HISTORY = z.strictObject({ sinceMs: TIME.optional(), untilMs: TIME.optional() });

export async function readHistory(
  name: string,
  insight: InsightStore,
  given: HistoryOptions = {},
): Promise<History> {
  const { sinceMs, untilMs } = readOptions("history()", HISTORY, given);
  const { nowMs } = await insight.bucket(name);
  const until = Math.min(untilMs ?? nowMs, nowMs);
  const from = Math.max(sinceMs ?? 0, until - HISTORY_KEPT_MS);
  if (sinceMs !== undefined && sinceMs > until) {
    const remedy = "give a time before untilMs, and not after now";
    throw new InvalidOptionError({ where: "history()", option: "sinceMs", value: sinceMs, remedy });
  }
  const points = await insight.history(name, { fromMs: from, untilMs: until });
  return { stepMs: HISTORY_STEP_MS, points: points.map(describePoint) };
}

function describePoint({ waiting, ...counts }: StoredPoint): Point {
  const known = PRIORITIES.map((name, rank) => [name, waiting[rank] ?? 0] as const);
  return { ...counts, waiting: Object.fromEntries(known.filter(([, callers]) => callers > 0)) };
}
