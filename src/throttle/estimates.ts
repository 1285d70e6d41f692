import { formatLimit } from "../core/format-limit.ts";
import { HORIZON_US } from "../core/limit-makers.ts";
import { LONGEST_MS } from "../core/options.ts";
import { formatPolicy } from "../core/policy.ts";
import { UNKNOWN_MS } from "./decisions.ts";
import type { Group } from "./group.ts";
import type { Knowledge } from "./known-terms.ts";
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

const HORIZON_MS = HORIZON_US / 1_000;
/** An answer that takes so long is what a caller waits for. */
const SILENT_MS = 50;

export function estimateOf({ limits, costs, stepMs }: Group): Estimate {
  const costOf = (unit: string): number => {
    const index = limits.findIndex((limit) => limit.unit === unit && limit.kind !== "concurrency");
    return index === -1 ? (unit === "calls" ? 1 : 0) : costs[index]!;
  };
  return { costOf, stepMs };
}

export function createEstimates(
  known: Knowledge,
  pacer: Pick<Pacer, "waiting" | "turnAtMs" | "silentMs">,
): Estimates {
  return {
    limitedBy({ bindsAt, limits }) {
      if (pacer.silentMs > SILENT_MS) return "Redis, which has not answered yet";
      const limit = limits[bindsAt - 1];
      if (limit !== undefined) return formatLimit(limit);
      return bindsAt === -1 ? "a cooldown or pause" : formatPolicy(known.policy);
    },
    estimateMs({ notBeforeMs, keyLimits, line, hasLeases, stepMs }) {
      const { turnAtMs } = pacer;
      // A slot lies a horizon behind the turn at which it is drawn.
      const comesAtMs = Math.max(notBeforeMs, turnAtMs === 0 ? 0 : turnAtMs + HORIZON_MS);
      const dueMs = comesAtMs - performance.now();
      const waiting = keyLimits.length > 0 ? line.size : pacer.waiting;
      const least = hasLeases ? UNKNOWN_MS : 1;
      return Math.ceil(Math.min(LONGEST_MS, Math.max(least, dueMs, waiting * stepMs)));
    },
  };
}
