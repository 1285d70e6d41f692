import { formatLimit, ruleOf } from "../../core/limits/registry.ts";
import type { Limit, LimitStatus } from "../../core/limits/rule.ts";
import type { LimitOwner } from "../../core/policy/per-key.ts";
import { LONGEST_MS } from "../../core/input/options.ts";
import { causeOf, COOLING, PAUSED, SLOWED, type Granted } from "../../core/store.ts";
import type { CallTerms } from "../costs.ts";
import type { Slot } from "../slot/slot.ts";
import type { Group } from "../waiting/group.ts";

/** The decision of one limit about a call. The example numbers are of a limit of 100 calls a minute with 97 used. */
export interface LimitDecision {
  /**
   * The limit as written in its policy: `"100/min"`. If keys have several levels or names, with the level or name:
   * `"2/s (level 1)"`.
   */
  readonly name: string;
  /** What it counts: `"calls"` unless the policy says otherwise, for example `"tokens"`. */
  readonly unit: string;
  /** `"bucket"` if the whole bucket shares it, `"key"` if each key has its own; for named keys, the name. */
  readonly scope: string;
  /** Which name of a path it limits: `0` is the first. Undefined for limits of the bucket and of named keys. */
  readonly level: number | undefined;
  /** The most units that can pass at once when nothing is used: `100`. */
  readonly capacity: number;
  /**
   * The time in which `capacity` comes back, in ms: `60000`, and `0.5` for 1 of 2,000 a second. Undefined for a
   * concurrency limit.
   */
  readonly windowMs: number | undefined;
  /** Whole units that could pass now, after this call if it was allowed: `3`. */
  readonly remaining: number;
  /** Ms until all of `capacity` is available again, if nothing else is drawn: `58200`. */
  readonly resetAfterMs: number;
  /** Ms until this limit would allow the same call: `0` if it does now, `600` for a call of cost 4. */
  readonly retryAfterMs: number;
}

/** The decision about a call that does not wait. The example numbers continue those of {@link LimitDecision}. */
export interface Decision {
  /** Whether the call may start now; if so, its cost is drawn. `false` for a call of cost 4. */
  readonly allowed: boolean;
  /**
   * Whole units that could pass now under the limit with the least left: `3`. Infinity if no limit applies, as for
   * limits in shadow.
   */
  readonly remaining: number;
  /** Ms until no limit has anything drawn: `58200`, the longest of all limits. */
  readonly resetAfterMs: number;
  /**
   * Ms until the same call is likely to be allowed: `0` if it is allowed now, otherwise the longest of all limits,
   * `600`.
   */
  readonly retryAfterMs: number;
  /**
   * What refused the call: the name of a limit, `"100/min"`, or `"a pause"`, `"a cooldown"` and the like. If keys have
   * several levels or names, with the level or name: `"a pause (level 0)"`. Undefined if the call is allowed.
   */
  readonly limitedBy: string | undefined;
  /** Every limit of the bucket and of the key, in the policy's order. */
  readonly limits: readonly LimitDecision[];
}

/** The reply to a draw for several calls of one group. */
export interface Outcome {
  readonly group: Group;
  readonly granted: Granted;
  readonly nowUs: number;
}

/** Decisions are copies of this, for the reason given at `PendingTry` in try-draw.ts. */
const ALLOWED = {
  allowed: true as const,
  remaining: 0,
  resetAfterMs: 0,
  retryAfterMs: 0,
  limitedBy: undefined,
  limits: [],
  slot: undefined,
};

/** The retry time where the real one is unknown, for example until a lease is free. */
export const UNKNOWN_MS = 1_000;

/** The decisions of all limits, after all of the calls. */
export function limitDecisionsOf({ group, granted, nowUs }: Outcome): readonly LimitDecision[] {
  const { limits, whose } = group.callTerms;
  return limits.map((limit, index) =>
    describe(factsOf(limit, whose[index]!), granted.statuses[index]!, nowUs),
  );
}

/** The decision for an allowed call; `after` calls of the same reply come behind it. */
export function allowed(
  decisions: readonly LimitDecision[],
  { costs }: CallTerms,
  { after, slot }: { readonly after: number; readonly slot: Slot },
): TryDecision {
  // Each caller gets its own list, because it may change it.
  const limits = after === 0 ? [...decisions] : beforeOthers(decisions, costs, after);
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
  costs: readonly number[],
  others: number,
): LimitDecision[] {
  return decisions.map((limit, index) => {
    const remaining = Math.min(limit.capacity, limit.remaining + others * costs[index]!);
    return { ...limit, remaining };
  });
}

/** The decision for a refused call. */
export function refused(
  decisions: readonly LimitDecision[],
  { group, granted: { bindsAt, notBeforeUs }, nowUs }: Outcome,
): TryDecision {
  const waitMs = Math.ceil(Math.max(0, notBeforeUs - nowUs) / 1_000);
  const untilMs = notBeforeUs === Infinity ? UNKNOWN_MS : waitMs;
  const longestMs = Math.max(1, untilMs, ...decisions.map((limit) => limit.retryAfterMs));
  const retryAfterMs = Math.min(LONGEST_MS, longestMs);
  const limits = bindsAt < 0 ? closedUntil(decisions, retryAfterMs) : decisions;
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

/** During a pause, a cooldown or a slowed rate nothing can pass, whatever the limits have left. */
function closedUntil(decisions: readonly LimitDecision[], retryAfterMs: number): LimitDecision[] {
  return decisions.map((limit) => ({
    ...limit,
    remaining: 0,
    resetAfterMs: Math.max(limit.resetAfterMs, retryAfterMs),
    retryAfterMs,
  }));
}

/** The same refusal, `passedMs` later. The copies never grow: V8 takes 25 times as long for objects that do. */
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
  facts: LimitDecision,
  { remaining, resetUs, nextUs }: LimitStatus,
  nowUs: number,
): LimitDecision {
  return {
    ...facts,
    remaining: Math.min(facts.capacity, remaining),
    resetAfterMs: untilMs(resetUs, nowUs),
    retryAfterMs: untilMs(nextUs, nowUs),
  };
}

function untilMs(us: number, nowUs: number): number {
  return us === Infinity ? UNKNOWN_MS : Math.max(0, Math.ceil((us - nowUs) / 1_000));
}

/** What all decisions of a limit have in common. Cached, because writing the name takes longer than the rest. */
const known = new WeakMap<Limit, WeakMap<LimitOwner, LimitDecision>>();

function factsOf(limit: Limit, whose: LimitOwner): LimitDecision {
  const ofLimit = known.get(limit) ?? new WeakMap<LimitOwner, LimitDecision>();
  const found = ofLimit.get(whose);
  if (found !== undefined) return found;
  const { unit, capacity, count, periodUs, kind } = limit;
  const { isRate } = ruleOf(kind);
  const windowMs = isRate ? (capacity * periodUs) / count / 1_000 : undefined;
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

type NamedTerms = Pick<CallTerms, "limits" | "whose" | "shared" | "scopeLimits">;

/** The name of what holds a call back, for decisions and errors: `"100/s"`. Undefined if it is only the line. */
export function nameBinding(
  bindsAt: number,
  { limits, whose, shared, scopeLimits }: NamedTerms,
): string | undefined {
  if (bindsAt === 0) return undefined;
  if (bindsAt > 0) return factsOf(limits[bindsAt - 1]!, whose[bindsAt - 1]!).name;
  const { cause, scopeNumber } = causeOf(bindsAt);
  const name = NAMES.get(cause)!;
  if (scopeNumber === 0) return name;
  const before = scopeLimits.slice(0, scopeNumber - 1).flat().length;
  return name + whose[shared.length + before]!.suffix;
}

/** A decision, with the slot of an allowed call. */
export type TryDecision =
  | (Decision & { readonly allowed: true; readonly limitedBy: undefined; readonly slot: Slot })
  | (Decision & { readonly allowed: false; readonly limitedBy: string; readonly slot: undefined });
