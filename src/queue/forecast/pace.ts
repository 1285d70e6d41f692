import { headsOfText } from "../../core/key-path.ts";
import { hasPace, ruleOf, stepOf } from "../../core/limits/registry.ts";
import { keyLimitsOf, ownScopeOf } from "../../core/policy/per-key.ts";
import { asFarAsKnown } from "../../core/policy/policy.ts";
import type { LanesSeen } from "../../stores/redis/scripts/queue/lanes.ts";
import type { InForce } from "../../throttle/bucket/bucket-state.ts";
import type { TryCall } from "../../throttle/call-options.ts";
import { costsOf } from "../../throttle/costs.ts";
import type { Phase, LaneGroup, LaneLoad } from "./drain.ts";

/** How fast jobs may start under the active limits. */
export interface Pace {
  /** The phases for all keys together. Jobs that have room now start at once. */
  readonly shared: readonly Phase[];
  /**
   * Returns how many jobs of a key, including all keys below this key, may start per ms under the key's own limits.
   * Infinity if the key has no limits.
   */
  readonly perMsOf: (text: string) => number;
  /** Returns the pace `ms` later, after `served` more jobs have started. Unused starts become room for later jobs. */
  readonly after: (ms: number, served: number) => Pace;
}

/** The state of a bucket, and the ms until the bucket allows any call to start. */
interface Outset extends InForce {
  readonly fromMs: number;
  /** True if the pending jobs count as more calls than there are jobs. */
  readonly isCostly: boolean;
}

/** How many jobs one limit allows to start before a given job: `room` jobs at once, then `perMs` jobs per ms. */
interface PacedLine {
  readonly room: number;
  /** The most room that the limit can ever have. */
  readonly most: number;
  readonly perMs: number;
}

/** Phases with a minimum gap between calls. Together they last `lastsMs`. */
interface Distance {
  readonly phases: readonly Phase[];
  readonly lastsMs: number;
}

/** The rate without any limit: all jobs start at once. */
const FASTEST_PER_MS = 1_000_000;
/** A rate that was cut recovers evenly over time. The forecast computes this recovery in this many steps. */
const RAMP_STEPS = 8;

/**
 * Returns the pace of calls of cost 1 from `fromMs` on. If such calls use nothing of the shared limits, returns the
 * pace of calls with the cost in `about`.
 */
export function paceOf(bucket: string, about: TryCall, inForce: Outset): Pace {
  const policy = asFarAsKnown(inForce.policy);
  const { limits: shared } = policy;
  const isCounted = stepOf(shared, costsOf(bucket, shared, undefined)) > 0;
  const cost = isCounted ? undefined : about.cost;

  function costsOfKey(key: string | undefined): readonly number[] {
    return costsOf(bucket, [...shared, ...keyLimitsOf(policy, key)], cost);
  }

  const lines = linesOf(inForce, costsOfKey(about.key));
  const distance = distanceOf(inForce, Math.min(...lines.map(({ perMs }) => perMs)));
  function perMsOf(text: string): number {
    const own = ownScopeOf(policy, text);
    if (own === undefined) return Infinity;
    return 1_000 / stepOf(own.limits, costsOfKey(text).slice(-own.limits.length));
  }

  function paceAt(sinceMs: number, left: readonly PacedLine[]): Pace {
    const lastsMs = Math.max(0, distance.lastsMs - sinceMs);
    return {
      shared: [...phasesSince(distance, sinceMs), ...phasesOf(left, lastsMs)],
      perMsOf,
      after: (ms, served) =>
        paceAt(
          sinceMs + ms,
          left.map(({ room, most, perMs }) => {
            const then = Math.max(0, Math.min(most, room + perMs * ms - served));
            return { room: then, most, perMs };
          }),
        ),
    };
  }
  return paceAt(0, lines);
}

/** Returns the part of some phases that comes after `sinceMs`. */
function phasesSince({ phases, lastsMs }: Distance, sinceMs: number): Phase[] {
  return phases.flatMap(({ fromMs, perMs }, index) => {
    const endMs = phases[index + 1]?.fromMs ?? lastsMs;
    return endMs > sinceMs ? [{ fromMs: Math.max(0, fromMs - sinceMs), perMs }] : [];
  });
}

function linesOf(outset: Outset, costs: readonly number[]): PacedLine[] {
  const mostNow = mostRoomOf(outset, costs);
  return outset.policy.limits.flatMap(({ kind, count, periodUs, capacity }, index) => {
    const cost = costs[index]!;
    if (cost === 0 || !hasPace(kind)) return [];
    const room = Math.min(roomOf(outset, index) / cost, mostNow);
    // A job starts once there is room for this job and for the jobs before it.
    const before = Math.max(0, room - 1);
    const most = outset.isCostly ? before : Math.max(before, capacity / cost - 1);
    return [{ room: before, most, perMs: (count * 1_000) / (periodUs * cost) }];
  });
}

/**
 * Returns for how many calls of cost 1 there is room under the limits that such calls do not use. More expensive jobs
 * may use these limits. Then they start no sooner, even if the other limits have room.
 */
function mostRoomOf(outset: Outset, costs: readonly number[]): number {
  const { limits } = outset.policy;
  if (!outset.isCostly) return Infinity;
  const stepUs = stepOf(limits, costs);
  const rooms = limits.map(({ kind, count, periodUs }, index) =>
    costs[index] === 0 && hasPace(kind)
      ? (roomOf(outset, index) * periodUs) / (count * stepUs)
      : Infinity,
  );
  return Math.min(...rooms);
}

/** Returns how much one limit allows to start at once. */
function roomOf({ policy, state }: InForce, index: number): number {
  const { kind, capacity } = policy.limits[index]!;
  const { remaining } = state.limits[index]!;
  // If the current window is used up, all jobs wait for the next window, which then has its whole capacity.
  return ruleOf(kind).doesRenew === true && remaining === 0 ? capacity : remaining;
}

/**
 * Returns the phases in which calls must keep a minimum gap even if there is room, and how long these phases last. Such
 * a gap applies while a rate that was cut recovers, or while responses ask for gaps.
 */
function distanceOf(
  { state, wholeInMs, spacedForMs, gapMs, fromMs }: Outset,
  perMs: number,
): Distance {
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

/**
 * Combines limits into phases. At each time, the limit that has allowed the fewest jobs so far decides. Each phase is
 * slower than the phase before.
 */
function phasesOf(lines: readonly PacedLine[], fromMs: number): Phase[] {
  const phases: (Phase & PacedLine)[] = [];
  let next: (Phase & PacedLine) | undefined = { fromMs, room: 0, most: 0, perMs: FASTEST_PER_MS };
  while (next !== undefined) {
    const at: Phase & PacedLine = next;
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

/**
 * The group in which a key's lane takes turns, how fast the lane may drain, and for how long the lane and its parents
 * are blocked.
 */
export interface Groups {
  laneSettings(
    key: string,
    lane?: { readonly weight: number; readonly asideMs: number },
  ): Pick<LaneLoad, "within" | "weight" | "mostPerMs" | "fromMs">;
}

/**
 * Creates the groups of all parent keys. Each parent shares its turns and limits among the lanes below it, including
 * the lane of the parent's own jobs.
 */
export function createGroups(
  heads: LanesSeen["heads"],
  { perMsOf }: Pick<Pace, "perMsOf">,
  heldMs: (key: string) => number,
): Groups {
  const seen = new Map(heads.map((head) => [head.key, head]));
  const groups = new Map<string, LaneGroup>();

  function groupOf(text: string, within: LaneGroup | undefined): LaneGroup {
    const known = groups.get(text);
    if (known !== undefined) return known;
    const group = { within, weight: seen.get(text)?.weight ?? 1, mostPerMs: perMsOf(text) };
    groups.set(text, group);
    return group;
  }

  return {
    laneSettings(key, { weight, asideMs } = { weight: 1, asideMs: 0 }) {
      const path = headsOfText(key);
      const isHead = seen.has(key);
      const above = isHead ? path : path.slice(0, -1);
      const within = above.reduce<LaneGroup | undefined>(
        (outer, head) => groupOf(head, outer),
        undefined,
      );
      const waits = path.map((text) => seen.get(text)?.asideMs ?? 0);
      return {
        within,
        weight: isHead ? 1 : weight,
        mostPerMs: isHead ? Infinity : perMsOf(key),
        fromMs: Math.max(asideMs, heldMs(key), ...waits),
      };
    },
  };
}
