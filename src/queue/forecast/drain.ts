/** The lanes below one parent key. They share the turns and the limits of this parent. */
export interface LaneGroup {
  /** The group of the next parent key above. Undefined at the top. */
  readonly within?: LaneGroup | undefined;
  readonly weight: number;
  /** How many jobs of the whole group may start per ms under the parent's own limits. */
  readonly mostPerMs: number;
}

/** The pending jobs of one key, counted in calls. The forecast lets this number fall continuously, not call by call. */
export interface LaneLoad {
  /** The group of the key's parent. Undefined for a key with a single name. */
  readonly within?: LaneGroup | undefined;
  /** How many calls of cost 1 the jobs count as. */
  readonly calls: number;
  readonly weight: number;
  /** How many calls may start per ms under the key's own limits. */
  readonly mostPerMs: number;
  /** Ms until the first job may start. */
  readonly fromMs: number;
}

/** A period of the forecast: from `fromMs` on, `perMs` calls may start per ms, over all lanes. */
export interface Phase {
  readonly fromMs: number;
  readonly perMs: number;
}

/** The computed start times of a backlog. All times are in ms from now. Infinity means never. */
export interface Drain {
  /** When the last call of the whole backlog starts. */
  readonly lastMs: number;
  /** Returns when a job starts that has `before` calls ahead of it in its lane. */
  readonly startMs: (lane: number, before: number) => number;
  /** Returns how many calls of a lane have started by `ms`. */
  readonly servedBy: (lane: number, ms: number) => number;
}

/** Where the computation may stop. */
interface Until {
  readonly ms?: number;
  /** The index of a lane. The computation stops when this lane is empty. */
  readonly empty?: number;
}

/**
 * A period in which a lane drains at a constant rate. It begins at `fromMs`, after `served` calls, and drains `perMs`
 * calls per ms.
 */
interface Stretch {
  readonly fromMs: number;
  readonly served: number;
  readonly perMs: number;
}

/** Fractions of a call up to this size count as zero, because the computed numbers are not exact. */
const NEGLIGIBLE = 1e-6;

/**
 * Computes how lanes drain in parallel. The first phase begins now. Each lane drains in proportion to its weight, but
 * no faster than its key's limits allow. The other lanes share the rest. Fair queueing behaves like this once there are
 * more than a few jobs (generalized processor sharing; Parekh and Gallager, 1993). Computes nothing beyond `until`.
 */
export function drain(
  lanes: readonly LaneLoad[],
  phases: readonly Phase[],
  { ms: untilMs = Infinity, empty }: Until = {},
): Drain {
  const left = lanes.map(({ calls }) => calls);
  const stretches: Stretch[][] = lanes.map(() => []);
  const total = left.reduce((sum, calls) => sum + calls, 0);
  const ofAll: Stretch[] = [];
  const startMs: Drain["startMs"] = (lane, before) => reachedMs(stretches[lane] ?? [], before);
  let nowMs = 0;
  let phase = 0;
  let served = 0;

  for (;;) {
    const open = lanes.flatMap((_lane, index) => (left[index]! > NEGLIGIBLE ? [index] : []));
    if (open.length === 0 || nowMs >= untilMs) break;
    if (empty !== undefined && left[empty]! <= NEGLIGIBLE) break;
    const ready = open.filter((index) => lanes[index]!.fromMs <= nowMs);
    while (phase + 1 < phases.length && phases[phase + 1]!.fromMs <= nowMs) phase += 1;
    const rates = ratesOf(ready, lanes, phases[phase]!.perMs);
    let forMs = (phases[phase + 1]?.fromMs ?? Infinity) - nowMs;
    for (const index of open) {
      const { calls, fromMs } = lanes[index]!;
      const rate = rates.get(index) ?? 0;
      if (fromMs > nowMs) forMs = Math.min(forMs, fromMs - nowMs);
      else if (rate > 0) forMs = Math.min(forMs, left[index]! / rate);
      if (rate > 0)
        stretches[index]!.push({ fromMs: nowMs, served: calls - left[index]!, perMs: rate });
    }
    if (forMs === Infinity) return { lastMs: Infinity, startMs, servedBy };
    let perMs = 0;
    for (const [index, rate] of rates) {
      left[index]! -= rate * forMs;
      perMs += rate;
    }
    if (perMs > 0) ofAll.push({ fromMs: nowMs, served, perMs });
    served += perMs * forMs;
    nowMs += forMs;
  }

  function servedBy(lane: number, ms: number): number {
    const stretch = stretches[lane]?.findLast(({ fromMs }) => fromMs <= ms);
    if (stretch === undefined) return 0;
    const { fromMs, served, perMs: rate } = stretch;
    return Math.min(lanes[lane]!.calls, served + (ms - fromMs) * rate);
  }
  const lastMs = total === 0 ? 0 : reachedMs(ofAll, Math.max(0, total - 1));
  return { lastMs, startMs, servedBy };
}

/** Returns when a lane has served this many calls, in ms from now. */
function reachedMs(stretches: readonly Stretch[], calls: number): number {
  const stretch = stretches.findLast(({ served }) => served <= calls + NEGLIGIBLE);
  return stretch === undefined
    ? Infinity
    : stretch.fromMs + (calls - stretch.served) / stretch.perMs;
}

/** A lane, or a group of lanes that share the group's rate. */
interface Sharer {
  readonly weight: number;
  readonly mostPerMs: number;
  readonly lane?: number;
  readonly members?: Sharer[];
}

function ratesOf(
  ready: readonly number[],
  lanes: readonly LaneLoad[],
  perMs: number,
): ReadonlyMap<number, number> {
  const all: Sharer[] = [];
  const groups = new Map<LaneGroup, Sharer & { readonly members: Sharer[] }>();

  function membersOf(group: LaneGroup | undefined): Sharer[] {
    if (group === undefined) return all;
    const known = groups.get(group);
    if (known !== undefined) return known.members;
    const { weight, mostPerMs } = group;
    const sharer = { weight, mostPerMs, members: [] };
    groups.set(group, sharer);
    membersOf(group.within).push(sharer);
    return sharer.members;
  }

  for (const lane of ready) {
    const { weight, mostPerMs, within } = lanes[lane]!;
    membersOf(within).push({ weight, mostPerMs, lane });
  }
  const rates = new Map<number, number>();
  share(all, perMs, rates);
  return rates;
}

/**
 * Divides a rate between sharers by weight. A sharer that needs less than its share gets only what it needs, and the
 * other sharers divide the rest.
 */
function share(sharers: readonly Sharer[], perMs: number, rates: Map<number, number>): void {
  const needs = sharers.map((sharer) => ({ ...sharer, need: needOf(sharer) }));
  const byNeed = needs.toSorted((a, b) => a.need / a.weight - b.need / b.weight);
  let weights = byNeed.reduce((sum, { weight }) => sum + weight, 0);
  let rest = perMs;
  for (const { weight, need, lane, members } of byNeed) {
    const part = rest === Infinity ? Infinity : (rest * weight) / weights;
    const rate = Math.min(need, part);
    if (lane === undefined) share(members!, rate, rates);
    else rates.set(lane, rate);
    weights -= weight;
    rest -= rate;
  }
}

function needOf({ mostPerMs, members }: Sharer): number {
  if (members === undefined) return mostPerMs;
  return Math.min(
    mostPerMs,
    members.reduce((sum, member) => sum + needOf(member), 0),
  );
}
