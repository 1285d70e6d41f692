import { RANKS, type Priority } from "../../core/input/options.ts";
import type { Policy } from "../../core/policy/policy.ts";
import {
  type DrawReply,
  type DrawRequest,
  type Granted,
  type WakeReason,
} from "../../core/store.ts";
import { HORIZON_US } from "../../core/policy/limit-makers.ts";
import type { MemoryBuckets } from "../../stores/memory/memory-store.ts";
import type { Cost } from "../../throttle/costs.ts";
import { termsOf } from "../../throttle/known-policy.ts";
import { slotCountOf, type HeldSlot } from "../../throttle/slot/held-slots.ts";
import type { SlotContext } from "../../throttle/slot/slot.ts";
import { createAskTimes, nextKeyCheckMs } from "../../throttle/waiting/ask-times.ts";
import { FAST_STEP_MS, limitHolding, takeCaller } from "../../throttle/waiting/dispatch.ts";
import {
  createSlotRequestCount,
  createWaitPositions,
  mostLeases,
  nextSlotRequests,
  type AskedSlots,
} from "../../throttle/waiting/draw-request.ts";
import { createGroupSchedule, type Arrival } from "../../throttle/waiting/group-schedule.ts";
import { createGroups, type Caller, type Group } from "../../throttle/waiting/group.ts";
import { createArrivals } from "../../throttle/waiting/waiting-call.ts";
import type { Events } from "./events.ts";

/** The name of the simulated bucket. */
export const BUCKET = "simulated";
/** The time on the bucket's clock at which the simulation begins, in ms: a Monday at midnight in UTC. */
export const ORIGIN_MS: number = Date.UTC(1970, 0, 5);
/** How much later than a round trip before its turn a replica asks, in ms: see `createReplyTimes`. */
const MARGIN_MS = 0.5;

/** A call in the line of a simulated replica. It has no promise, deadline or signal. */
export class SimulatedCall implements Caller {
  readonly priority: Priority;
  readonly key: string | undefined;
  readonly number: number;
  readonly sinceMs: number;
  queuedMs: number;
  group: Group;
  previous: Caller | undefined = undefined;
  next: Caller | undefined = undefined;
  round = 0;
  turns: Caller["turns"] = undefined;
  turnsWithin: Caller["turnsWithin"] = undefined;
  inheritedPriority: Priority | undefined = undefined;

  constructor(
    group: Group,
    at: Pick<SimulatedCall, "priority" | "key" | "number" | "sinceMs" | "queuedMs">,
  ) {
    this.group = group;
    this.priority = at.priority;
    this.key = at.key;
    this.number = at.number;
    this.sinceMs = at.sinceMs;
    this.queuedMs = at.queuedMs;
  }

  get patienceMs(): number {
    return Infinity;
  }

  get untilMs(): number {
    return Infinity;
  }

  get waitsForBudgets(): boolean {
    return false;
  }

  get isOfStartedJob(): boolean {
    return false;
  }

  // The simulation starts and refuses calls itself.
  resolveWith(): void {}
  fail(): void {}
  refuse(): void {}
}

/** What a simulated replica needs from the simulation. */
export interface ReplicaContext {
  readonly policy: Policy;
  readonly buckets: MemoryBuckets;
  readonly events: Events;
  /** The simulated time, in ms. */
  readonly now: () => number;
  /** How long a request to Redis and its reply take together, in ms. */
  readonly roundTripMs: number;
  /** Called when a call starts. `bindsAt` is the number of the limit that delayed it, as in `Granted`. */
  readonly onLeave: (call: SimulatedCall, slot: HeldSlot, nowMs: number) => void;
  /** Called when a call does not fit into a budget. */
  readonly onRefuse: (call: SimulatedCall, nowMs: number) => void;
}

/** One process that draws from the bucket: its line, its slots and its requests. */
export interface Replica {
  /** The number of calls in the line. */
  readonly waiting: number;
  /** The number of draws so far. */
  readonly draws: number;
  /** When the replica next has something to do. Infinity if never. */
  readonly nextAtMs: number;
  run(nowMs: number): void;
  join(call: {
    readonly key: string | undefined;
    readonly cost: Cost | undefined;
    readonly priority: Priority;
    readonly nowMs: number;
  }): void;
  /** Releases the lease of a call that has ended. */
  release(lease: number, group: Group, nowMs: number): void;
  /** Receives a message of the store. */
  wake(reason: WakeReason, key: string | undefined, nowMs: number): void;
}

/** A request to the store on its way, or its reply. */
interface Flight {
  readonly request: DrawRequest;
  readonly asked: AskedSlots;
  /** The number of the request's first lease. */
  readonly lease: number;
  /** Undefined until the script has run. */
  reply: DrawReply | undefined;
  /** When the script runs, or the reply arrives. */
  dueMs: number;
}

const NO_LOOKUPS: ReadonlySet<Group> = new Set();

/**
 * Simulates the part of a bucket that runs in each process. It has the line, the schedule and the requests of a real
 * process (`throttle/waiting/`), and does what `pacer.ts` and `dispatch.ts` do, without promises and timers.
 */
export function createReplica(index: number, context: ReplicaContext): Replica {
  const { policy, buckets, events, now, roundTripMs, onLeave, onRefuse } = context;
  const asker = `replica-${index}`;
  const oneWayMs = roundTripMs / 2;
  const leadMs = Math.max(0, roundTripMs - MARGIN_MS);
  /** How far this replica's clock is ahead of the bucket's: replies arrive after one way. See `createBucketClock`. */
  const offsetMs = oneWayMs - ORIGIN_MS;
  const schedule = createGroupSchedule(now);
  const askTimes = createAskTimes(schedule.soonest, { leadMs });
  const groups = createGroups({ name: BUCKET } as SlotContext, () => policy);
  const groupsByCost = new Map<string, Group>();
  const waitPositions = createWaitPositions();
  const slotRequestCount = createSlotRequestCount();
  const queuedAtMs = createArrivals();
  const holding = new Set<Group>();
  let terms = termsOf(policy, 0);
  let drewUs = 0;
  let generation = 0;
  let lastSharedSlotMs = -Infinity;
  let nextLease = 1;
  let calls = 0;
  /** When the next slot is due, or the next request. */
  let alarmAtMs = Infinity;
  let flight: Flight | undefined;

  const bucketUs = (ms: number): number => Math.max(1, Math.floor((ms - offsetMs) * 1_000));

  function groupOf(key: string | undefined, cost: Cost | undefined): Group {
    if (cost === undefined || cost === 1) return groups.of({ key });
    const name = `${JSON.stringify(cost)} ${key ?? ""}`;
    let group = groupsByCost.get(name);
    if (group === undefined) {
      group = groups.of({ key, cost });
      groupsByCost.set(name, group);
    }
    return group;
  }

  function work(nowMs: number): void {
    dispatchDue(nowMs);
    let askAtMs = Infinity;
    if (flight === undefined) {
      askAtMs = askTimes.nextAtMs(nowMs, false, lastSharedSlotMs);
      if (nowMs >= askAtMs) ask(nowMs);
      if (flight !== undefined) askAtMs = Infinity;
    }
    alarmAtMs = Math.min(nextSlotMs(), askAtMs);
  }

  function nextSlotMs(): number {
    let nextAtMs = Infinity;
    for (const { line, held } of holding) {
      if (line.size > 0) nextAtMs = Math.min(nextAtMs, held.nextAtMs);
    }
    return nextAtMs;
  }

  function dispatchDue(nowMs: number): void {
    for (const group of holding) {
      const { line, held } = group;
      const before = held.size;
      while (line.size > 0 && held.nextAtMs <= nowMs) {
        const slot = held.take();
        replica.waiting -= 1;
        onLeave(takeCaller(group, slot) as SimulatedCall, slot, nowMs);
      }
      if (held.size === 0) holding.delete(group);
      if (held.size < before) schedule.update(group);
    }
  }

  function ask(nowMs: number): void {
    replica.draws += 1;
    askTimes.requestSent(nowMs);
    const at = {
      nowMs: nowMs + leadMs,
      bucketUs,
      most: slotRequestCount.most,
      isFair: schedule.areTurns,
    };
    const asked = nextSlotRequests(schedule, NO_LOOKUPS, waitPositions, at);
    const { slotRequests } = asked;
    const leases = mostLeases(terms.limits, slotRequests);
    const lease = nextLease;
    nextLease += leases;
    const request: DrawRequest = {
      bucket: BUCKET,
      asker,
      terms,
      slotRequests,
      horizonUs: HORIZON_US,
      drewUs,
      position: waitPositions.shared,
      lease,
      leases,
      isTry: false,
    };
    flight = { request, asked, lease, reply: undefined, dueMs: nowMs + oneWayMs };
  }

  /** Moves the request in flight on: its script runs, or its reply arrives. */
  function advance(nowMs: number): void {
    const { request, asked, lease, reply } = flight!;
    if (reply === undefined) {
      flight!.reply = buckets.draw(request);
      flight!.dueMs = nowMs + oneWayMs;
      return;
    }
    flight = undefined;
    receive(reply, asked, lease, nowMs);
  }

  function receive(reply: DrawReply, asked: AskedSlots, lease: number, nowMs: number): void {
    const { groups: askedGroups, slotRequests } = asked;
    drewUs = reply.nowUs;
    askTimes.replyReceived(
      reply,
      { arrivedMs: nowMs, offsetMs, isStale: false },
      firstInLine(reply, asked),
    );
    if (reply.generation !== generation) {
      forgetHeld(undefined, nowMs);
      waitPositions.forgetSharedTurn();
      schedule.deferNone();
    }
    generation = reply.generation;
    if (reply.version !== terms.version) terms = termsOf(policy, reply.version);
    if (reply.turnTags !== undefined) schedule.learnTurns(reply.turnTags, askedGroups);
    if (slotRequests.length > 1) {
      let granted = 0;
      let wanted = 0;
      for (const each of reply.granted) granted += slotCountOf(each);
      for (const each of slotRequests) wanted += each.wanted;
      slotRequestCount.granted(granted, wanted, 0);
    }
    let ownLease = lease;
    const deferred = new Set<Group>();
    for (let at = 0; at < reply.granted.length; at++) {
      const granted = reply.granted[at]!;
      const group = askedGroups[at]!;
      const { hasLeases, areNumbered } = group.callTerms;
      const firstLease = hasLeases ? (reply.turnTags?.firstLeases[at] ?? ownLease) : 0;
      if (areNumbered) ownLease += granted.slotsUs.length;
      const { wanted, rank } = slotRequests[at]!;
      take(group, granted, { firstLease, rank, wanted, isDeferred: deferred.has(group), nowMs });
      if (granted.notBeforeUs > 0) deferred.add(group);
    }
    waitPositions.shared = reply.position;
    for (const group of askedGroups) if (group.isIdle) schedule.deferUntil(group, 0);
  }

  function take(
    group: Group,
    granted: Granted,
    drawn: {
      readonly firstLease: number;
      readonly rank: number;
      readonly wanted: number;
      readonly isDeferred: boolean;
      readonly nowMs: number;
    },
  ): void {
    const { firstLease, rank, wanted, isDeferred, nowMs } = drawn;
    if (slotCountOf(granted) > 0) {
      group.held.add(granted, firstLease, offsetMs, rank);
      const { sharedStepMs, areDrains } = group.callTerms;
      if (areDrains && sharedStepMs > 0 && sharedStepMs <= FAST_STEP_MS) {
        lastSharedSlotMs = Math.max(lastSharedSlotMs, group.held.lastAtMs);
      }
      holding.add(group);
      schedule.served(group);
    }
    const bindsAt = limitHolding(group, granted, wanted);
    if (granted.spent !== undefined) refuseUnaffordable(group, granted, nowMs);
    if (!isDeferred) {
      const untilMs = keyTimeMs(granted, nowMs);
      schedule.answered(group, { untilMs, arrivedMs: nowMs, bindsAt });
    }
    for (let at = 0; at < group.scopes.length; at++)
      waitPositions.keep(group.scopes[at]!.key, granted.positions[at]!);
  }

  /** Refuses the calls that do not fit into a budget, unless calls wait for its next period. */
  function refuseUnaffordable(group: Group, { bindsAt }: Granted, nowMs: number): void {
    if (group.callTerms.limits[bindsAt - 1]!.budget?.onSpent !== "refuse") return;
    const { line, held } = group;
    let lacking = line.size - held.size;
    for (const caller of line.fromLast()) {
      if (lacking <= 0) break;
      lacking -= 1;
      line.remove(caller);
      replica.waiting -= 1;
      schedule.update(group);
      onRefuse(caller as SimulatedCall, nowMs);
    }
    askTimes.retryNow();
  }

  function keyTimeMs({ notBeforeUs }: Granted, nowMs: number): number {
    if (notBeforeUs === 0) return 0;
    if (notBeforeUs < Infinity) return notBeforeUs / 1_000 + offsetMs;
    return nextKeyCheckMs(nowMs, schedule.deferredGroups);
  }

  /** Drops the slots of one key or of all keys, because they are no longer valid. */
  function forgetHeld(key: string | undefined, nowMs: number): void {
    lastSharedSlotMs = -Infinity;
    for (const group of holding) {
      if (key !== undefined && !group.scopes.some((scope) => scope.key === key)) continue;
      for (const { lease } of group.held.takeLatest(Infinity)) release(lease, group, nowMs);
      holding.delete(group);
      schedule.update(group);
    }
  }

  function release(lease: number, group: Group, nowMs: number): void {
    if (lease === 0) return;
    const { scopes } = group;
    events.add(nowMs + oneWayMs, () =>
      buckets.release({ bucket: BUCKET, terms, scopes, asker, leases: [lease] }),
    );
  }

  /** Returns the first call that waits for its turn and not for its key. */
  function firstInLine(
    { granted }: DrawReply,
    { slotRequests, firsts }: AskedSlots,
  ): Arrival | undefined {
    const index = granted.findIndex(
      (each, at) => each.notBeforeUs === 0 && slotCountOf(each) < slotRequests[at]!.wanted,
    );
    return firsts[index];
  }

  function plan(): void {
    replica.nextAtMs = flight === undefined ? alarmAtMs : Math.min(alarmAtMs, flight.dueMs);
  }

  // The simulation reads these fields before each step, so none of them is a getter.
  const replica: { -readonly [Field in keyof Replica]: Replica[Field] } = {
    waiting: 0,
    draws: 0,
    nextAtMs: Infinity,
    run(nowMs) {
      if (flight !== undefined && flight.dueMs <= nowMs) advance(nowMs);
      work(nowMs);
      plan();
    },
    join({ key, cost, priority, nowMs }) {
      const group = groupOf(key, cost);
      calls += 1;
      replica.waiting += 1;
      const queuedMs = queuedAtMs(RANKS[priority], nowMs, group.callTerms.sharedStepMs);
      const call = new SimulatedCall(group, {
        priority,
        key,
        number: calls,
        sinceMs: nowMs,
        queuedMs,
      });
      group.line.push(call);
      group.newestSinceMs = nowMs;
      schedule.joined(call);
      // Calls that arrive together share a request.
      alarmAtMs = nowMs;
      plan();
    },
    release,
    wake(reason, key, nowMs) {
      if (reason === "change") forgetHeld(key, nowMs);
      if (key === undefined) {
        askTimes.retryNow();
        if (reason !== "lease") schedule.wakeAll();
      } else schedule.wake(key);
      alarmAtMs = nowMs;
      plan();
    },
  };
  return replica;
}
