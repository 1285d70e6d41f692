import { compilePolicy, type Policy } from "../../core/policy/policy.ts";
import { formatLimit, isLeased } from "../../core/limits/registry.ts";
import type { Limit } from "../../core/limits/rule.ts";
import { namedOf, type Key } from "../../core/key-path.ts";
import { PRIORITIES, RANKS, type Priority } from "../../core/input/options.ts";
import { scopesOfRejection } from "../../core/policy/per-key.ts";
import { causeOf, COOLING, PAUSED, type WakeReason } from "../../core/store.ts";
import { createMemoryBuckets } from "../../stores/memory/memory-store.ts";
import { termsOf } from "../../throttle/known-policy.ts";
import type { HeldSlot } from "../../throttle/slot/held-slots.ts";
import type { Group } from "../../throttle/waiting/group.ts";
import { openArrivals } from "./arrivals.ts";
import { createDownstream } from "./downstream.ts";
import { createEvents } from "./events.ts";
import { Histogram, type WaitSummary } from "./histogram.ts";
import {
  readSimulation,
  type ReadSimulation,
  type SimulateOptions,
  type SimulatedOutcome,
} from "./options.ts";
import { createRandom } from "./random.ts";
import { BUCKET, createReplica, ORIGIN_MS, type SimulatedCall } from "./replica.ts";
import { createSpacing } from "./spacing.ts";

/** What a simulation found. */
export interface Simulation {
  /** The number of calls that arrived. */
  readonly calls: number;
  /** The number of calls that started. */
  readonly started: number;
  /** The number of calls that still waited at the end. */
  readonly waiting: number;
  /** The number of calls that did not fit into a budget. */
  readonly refused: number;
  /** When the simulation ended, in ms. */
  readonly endMs: number;
  readonly waits: WaitSummary;
  readonly byPriority: Partial<Record<Priority, WaitSummary>>;
  /** The waits of each key, the most calls first. Calls without a key have no entry. */
  readonly byKey: readonly (WaitSummary & { readonly key: Key })[];
  /** What delayed calls, the most calls first. */
  readonly bindings: readonly { readonly binding: string; readonly calls: number }[];
  /** The limits that all keys share, and how much of each was used on average. 1 is all of it. */
  readonly limits: readonly { readonly limit: string; readonly used: number }[];
  /** The calls that the API refused, and the most calls that it got within one second. */
  readonly downstream: { readonly refusals: number; readonly worstSecond: number };
  /** The number of scripts that Redis would have run for draws. */
  readonly draws: number;
}

/** The shortest wait for which something is named that delayed the call, in ms beyond a round trip. */
const LEAST_DELAY_MS = 0.5;
/** The bounds for the time in which the rate grows back after a cooldown, as in `feedback.ts`. */
const [LEAST_RAMP_MS, MOST_RAMP_MS] = [1_000, 10_000];
const USUAL_COOLDOWN_MS = 1_000;

/**
 * Simulates a bucket in virtual time: it runs the scripts that Redis runs, and the line of each process.
 *
 * @throws {@link InvalidOptionError} when an option is invalid, or a call can never pass.
 */
export function simulate(options: SimulateOptions): Simulation {
  const given = readSimulation(options);
  const run = openRun({ ...given, policy: compilePolicy("simulate()", given.policy) });
  run.advance(Infinity);
  return run.found();
}

/** A simulation that runs in parts, so that a server can do other work in between. */
export interface Run {
  /** Runs up to this many steps. A step is an arrival, an event, or the work of one replica. Returns false at the end. */
  advance(steps: number): boolean;
  /** The simulated time, in ms. */
  readonly nowMs: number;
  /** Returns what the simulation has found so far. */
  found(): Simulation;
}

/** Prepares a simulation. The options are valid. */
export function openRun(given: Omit<ReadSimulation, "policy"> & { readonly policy: Policy }): Run {
  const { policy, replicas: count, roundTripMs, seed, untilMs, onCall } = given;
  const random = createRandom(seed);
  const events = createEvents();
  const cursor = openArrivals(given.arrivals, { seed: seed + 1, replicas: count });
  const downstream = createDownstream(given.downstream, createRandom(seed + 2));
  const { retryAfter = true } = given.downstream;
  let nowMs = 0;
  const buckets = createMemoryBuckets({ nowUs: () => (nowMs + ORIGIN_MS) * 1_000, publish });
  const replicas = Array.from({ length: count }, (_, index) =>
    createReplica(index, {
      policy,
      buckets,
      events,
      now: () => nowMs,
      roundTripMs,
      onLeave: (call, slot, atMs) => leave(index, call, slot, atMs),
      onRefuse: (call, atMs) => refuse(index, call, atMs),
    }),
  );

  const all = new Histogram();
  const byRank = PRIORITIES.map(() => new Histogram());
  const byKey = new Map<string, Histogram>();
  const bindings = new Map<string, number>();
  const spacing = createSpacing(policy.limits);
  const used = policy.limits.map(() => 0);
  const isOfLeases = policy.limits.map(isLeased);
  const names = new Map<Limit, string>();
  const outcome: { -readonly [Field in keyof SimulatedOutcome]: SimulatedOutcome[Field] } = {
    arrivedMs: 0,
    startedMs: 0,
    key: undefined,
    priority: "normal",
    replica: 0,
    binding: undefined,
    status: 200,
  };
  let calls = 0;
  let refused = 0;
  let refusals = 0;
  let second = 0;
  let callsOfSecond = 0;
  let worstSecond = 0;

  function publish(
    replica: string | undefined,
    _bucket: string,
    reason: WakeReason,
    key: string | undefined,
  ): void {
    for (const [index, each] of replicas.entries()) {
      if (replica !== undefined && replica !== `replica-${index}`) continue;
      events.add(nowMs + roundTripMs / 2, (atMs) => each.wake(reason, key, atMs));
    }
  }

  function leave(replica: number, call: SimulatedCall, slot: HeldSlot, atMs: number): void {
    const { group, key, priority, sinceMs } = call;
    const waitedMs = atMs - sinceMs;
    all.add(waitedMs);
    byRank[RANKS[priority]]!.add(waitedMs);
    if (key !== undefined) histogramOf(key).add(waitedMs);
    const binding = waitedMs > roundTripMs + LEAST_DELAY_MS ? bindingOf(group) : undefined;
    if (binding !== undefined) bindings.set(binding, (bindings.get(binding) ?? 0) + 1);
    spacing.add(group, atMs);
    const latencyMs = downstream.latencyMs();
    for (let index = 0; index < used.length; index++) {
      used[index]! += isOfLeases[index] ? latencyMs : group.callTerms.costs[index]!;
    }
    noteSecond(atMs);
    const refusedForMs = downstream.arrive(atMs);
    const status = refusedForMs > 0 ? 429 : 200;
    if (status === 429) {
      refusals += 1;
      const coolMs = retryAfter ? refusedForMs : USUAL_COOLDOWN_MS;
      events.add(atMs + latencyMs + roundTripMs / 2, () => coolDown(key, slot.slotUs, coolMs));
    }
    if (slot.lease > 0) hold(replica, slot.lease, group, atMs + latencyMs);
    if (onCall === undefined) return;
    outcome.binding = binding;
    outcome.status = status;
    report(replica, call, atMs);
  }

  function refuse(replica: number, call: SimulatedCall, atMs: number): void {
    refused += 1;
    if (onCall === undefined) return;
    outcome.binding = bindingOf(call.group);
    outcome.status = 402;
    report(replica, call, atMs);
  }

  function report(replica: number, { key, priority, sinceMs }: SimulatedCall, atMs: number): void {
    outcome.arrivedMs = sinceMs;
    outcome.startedMs = atMs;
    outcome.key = namedOf(key).key;
    outcome.priority = priority;
    outcome.replica = replica;
    onCall!(outcome);
  }

  /** Holds a call's lease until the call ends. */
  function hold(replica: number, lease: number, group: Group, endsMs: number): void {
    events.add(endsMs, (atMs) => replicas[replica]!.release(lease, group, atMs));
  }

  /** Cools the bucket or the key down, as a process does after a 429. */
  function coolDown(key: string | undefined, slotUs: number, coolMs: number): void {
    const rampMs = Math.min(Math.max(coolMs, LEAST_RAMP_MS), MOST_RAMP_MS);
    const [durationUs, rampUs] = [Math.ceil(coolMs * 1_000), rampMs * 1_000];
    const change = { do: "cool", durationUs, rampUs: Math.ceil(rampUs), slotUs } as const;
    for (const scope of scopesOfRejection(policy, key, { scope: undefined })) {
      buckets.steer({ bucket: BUCKET, terms: termsOf(policy, 0), scope, change });
    }
  }

  /** Names what delays the calls of a group, according to the latest reply. */
  function bindingOf(group: Group): string | undefined {
    const { bindsAt, callTerms } = group;
    if (bindsAt < 0) {
      const { cause } = causeOf(bindsAt);
      return cause === COOLING ? "cooldown" : cause === PAUSED ? "pause" : "reduced rate";
    }
    const index = bindsAt > 0 ? bindsAt - 1 : spacing.latestOf(group);
    const limit = callTerms.limits[index];
    return limit && nameOf(limit) + callTerms.whose[index]!.suffix;
  }

  function nameOf(limit: Limit): string {
    let name = names.get(limit);
    if (name === undefined) {
      name = formatLimit(limit);
      names.set(limit, name);
    }
    return name;
  }

  function histogramOf(key: string): Histogram {
    let found = byKey.get(key);
    if (found === undefined) {
      found = new Histogram();
      byKey.set(key, found);
    }
    return found;
  }

  function noteSecond(atMs: number): void {
    const current = Math.floor(atMs / 1_000);
    if (current !== second) callsOfSecond = 0;
    second = current;
    callsOfSecond += 1;
    worstSecond = Math.max(worstSecond, callsOfSecond);
  }

  function arrive(): void {
    const { replica } = cursor;
    const index = replica >= 0 ? replica : Math.floor(random() * count);
    const { key, cost, priority } = cursor;
    calls += 1;
    replicas[index]!.join({ key, cost, priority, nowMs });
    cursor.next();
  }

  /** Does the next step. Returns false if there is none. */
  function step(): boolean {
    let next: (typeof replicas)[number] | undefined;
    let replicaAtMs = Infinity;
    for (let index = 0; index < count; index++) {
      const each = replicas[index]!;
      const { nextAtMs } = each;
      if (nextAtMs < replicaAtMs) {
        replicaAtMs = nextAtMs;
        next = each;
      }
    }
    const { nextAtMs: eventAtMs } = events;
    const atMs = Math.min(cursor.atMs, eventAtMs, replicaAtMs);
    if (atMs === Infinity || atMs > untilMs) return false;
    nowMs = atMs;
    if (cursor.atMs === atMs) arrive();
    else if (eventAtMs === atMs) events.runNext();
    else next!.run(atMs);
    return true;
  }

  const found = (): Simulation => ({
    calls,
    started: all.calls,
    waiting: replicas.reduce((sum, each) => sum + each.waiting, 0),
    refused,
    endMs: nowMs,
    waits: all.summary(),
    byPriority: Object.fromEntries(
      PRIORITIES.map((each, rank) => [each, byRank[rank]!] as const)
        .filter(([, histogram]) => histogram.calls > 0)
        .map(([each, histogram]) => [each, histogram.summary()]),
    ),
    byKey: [...byKey]
      .map(([key, histogram]) => ({ key: namedOf(key).key!, ...histogram.summary() }))
      .sort((a, b) => b.calls - a.calls),
    bindings: [...bindings]
      .map(([binding, calls]) => ({ binding, calls }))
      .sort((a, b) => b.calls - a.calls),
    limits: policy.limits.map((limit, index) => ({
      limit: formatLimit(limit),
      used: used[index]! / allOf(limit, nowMs),
    })),
    downstream: { refusals, worstSecond },
    draws: replicas.reduce((sum, each) => sum + each.draws, 0),
  });

  return {
    advance(steps) {
      for (let left = steps; left > 0; left--) if (!step()) return false;
      return true;
    },
    get nowMs() {
      return nowMs;
    },
    found,
  };
}

/** Returns how much of a limit there was until `endMs`: units, or for a concurrency limit the ms of all its calls. */
function allOf(limit: Parameters<typeof formatLimit>[0], endMs: number): number {
  const { count, periodUs } = limit;
  return isLeased(limit) ? count * endMs : (count * endMs * 1_000) / periodUs;
}
