import { withForever } from "../../core/describe.ts";
import { unitsIn } from "../../core/limits/budget.ts";
import { namedOf, namesOfText, type Named } from "../../core/key-path.ts";
import { formatLimit } from "../../core/limits/registry.ts";
import { floorOf, type Fair } from "../../core/policy/fair.ts";
import { scopesOf, ownersOfLimits } from "../../core/policy/per-key.ts";
import { asFarAsKnown, formatPolicy, type Policy } from "../../core/policy/policy.ts";
import type {
  AdaptiveReason,
  AdaptiveTerms,
  AdaptiveWindow,
  Limit,
  LimitStatus,
} from "../../core/limits/rule.ts";
import { limitsOfCall, type Peeked, type ShadowCounts } from "../../core/store.ts";
import { WITHOUT_KEY } from "../waiting/group.ts";

/** The active policy of a bucket, and the bucket's state under this policy. */
export interface InForce {
  readonly policy: Policy;
  readonly state: BucketState;
  /** Ms until the bucket is back at its full rate. `0` if the rate is not reduced. */
  readonly wholeInMs: number;
  /** Ms for which calls stay `gapMs` apart, because responses of the downstream demanded it. `0` if they did not. */
  readonly spacedForMs: number;
  /** The minimum time between two calls, in ms, as responses of the downstream demanded it. */
  readonly gapMs: number;
}

/** The state of one limit. The example values belong to a limit of 100 calls a minute of which 97 are used. */
export interface LimitState {
  /**
   * The limit as text: `"100/min"`. If several key levels or key names have limits, the text includes the level or
   * name: `"2/s (level 1)"`.
   */
  readonly name: string;
  readonly unit: string;
  /** `"bucket"` for a shared limit, `"key"` for a per-key limit. For named keys, the name of the key. */
  readonly scope: string;
  /** The level of the key path that the limit belongs to, from `0`. Undefined for shared limits and for named keys. */
  readonly keyLevel: number | undefined;
  /** The size of the limit: `100`. For a budget, this includes what was carried over and granted. */
  readonly capacity: number;
  /** The units in use: `97`. */
  readonly level: number;
  /** The free units: `3`. */
  readonly remaining: number;
  /**
   * Ms until a call of cost 1 may pass: `0`. Undefined if this is unknown, for example for a used-up concurrency limit.
   */
  readonly nextFreeMs: number | undefined;
  /** The state of a concurrency limit that adapts to latency. Undefined for other limits. */
  readonly adaptive?: AdaptiveState | undefined;
}

/** The state of a concurrency limit that adapts to latency, over all replicas. */
export interface AdaptiveState {
  /** The calls that may run at once now: `42`. */
  readonly atOnce: number;
  /** The computed limit: `41.6`. In shadow and during a probe, it differs from `atOnce`. */
  readonly value: number;
  /** The limit never falls below this: `1`. */
  readonly min: number;
  /** The limit never exceeds this: `200`. */
  readonly max: number;
  /** True if only `max` binds, and the value is just computed and reported. */
  readonly shadow: boolean;
  /** The latency without a queue, in ms: `48.2`. `0` before it is measured. */
  readonly baselineMs: number;
  /** The mean latency of the last window, in ms: `50.9`. */
  readonly recentMs: number;
  /** The baseline divided by the recent latency: `0.947`. Below 1, calls take longer than without a queue. */
  readonly gradient: number;
  /** Why the limit has its value: it was `"raised"`, for example, or lowered because of `"latency"` or `"drops"`. */
  readonly reason: AdaptiveReason;
}

/**
 * The counts of a shadow limit over all replicas, since the limit was last changed. A shadow limit delays no calls: it
 * only computes how long calls would have waited.
 */
export interface ShadowState {
  /** The shadow limit as text: `"50/s"`. */
  readonly name: string;
  readonly unit: string;
  /** The number of counted calls: `12000`. */
  readonly calls: number;
  /** The number of calls that would have waited: `340`. */
  readonly wouldHaveWaited: number;
  /** The longest wait that a call would have had, in ms: `1250`. */
  readonly longestWaitMs: number;
  /** The number of calls that cost more than the limit's capacity, or would have waited for more than an hour: `0`. */
  readonly wouldHaveBeenRefused: number;
}

/** The state of a bucket over all replicas, without the state of its limits. */
export interface BriefState {
  /** The active policy as text: `"100/s"`. */
  readonly policy: string;
  /** The source of the active policy: an operator configured it, or the rules or the code declare it. */
  readonly policyFrom: "code" | "rules" | "configured";
  readonly generation: number;
  /** Ms until a cooldown ends. `0` without a cooldown. */
  readonly coolingForMs: number;
  /**
   * Ms until a pause ends. `0` without a pause. Infinity for a pause without an end, written as `"forever"` in JSON.
   */
  readonly pausedForMs: number;
  /** Ms until the next probe, at least `1`, if any process finds the downstream unreachable. Otherwise `0`. */
  readonly unreachableForMs: number;
  /** @deprecated Use `unreachableForMs`, which has the same value. */
  readonly awayForMs: number;
  /** The fraction of the rate that calls may use now. Refusals reduce it; `1` is the full rate. */
  readonly rateFactor: number;
  /** The number of replicas that drew slots in the current or the previous second. */
  readonly replicas: number;
  /** The number of callers in this process that wait for a slot. */
  readonly waitingHere: number;
  /** The state of the shadow limits, which count calls without delaying them. `[]` if the policy has none. */
  readonly shadows: readonly ShadowState[];
}

/** A key whose pending calls take turns with those of other keys. */
export interface KeyTurn extends Named {
  /** The weight of each name of the key, the widest first: `[2]`, or `[1, 3]` for a path of two names. */
  readonly weights: readonly number[];
  /** The guaranteed part of the key: `"20/s"`. Undefined if it has none. */
  readonly floor: string | undefined;
  /**
   * Why its next call goes before all turns: it is a critical call, or within the floor of the key. Undefined if the
   * call waits for the key's turn.
   */
  readonly goesFirst: "critical" | "floor" | undefined;
  /** How long the oldest pending call of the key has waited, in ms: `350`. */
  readonly waitedMs: number;
}

/** The state of a bucket and of its limits, over all replicas. */
export interface BucketState extends BriefState {
  readonly limits: readonly LimitState[];
  /**
   * The keys with pending calls that take turns at the shared limits: the first 32, the one with the next turn first.
   * Calls without a key are an entry without `key` and `keys`. `[]` if no call waits, or if keys take no turns.
   */
  readonly turns: readonly KeyTurn[];
}

/** The state of one member of a pool, over all replicas. */
export interface MemberState {
  readonly name: string;
  /** True if the member gets no new calls. */
  readonly drained: boolean;
  /** Ms until the member's cooldown ends: `0` without one. */
  readonly coolingForMs: number;
  /** Ms until the next probe, if any process finds the member unreachable. Otherwise `0`. */
  readonly unreachableForMs: number;
  /** The fraction of its rate that the member may use now. Refusals reduce it. */
  readonly rateFactor: number;
  readonly limits: readonly LimitState[];
}

const NO_STATUS: Partial<LimitStatus> = {};

/** Stands for a pause without an end: about 30 years, in µs. */
export const FOREVER_US = 1e15;

type SeenBeside = Pick<BriefState, "waitingHere" | "unreachableForMs">;

export function describeState(
  peeked: Peeked,
  key: string | undefined,
  policy: Policy,
  seen: SeenBeside,
): BucketState {
  const { nowUs, statuses, coolUntilUs, pausedUntilUs } = peeked;
  const closedUntilUs = Math.max(coolUntilUs, pausedUntilUs);
  const known = asFarAsKnown(policy);
  const scopes = scopesOf(known, key);
  const whose = ownersOfLimits(known, scopes);
  const limits = limitsOfCall(policy.limits, scopes).map((limit, index): LimitState => {
    const { scope, level, suffix } = whose[index]!;
    const status = statuses[index] ?? NO_STATUS;
    const { remaining: free, nextUs = nowUs, total } = status;
    const adaptive = limit.adaptive && describeAdaptive(limit, limit.adaptive, status.adaptive);
    const declared = limit.budget === undefined ? limit.capacity : limit.count;
    const most = adaptive?.atOnce ?? total ?? declared;
    const left = free ?? most;
    const [capacity, remaining] = [unitsIn(limit, most), unitsIn(limit, left)];
    return {
      name: formatLimit(limit) + suffix,
      unit: limit.unit,
      scope,
      keyLevel: level,
      capacity,
      level: unitsIn(limit, Math.max(0, most - left)),
      remaining,
      nextFreeMs: nextUs === Infinity ? undefined : msUntil(Math.max(nextUs, closedUntilUs), nowUs),
      ...(adaptive && { adaptive }),
    };
  });
  const shadows = policy.shadows.map((limit, index) => shadowState(limit, peeked.shadows[index]));
  return withForever({
    ...briefState(peeked, policy, seen),
    limits,
    shadows,
    turns: turnsOf(peeked, policy.fair),
  });
}

/** Describes a limit that adapts. Without a window, as before its first call ended, it calibrates. */
export function describeAdaptive(
  { count: max }: Limit,
  { min, initial, shadow }: AdaptiveTerms,
  window: AdaptiveWindow | undefined,
): AdaptiveState {
  const { baselineUs = 0, recentUs = 0 } = window ?? {};
  return {
    atOnce: window?.bound ?? (shadow === true ? max : initial),
    value: window?.value ?? initial,
    min,
    max,
    shadow: shadow === true,
    baselineMs: baselineUs / 1_000,
    recentMs: recentUs / 1_000,
    gradient: recentUs === 0 ? 1 : Math.round((baselineUs / recentUs) * 1_000) / 1_000,
    reason: window?.reason ?? "calibrating",
  };
}

function turnsOf({ pendingKeys, nowUs }: Peeked, fair: Fair | undefined): KeyTurn[] {
  if (fair === undefined) return [];
  return pendingKeys.map(({ names, weights, sinceUs, goesFirst }) => ({
    ...namedOf(names === WITHOUT_KEY.names ? undefined : names),
    weights: weights === "" ? namesOfText(names).map(() => 1) : weights.split(",").map(Number),
    floor: floorOf(fair, names),
    goesFirst,
    waitedMs: msUntil(nowUs, sinceUs),
  }));
}

function shadowState(limit: Limit, counts: ShadowCounts = NOTHING_COUNTED): ShadowState {
  const { calls, waited, longestUs, refused } = counts;
  return {
    name: formatLimit(limit),
    unit: limit.unit,
    calls,
    wouldHaveWaited: waited,
    longestWaitMs: Math.ceil(longestUs / 1_000),
    wouldHaveBeenRefused: refused,
  };
}

const NOTHING_COUNTED: ShadowCounts = { calls: 0, waited: 0, longestUs: 0, refused: 0 };

/** Describes a bucket without its limits and shadows. */
export function describeBriefly(
  peeked: BrieflyPeeked,
  policy: Policy,
  seen: SeenBeside,
): BriefState {
  return withForever(briefState(peeked, policy, seen));
}

type BrieflyPeeked = Pick<
  Peeked,
  "nowUs" | "source" | "generation" | "coolUntilUs" | "pausedUntilUs" | "factor" | "alive"
>;

function briefState(
  { nowUs, source, generation, coolUntilUs, pausedUntilUs, factor, alive }: BrieflyPeeked,
  policy: Policy,
  { waitingHere, unreachableForMs }: SeenBeside,
): BriefState {
  return {
    policy: formatPolicy(policy),
    policyFrom: source === "override" ? "configured" : source,
    generation,
    coolingForMs: msUntil(coolUntilUs, nowUs),
    pausedForMs: orEndless(msUntil(pausedUntilUs, nowUs)),
    unreachableForMs,
    awayForMs: unreachableForMs,
    rateFactor: factor / 1_000,
    replicas: alive,
    waitingHere,
    shadows: [],
  };
}

/** Returns Infinity if this is the rest of a pause without an end. Otherwise returns `ms`. */
export function orEndless(ms: number): number {
  return ms > FOREVER_US / 2_000 ? Infinity : ms;
}

export function msUntil(us: number, nowUs: number): number {
  return Math.max(0, Math.ceil((us - nowUs) / 1_000));
}
