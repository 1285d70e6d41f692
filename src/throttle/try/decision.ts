import { formatLimit, ruleOf } from "../../core/limits/registry.ts";
import type { Limit, LimitStatus } from "../../core/limits/rule.ts";
import type { Whose } from "../../core/policy/per-key.ts";
import { LONGEST_MS } from "../../core/input/options.ts";
import { causeOf, COOLING, PAUSED, SLOWED, type Granted } from "../../core/store.ts";
import type { CallTerms } from "../costs.ts";
import type { Slot } from "../slot/slot.ts";
import type { Group } from "../waiting/group.ts";

/** The answer of one limit to a call. The numbers are of a limit of 100 calls a minute, 97 of them used. */
export interface LimitDecision {
  /** The limit as its policy writes it: `"100/min"`; where keys have several levels or names, with that: `"2/s (level 1)"`. */
  readonly name: string;
  /** What it counts: `"calls"` unless the policy says otherwise, e.g. `"tokens"`. */
  readonly unit: string;
  /** Whether the whole bucket shares it (`"bucket"`) or each key has its own (`"key"`); of keys by name, the name. */
  readonly scope: string;
  /** Which name of a path it is for: `0` is the first. Undefined of the bucket, and of keys by name. */
  readonly level: number | undefined;
  /** The most that can pass at once when nothing is used, in units: `100`. */
  readonly capacity: number;
  /** The time in which `capacity` comes back, in ms: `60000`, and `0.5` for 1 of 2,000 a second. Undefined of a limit on calls at once. */
  readonly windowMs: number | undefined;
  /** Whole units that could pass now, after this call when it was allowed: `3`. */
  readonly remaining: number;
  /** Ms until all of `capacity` is there again, if nothing else is drawn: `58200`. */
  readonly resetAfterMs: number;
  /** Ms until this limit would let the same call pass: `0` when it does now, `600` when the call costs 4. */
  readonly retryAfterMs: number;
}

/** The answer to a call that asked once and did not wait. The numbers go on from {@link LimitDecision}. */
export interface Decision {
  /** Whether the call may start now; its cost is then drawn. `false` for a call of cost 4. */
  readonly allowed: boolean;
  /** Whole units that could pass now under the limit with the least left: `3`; Infinity where no limit holds, as in shadow. */
  readonly remaining: number;
  /** Ms until every limit is as if nothing had been drawn: `58200`, the longest of all. */
  readonly resetAfterMs: number;
  /** Ms until the same call is likely to pass: `0` when allowed, else the longest of all, `600`. */
  readonly retryAfterMs: number;
  /**
   * The name of the limit that refused it: `"100/min"`; `"a pause"`, `"a cooldown"` and the like where none did, of a key
   * with its level or name where there are several: `"a pause (level 0)"`. Undefined when allowed.
   */
  readonly limitedBy: string | undefined;
  /** Each limit in the policy's order, of the bucket and of the key. */
  readonly limits: readonly LimitDecision[];
}

/** The reply to a draw for many calls of one group. */
export interface Outcome {
  readonly group: Group;
  readonly granted: Granted;
  readonly nowUs: number;
}

/** Decisions are copies of it, for the same reason as in `Asker` of try-draw.ts. */
const ALLOWED = {
  allowed: true as const,
  remaining: 0,
  resetAfterMs: 0,
  retryAfterMs: 0,
  limitedBy: undefined,
  limits: [],
  slot: undefined,
};

/** When to ask again where the time is unknown, as when a lease comes free. */
export const UNKNOWN_MS = 1_000;

/** The state of the limits after all of the calls. */
export function limitDecisionsOf({ group, granted, nowUs }: Outcome): readonly LimitDecision[] {
  const { limits, whose } = group.callTerms;
  return limits.map((limit, index) =>
    describe(factsOf(limit, whose[index]!), granted.statuses[index]!, nowUs),
  );
}

/** The decision for an allowed call; the `after` calls behind it have not drawn yet. */
export function allowed(
  decisions: readonly LimitDecision[],
  { costs }: CallTerms,
  { after, slot }: { readonly after: number; readonly slot: Slot },
): TryDecision {
  // A list of its own, since its caller may change it.
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

/** Nothing can pass during a pause, a cooldown or a slowed rate, whatever the limits have left. */
function closedUntil(decisions: readonly LimitDecision[], retryAfterMs: number): LimitDecision[] {
  return decisions.map((limit) => ({
    ...limit,
    remaining: 0,
    resetAfterMs: Math.max(limit.resetAfterMs, retryAfterMs),
    retryAfterMs,
  }));
}

/** The same refusal, `passedMs` later. The copies are changed but never grow: V8 takes 25 times as long for one that does. */
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

/** What all decisions of a limit have in common: to write its name takes longer than the rest. */
const known = new WeakMap<Limit, WeakMap<Whose, LimitDecision>>();

function factsOf(limit: Limit, whose: Whose): LimitDecision {
  const ofLimit = known.get(limit) ?? new WeakMap<Whose, LimitDecision>();
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

/** The name of what holds a call back, for decisions and errors: `"100/s"`; undefined if it is the line alone. */
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

/** A decision, with the slot of an allowed call. `allowed` tells the two kinds apart. */
export type TryDecision =
  | (Decision & { readonly allowed: true; readonly limitedBy: undefined; readonly slot: Slot })
  | (Decision & { readonly allowed: false; readonly limitedBy: string; readonly slot: undefined });
