import { ruleOf } from "../core/limits/registry.ts";
import { keyLimitsOf } from "../core/per-key.ts";
import { stepOf } from "../core/scope.ts";
import { costsOf } from "../throttle/costs.ts";
import type { TryOptions } from "../throttle/draw-options.ts";
import type { InForce } from "../throttle/steering.ts";
import type { Phase } from "./backlog.ts";

/** How fast jobs may start, by the policy in force. */
export interface Paces {
  /** Of all keys together: what there is room for now goes at once. */
  readonly shared: readonly Phase[];
  /** How many of a key may start in a ms by its own limits; Infinity where it has none. */
  readonly perMsOf: (key: string) => number;
}

/** How a bucket stands, and in how many ms it lets anything start. */
interface Outset extends InForce {
  readonly fromMs: number;
}

/** How many one limit lets stand before a job that starts: so many at once, and so many more per ms from then on. */
interface Line {
  readonly room: number;
  readonly perMs: number;
}

/** With no rate, all start at once. */
const FASTEST_PER_MS = 1_000_000;
/** A rate that was cut grows back evenly; it is taken to do so in so many steps. */
const RAMP_STEPS = 8;

/**
 * The paces of plain calls, from `fromMs` on; where those take nothing of what keys share,
 * of jobs like the one that is asked about.
 */
export function pacesOf(bucket: string, about: TryOptions, inForce: Outset): Paces {
  const { policy } = inForce;
  const { limits: shared } = policy;
  const isCounted = stepOf(shared, costsOf(bucket, shared, undefined)) > 0;
  const cost = isCounted ? undefined : about.cost;

  function costsOfKey(key: string | undefined): readonly number[] {
    return costsOf(bucket, [...shared, ...keyLimitsOf(policy, key)], cost);
  }

  const lines = linesOf(inForce, costsOfKey(about.key));
  const distance = distanceOf(inForce, Math.min(...lines.map(({ perMs }) => perMs)));
  return {
    shared: [...distance.phases, ...phasesOf(lines, distance.lastsMs)],
    perMsOf: (key) =>
      1_000 / stepOf(keyLimitsOf(policy, key), costsOfKey(key).slice(shared.length)),
  };
}

function linesOf({ policy, state }: InForce, costs: readonly number[]): Line[] {
  return policy.limits.flatMap(({ kind, count, periodUs, capacity }, index) => {
    const cost = costs[index]!;
    const { isRate, doesRenew } = ruleOf(kind);
    if (cost === 0 || !isRate) return [];
    const { remaining } = state.limits[index]!;
    // All waits for the next window anyhow when this one is used up, and then has the whole of that.
    const room = doesRenew === true && remaining === 0 ? capacity : remaining;
    // A job starts once there is room for it, and for those before it.
    const before = Math.max(0, room / cost - 1);
    return [{ room: before, perMs: (count * 1_000) / (periodUs * cost) }];
  });
}

/**
 * While a rate that was cut grows back, or answers have calls spaced, all calls
 * keep a distance, whatever there is room for; and how long that lasts.
 */
function distanceOf(
  { state, wholeInMs, spacedForMs, gapMs, fromMs }: Outset,
  perMs: number,
): { readonly phases: readonly Phase[]; readonly lastsMs: number } {
  const rampMs = perMs === Infinity ? 0 : Math.max(0, wholeInMs - fromMs);
  const spacedMs = Math.max(0, spacedForMs - fromMs);
  const lastsMs = Math.max(rampMs, spacedMs);
  if (lastsMs === 0) return { phases: [], lastsMs };
  const cutBy = ((1 - state.rateFactor) * rampMs) / (wholeInMs - state.coolingForMs);
  const steps = Array.from({ length: RAMP_STEPS }, (_, step) => (rampMs * step) / RAMP_STEPS);
  const edges = [...new Set([...steps, spacedMs, rampMs])]
    .filter((edgeMs) => edgeMs < lastsMs)
    .toSorted((a, b) => a - b);
  const phases = edges.map((edgeMs, index) => {
    const middleMs = (edgeMs + (edges[index + 1] ?? lastsMs)) / 2;
    const factor = middleMs < rampMs ? 1 - cutBy * (1 - middleMs / rampMs) : 1;
    const most = middleMs < spacedMs ? 1 / gapMs : FASTEST_PER_MS;
    return { fromMs: edgeMs, perMs: Math.min(perMs * factor, most) };
  });
  return { phases, lastsMs };
}

/** Goes at each time by the limit that has let the least start until then; that is a slower one each time. */
function phasesOf(lines: readonly Line[], fromMs: number): Phase[] {
  const phases: (Phase & Line)[] = [];
  let next: (Phase & Line) | undefined = { fromMs, room: 0, perMs: FASTEST_PER_MS };
  while (next !== undefined) {
    const at: Phase & Line = next;
    phases.push(at);
    const slower = lines.filter(({ perMs }) => perMs < at.perMs);
    const meeting = slower.map((line) => ({
      ...line,
      fromMs: Math.max(at.fromMs, fromMs + (line.room - at.room) / (at.perMs - line.perMs)),
    }));
    [next] = meeting.toSorted((a, b) => a.fromMs - b.fromMs || a.perMs - b.perMs);
  }
  return phases;
}
