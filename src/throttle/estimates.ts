import { stepOf } from "../core/draw/scope.ts";
import { isLeased } from "../core/limits/registry.ts";
import { LONGEST_MS } from "../core/options.ts";
import { HORIZON_MS } from "../core/policy/limit-makers.ts";
import { formatPolicy } from "../core/policy/policy.ts";
import type { Conditions } from "./conditions.ts";
import { UNKNOWN_MS } from "./decisions.ts";
import type { Group } from "./group.ts";
import type { Knowledge } from "./known-terms.ts";
import { nameBinding } from "./name-binding.ts";
import type { Pacer } from "./pacer.ts";

/** What a call is taken to cost until its answer tells. */
export interface Estimate {
  /** What the call was estimated to cost, by unit. */
  readonly costOf: (unit: string) => number;
  /** What one call takes of the downstream, in ms. */
  readonly stepMs: number;
}

/** What callers are told of their wait. */
export interface Estimates {
  /** What holds a group's calls back, as errors name it: `"100/s"`. */
  readonly limitedBy: (group: Group) => string;
  /** About how long a call of this group that comes now will wait. */
  readonly estimateMs: (group: Group) => number;
}

/** An answer that takes so long is what a caller waits for. */
const SILENT_MS = 50;
/** What holds a call back, as errors name it, until Redis says what does. */
export const UNANSWERED = "Redis, which has not answered yet";

export function estimateOf({ limits, costs, stepMs }: Conditions): Estimate {
  const costOf = (unit: string): number => {
    const index = limits.findIndex((limit) => limit.unit === unit && !isLeased(limit));
    return index === -1 ? (unit === "calls" ? 1 : 0) : costs[index]!;
  };
  return { costOf, stepMs };
}

/** What one call takes of what all keys share, and of what its own key has, in ms; 0 where there is no rate. */
export function stepsOf({ shared, keyLimits, costs }: Conditions): {
  readonly sharedMs: number;
  readonly keyMs: number;
} {
  const keyCosts = costs.slice(shared.length);
  return {
    sharedMs: stepOf(shared, costs) / 1_000,
    keyMs: stepOf(keyLimits, keyCosts) / 1_000,
  };
}

export function createEstimates(
  known: Knowledge,
  pacer: Pick<Pacer, "waiting" | "askTimes">,
): Estimates {
  const isSilent = (): boolean => pacer.askTimes.silentMs > SILENT_MS;

  return {
    limitedBy({ bindsAt, conditions }) {
      if (!pacer.askTimes.hasAnswered || isSilent()) return UNANSWERED;
      return nameBinding(bindsAt, conditions.limits) ?? formatPolicy(known.policy);
    },
    estimateMs({ notBeforeMs, bindsAt, line, conditions }) {
      const { keyLimits, limits, hasLeases, stepMs } = conditions;
      const binding = limits[bindsAt - 1];
      const { turnAtMs } = pacer.askTimes;
      // A slot lies a horizon behind the turn at which it is drawn.
      const comesAtMs = Math.max(notBeforeMs, turnAtMs === 0 ? 0 : turnAtMs + HORIZON_MS);
      const dueMs = comesAtMs - performance.now();
      const waiting = keyLimits.length > 0 ? line.size : pacer.waiting;
      // Nobody can tell when a lease comes free, nor, of a pause or the like that may hide one, how long that takes.
      const isOfLease = bindsAt < 0 ? hasLeases : binding !== undefined && isLeased(binding);
      const isUnknown = isSilent() || isOfLease;
      const least = isUnknown ? UNKNOWN_MS : 1;
      // The first of those who wait goes when it is due, and the others one after the other.
      const inLineMs = dueMs > 0 ? dueMs + (waiting - 1) * stepMs : waiting * stepMs;
      return Math.ceil(Math.min(LONGEST_MS, Math.max(least, inLineMs)));
    },
  };
}
