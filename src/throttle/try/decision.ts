import { unitsIn } from "../../core/limits/budget.ts";
import { formatLimit, ruleOf } from "../../core/limits/registry.ts";
import type { Limit, LimitStatus } from "../../core/limits/rule.ts";
import type { LimitOwner } from "../../core/policy/per-key.ts";
import { LONGEST_MS } from "../../core/input/options.ts";
import { boundBy, causeOf, COOLING, PAUSED, SLOWED, type Granted } from "../../core/store.ts";
import type { CallTerms } from "../costs.ts";
import type { Slot } from "../slot/slot.ts";
import type { Group, MemberGroup } from "../waiting/group.ts";

/**
 * The decision of one limit about a call. The example values belong to a limit of 100 calls a minute of which 97 are
 * used.
 */
export interface LimitDecision {
  /**
   * The limit as text: `"100/min"`. If keys have several levels or names, the text includes the level or name:
   * `"2/s (level 1)"`.
   */
  readonly name: string;
  /** The unit that the limit counts: `"calls"`, or another unit of the policy such as `"tokens"`. */
  readonly unit: string;
  /** `"bucket"` for a limit of the whole bucket, `"key"` for a per-key limit. For named keys, the name of the key. */
  readonly scope: string;
  /**
   * The level of the key path that the limit belongs to: `0` is the first name. Undefined for limits of the bucket and
   * of named keys.
   */
  readonly level: number | undefined;
  /** The most units that can pass at once if none are used: `100`. */
  readonly capacity: number;
  /**
   * The time in which a used-up limit regains its full `capacity`, in ms: `60000`. It may be a fraction: `0.5` for a
   * limit of 2,000 a second with a capacity of 1. Undefined for a concurrency limit.
   */
  readonly windowMs: number | undefined;
  /** The whole units that can still pass now: `3`. If this call was allowed, its cost is already subtracted. */
  readonly remaining: number;
  /** Ms until the full `capacity` is available again, if no other call draws: `58200`. */
  readonly resetAfterMs: number;
  /** Ms until this limit would allow the same call. `0` if it allows the call now, `600` for a call of cost 4. */
  readonly retryAfterMs: number;
  /** The HTTP status with which a server refuses calls that do not fit: `402`. Only budgets have one. */
  readonly refusalStatus?: 402 | 429 | undefined;
}

/** The decision about a call that does not wait. The example values continue those of {@link LimitDecision}. */
export interface Decision {
  /** True if the call may start now. Its cost is then already drawn. `false` for a call of cost 4. */
  readonly allowed: boolean;
  /**
   * The whole units that can still pass now, under the limit with the fewest left: `3`. Infinity if no limit applies,
   * for example if all limits are shadow limits.
   */
  readonly remaining: number;
  /** Ms until all limits have their full capacity again: `58200`. This is the longest `resetAfterMs` of all limits. */
  readonly resetAfterMs: number;
  /**
   * Ms until the same call is likely to be allowed: `600`, the longest time of all limits. `0` if the call is allowed
   * now.
   */
  readonly retryAfterMs: number;
  /**
   * The cause of the refusal: the name of a limit such as `"100/min"`, or a cause such as `"a pause"` or
   * `"a cooldown"`. If keys have several levels or names, the text includes the level or name: `"a pause (level 0)"`.
   * Undefined if the call is allowed.
   */
  readonly limitedBy: string | undefined;
  /** The decision of each limit of the bucket and of the key, in the order of the policy. */
  readonly limits: readonly LimitDecision[];
}

/** The reply to a draw for several calls of one group. */
export interface Outcome {
  readonly group: Group | MemberGroup;
  readonly granted: Granted;
  readonly nowUs: number;
}

/**
 * The template of all decisions. Decisions are copies of this object instead of literals. The comment of `PendingTry`
 * in try-draw.ts explains why.
 */
const ALLOWED = {
  allowed: true as const,
  remaining: 0,
  resetAfterMs: 0,
  retryAfterMs: 0,
  limitedBy: undefined,
  limits: [],
  slot: undefined,
};

/** The reported retry time if the real time is unknown, for example while a call would wait for a lease. */
export const UNKNOWN_MS = 1_000;

/**
 * Returns the outcome of a pool as that of the member that the first call uses, or could use first. The limits of other
 * members do not hold for the call.
 */
export function outcomeAtMember(outcome: Outcome & { readonly group: Group }): Outcome {
  const { group, granted, nowUs } = outcome;
  if (group.pool === undefined) return outcome;
  const { statuses, bindsAt } = granted;
  const { shared, scopeLimits, memberLimits } = group.callTerms;
  const own = shared.length + scopeLimits.flat().length;
  let after = own;
  const members = memberLimits.map(({ length }, index) => {
    const first = after;
    after += length;
    const ofMember = statuses.slice(first, after);
    const isBinding = bindsAt > first && bindsAt <= after;
    const isCause = bindsAt < 0 && causeOf(bindsAt).scopeNumber === scopeLimits.length + index + 1;
    const freeUs = Math.max(0, ...ofMember.map(({ nextUs }) => nextUs));
    return { first, statuses: ofMember, isBinding, isCause, freeUs };
  });
  const [drawnFrom] = granted.members ?? [];
  const binding = members.findIndex(({ isBinding, isCause }) => isBinding || isCause);
  const free = members.reduce((best, { freeUs }, index) => {
    return freeUs < members[best]!.freeUs ? index : best;
  }, 0);
  const index = drawnFrom === undefined ? (binding === -1 ? free : binding) : drawnFrom - 1;
  const { first, isBinding, isCause, statuses: ofMember } = members[index]!;
  const asCause = isCause ? boundBy(causeOf(bindsAt).cause, scopeLimits.length + 1) : bindsAt;
  const at = isBinding ? bindsAt - first + own : asCause;
  const all = [...statuses.slice(0, own), ...ofMember];
  return {
    group: group.of({ member: index + 1 }),
    granted: { ...granted, statuses: all, bindsAt: at },
    nowUs,
  };
}

/** Returns the decisions of all limits, with the cost of all calls of the reply subtracted. */
export function limitDecisionsOf({ group, granted, nowUs }: Outcome): readonly LimitDecision[] {
  const { limits, whose } = group.callTerms;
  return limits.map((limit, index) =>
    describe(limit, factsOf(limit, whose[index]!), { ...granted.statuses[index]!, nowUs }),
  );
}

/**
 * Returns the decision for an allowed call. `after` is the number of allowed calls in the same reply that come after
 * this call.
 */
export function allowed(
  decisions: readonly LimitDecision[],
  { costs, limits: terms }: CallTerms,
  { after, slot }: { readonly after: number; readonly slot: Slot },
): TryDecision {
  // Each caller gets its own list, because a caller may modify the list.
  const limits = after === 0 ? [...decisions] : beforeOthers(decisions, { costs, terms, after });
  let remaining = Infinity;
  let resetAfterMs = 0;
  for (const limit of limits) {
    remaining = Math.min(remaining, limit.remaining);
    resetAfterMs = Math.max(resetAfterMs, limit.resetAfterMs);
  }
  return { ...ALLOWED, remaining, resetAfterMs, limits, slot };
}

function beforeOthers(
  decisions: readonly LimitDecision[],
  others: { readonly costs: readonly number[]; readonly terms: readonly Limit[]; after: number },
): LimitDecision[] {
  const { costs, terms, after } = others;
  return decisions.map((limit, index) => {
    const own = limit.remaining + unitsIn(terms[index]!, after * costs[index]!);
    const remaining = terms[index]!.budget === undefined ? Math.min(limit.capacity, own) : own;
    return { ...limit, remaining };
  });
}

/** Returns the decision for a refused call. */
export function refused(
  decisions: readonly LimitDecision[],
  { group, granted: { bindsAt, notBeforeUs }, nowUs }: Outcome,
): TryDecision {
  const waitMs = Math.ceil(Math.max(0, notBeforeUs - nowUs) / 1_000);
  const untilMs = notBeforeUs === Infinity ? UNKNOWN_MS : waitMs;
  const longestMs = Math.max(1, untilMs, ...decisions.map((limit) => limit.retryAfterMs));
  const retryAfterMs = Math.min(LONGEST_MS, longestMs);
  const isClosed = bindsAt < 0 || group.callTerms.whyClosed() !== undefined;
  const limits = isClosed ? closedUntil(decisions, retryAfterMs) : decisions;
  return {
    allowed: false,
    remaining: limits.length === 0 ? 0 : Math.min(...limits.map((limit) => limit.remaining)),
    resetAfterMs: Math.max(0, ...limits.map((limit) => limit.resetAfterMs)),
    retryAfterMs,
    limitedBy: nameBinding(bindsAt, group.callTerms) ?? "the line",
    limits,
    slot: undefined,
  };
}

/**
 * Returns the decisions during a pause, a cooldown, a slowed rate, or a drain of all members. Nothing can pass then, whatever the limits have
 * left.
 */
function closedUntil(decisions: readonly LimitDecision[], retryAfterMs: number): LimitDecision[] {
  return decisions.map((limit) => ({
    ...limit,
    remaining: 0,
    resetAfterMs: Math.max(limit.resetAfterMs, retryAfterMs),
    retryAfterMs,
  }));
}

/**
 * Returns the same refusal as it is `passedMs` later. Each copy has all fields from the start, because V8 needs 25
 * times as long for objects that grow.
 */
export function later(decision: TryDecision, passedMs: number): TryDecision {
  const limits: LimitDecision[] = [];
  for (const limit of decision.limits) {
    const resetAfterMs = Math.max(0, limit.resetAfterMs - passedMs);
    const retryAfterMs = Math.max(0, limit.retryAfterMs - passedMs);
    limits.push({ ...limit, resetAfterMs, retryAfterMs });
  }
  const resetAfterMs = Math.max(0, decision.resetAfterMs - passedMs);
  const retryAfterMs = Math.max(0, decision.retryAfterMs - passedMs);
  return { ...decision, resetAfterMs, retryAfterMs, limits };
}

function describe(
  limit: Limit,
  facts: LimitDecision,
  { remaining, resetUs, nextUs, nowUs }: LimitStatus & { readonly nowUs: number },
): LimitDecision {
  return {
    ...facts,
    // A budget may have more left than its amount, because more was carried over or granted.
    remaining:
      limit.budget === undefined ? Math.min(facts.capacity, remaining) : unitsIn(limit, remaining),
    resetAfterMs: untilMs(resetUs, nowUs),
    retryAfterMs: untilMs(nextUs, nowUs),
  };
}

function untilMs(us: number, nowUs: number): number {
  return us === Infinity ? UNKNOWN_MS : Math.max(0, Math.ceil((us - nowUs) / 1_000));
}

/**
 * Caches the fields that all decisions of a limit have in common, because formatting the name takes longer than filling
 * in all other fields.
 */
const known = new WeakMap<Limit, WeakMap<LimitOwner, LimitDecision>>();

function factsOf(limit: Limit, whose: LimitOwner): LimitDecision {
  const ofLimit = known.get(limit) ?? new WeakMap<LimitOwner, LimitDecision>();
  const found = ofLimit.get(whose);
  if (found !== undefined) return found;
  const { unit, count, periodUs, kind, budget } = limit;
  const { isRate } = ruleOf(kind);
  const capacity = budget === undefined ? limit.capacity : unitsIn(limit, count);
  const perUs = budget === undefined ? (capacity * periodUs) / count : periodUs;
  const windowMs = isRate ? perUs / 1_000 : undefined;
  const facts: LimitDecision = {
    name: formatLimit(limit) + whose.suffix,
    unit,
    scope: whose.scope,
    level: whose.level,
    capacity,
    windowMs,
    remaining: 0,
    resetAfterMs: 0,
    retryAfterMs: 0,
    refusalStatus: budget?.httpStatus,
  };
  ofLimit.set(whose, facts);
  known.set(limit, ofLimit);
  return facts;
}

const NAMES: ReadonlyMap<number, string> = new Map([
  [COOLING, "a cooldown"],
  [PAUSED, "a pause"],
  [SLOWED, "a rate that answers have slowed"],
]);

type NamedTerms = Pick<
  CallTerms,
  "limits" | "whose" | "shared" | "scopeLimits" | "memberLimits" | "whyClosed"
>;

/**
 * Returns the name of the limit or other cause that delays a call, for decisions and errors: `"100/s"`. Undefined if
 * only the line delays the call.
 */
export function nameBinding(
  bindsAt: number,
  { limits, whose, shared, scopeLimits, memberLimits, whyClosed }: NamedTerms,
): string | undefined {
  const closed = whyClosed();
  if (closed !== undefined) return closed;
  if (bindsAt === 0) return undefined;
  if (bindsAt > 0) return factsOf(limits[bindsAt - 1]!, whose[bindsAt - 1]!).name;
  const { cause, scopeNumber } = causeOf(bindsAt);
  const name = NAMES.get(cause)!;
  if (scopeNumber === 0) return name;
  const before = [...scopeLimits, ...memberLimits].slice(0, scopeNumber - 1).flat().length;
  return name + whose[shared.length + before]!.suffix;
}

/** The decision of `tryDraw`. If the call is allowed, it has a slot. */
export type TryDecision =
  | (Decision & { readonly allowed: true; readonly limitedBy: undefined; readonly slot: Slot })
  | (Decision & { readonly allowed: false; readonly limitedBy: string; readonly slot: undefined });
