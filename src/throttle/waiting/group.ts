import { InvalidOptionError } from "../../core/errors.ts";
import { isOfNames, namedOf, textOfScopes } from "../../core/key-path.ts";
import { PRIORITIES, RANKS } from "../../core/input/options.ts";
import { scopesOf, ownersOfLimits } from "../../core/policy/per-key.ts";
import type { Policy } from "../../core/policy/policy.ts";
import { limitsOfCall, type KeyScope, type KeyTurns } from "../../core/store.ts";
import { turnsOfKey } from "../../core/policy/fair.ts";
import {
  memberOfKey,
  unknownMember,
  whyNoMember,
  type Member,
  type PoolPolicy,
} from "../../core/policy/pool.ts";
import type { TryCall } from "../call-options.ts";
import {
  callTermsOf,
  costsBeyond,
  costsOf,
  memberCostsOf,
  shadowCostsOf,
  textOfCosts,
  usesBudget,
  type CallCosts,
  type CallTerms,
} from "../costs.ts";
import type { SlotContext, Start } from "../slot/slot.ts";
import { createHeldSlots, type HeldSlot, type HeldSlots } from "../slot/held-slots.ts";
import { createLine, effectivePriority, type Line, type Waiter } from "./line.ts";

/** A pending call in the line of its group. */
export interface Caller extends Waiter {
  /** The caller's number in the order of arrival at the bucket. */
  readonly number: number;
  /**
   * The queue position, as a time of `performance.now()`. This is the caller's arrival time, or the
   * arrival time of the caller whose position it took over. Requests ask for earlier positions
   * first.
   */
  queuedMs: number;
  /** When this caller arrived, on `performance.now()`. */
  readonly sinceMs: number;
  /**
   * How long this caller waits for room in its key, in ms. If the room comes later, the call ends
   * with `NoRoomYet`.
   */
  readonly patienceMs: number;
  /** The call's deadline, on `performance.now()`. */
  readonly untilMs: number;
  /** True if the call waits when a budget is spent, because it belongs to a job. Other calls are rejected. */
  readonly waitsForBudgets: boolean;
  /** The call's key, encoded. */
  readonly key: string | undefined;
  /** True for the call of a started job. It goes before all other calls of its priority. */
  readonly isOfStartedJob: boolean;
  next: Caller | undefined;
  group: Group;
  /** Resolves the call with its slot. */
  resolveWith(slot: HeldSlot, start: Start): void;
  fail(error: unknown): void;
  /** Rejects the call because it cannot start before its deadline. The caller must have left the line. */
  refuse(): void;
}

/** The earliest start of a call, and the limit that delays it until then. */
export interface EarliestStart {
  /** The earliest start, on `performance.now()`. */
  readonly atMs: number;
  /** The number of the limit that delays the call, as in `Granted`. */
  readonly bindsAt: number;
}

/**
 * The part of one reply that is about a group of calls. It is invalid if its `epoch` is older than
 * the cache's epoch, because the cache was cleared since.
 */
export interface CachedReply extends EarliestStart {
  readonly arrivedMs: number;
  readonly epoch: number;
}

const NO_TAGS: readonly number[] = [];

/** The members of a pool as the calls of one group use them. */
export interface GroupPool {
  readonly pool: PoolPolicy;
  /** The member that the calls use, as in `SlotRequest`. */
  readonly home: number;
  /** The scopes, limits and costs of the calls that use a member, by its number from 1. */
  readonly groupOf: (member: number) => MemberGroup;
}

/** The calls of a group that use one member of a pool: the member is one more scope. */
export interface MemberGroup extends Pick<Group, "callTerms" | "keeper" | "name" | "scopes"> {
  readonly member: Member;
}

/**
 * The calls of one key and cost, which can use each other's slots. This is a class to save memory,
 * because each `tryDraw` may create a group. A group without waiting callers creates no line.
 */
export class Group {
  readonly callTerms: CallTerms;
  readonly keeper: SlotContext;
  /** Identifies the group among those of its bucket. */
  readonly id: string;
  /** Calls with the same name can use each other's returned slots. */
  readonly name: string;
  /** The levels of the calls' key that have their own limits, the widest first. */
  readonly scopes: readonly KeyScope[];
  /** How the key of these calls takes turns. If undefined, the calls start in the order of their arrival. */
  readonly turns: KeyTurns | undefined;
  readonly pool: GroupPool | undefined;
  /**
   * True if a caller with limited patience has ever joined. If false, no search through up to
   * 100,000 callers is needed.
   */
  hasImpatient = false;
  /**
   * The key, or the parent key, that last delayed the group's calls. Undefined if no key delayed
   * them. Only the pacer writes this field.
   */
  heldBy: string | undefined;
  /** A lower bound of the deadlines of this group's callers, on `performance.now()`. */
  leastUntilMs: number = Infinity;
  /** When the newest caller of this group arrived, on `performance.now()`. */
  newestSinceMs = 0;
  /** The latest reply about the group's calls. Only `early-rejection.ts` writes it. */
  cachedReply: CachedReply | undefined = undefined;
  #line: Line<Caller> | undefined;
  #held: HeldSlots | undefined;

  // Only `group-schedule.ts` writes the fields below. They stay valid while no caller waits, so
  // that the next caller still finds its key deferred.
  /**
   * The earliest time when a request may ask for this group, on `performance.now()`. 0 allows any
   * time.
   */
  readonly notBeforeMs: number = 0;
  /**
   * Callers up to this number go before this group, because they had arrived when the key deferred
   * this group.
   */
  readonly behind: number = 0;
  /** The order between groups that are otherwise equal: the lowest number goes first. */
  readonly queuedAt: number = 0;
  /** The part of the schedule that holds this group. `"nowhere"` while all its callers have slots. */
  readonly position: "free" | "deferred" | "nowhere" = "nowhere";
  /**
   * True if a change notification about the key arrived after the last request that included this
   * group.
   */
  readonly wasNotified: boolean = false;
  /** The number of the limit that last delayed the group's calls, as in `Granted`. */
  readonly bindsAt: number = 0;
  /** The tags of its next call in the virtual time of keys that take turns; none if it has not waited for a reply. */
  readonly turnTags: readonly number[] = NO_TAGS;
  /** Whether a reply gave these tags while its callers waited. */
  readonly keepsTags: boolean = false;

  constructor(
    callTerms: CallTerms,
    {
      keeper,
      id,
      name,
      scopes,
      turns,
      pool,
    }: Pick<Group, "keeper" | "name" | "scopes"> & Partial<Pick<Group, "id" | "turns" | "pool">>,
  ) {
    this.callTerms = callTerms;
    this.keeper = keeper;
    this.name = name;
    this.id = id ?? name;
    this.scopes = scopes;
    this.turns = turns;
    this.pool = pool;
  }

  /** The scopes, limits and costs of the call that uses a slot. */
  of({ member }: Pick<HeldSlot, "member">): Group | MemberGroup {
    return this.pool === undefined ? this : this.pool.groupOf(member);
  }

  /** The key of the narrowest level with limits. Undefined if there is none. */
  get limitedKey(): string | undefined {
    return this.scopes.at(-1)?.key;
  }

  get line(): Line<Caller> {
    return (this.#line ??= createLine());
  }

  get held(): HeldSlots {
    return (this.#held ??= createHeldSlots());
  }

  /** True if the group has neither callers nor slots. */
  get isIdle(): boolean {
    return (this.#line?.size ?? 0) === 0 && (this.#held?.size ?? 0) === 0;
  }

  /** Frees the memory that only waiting callers need. */
  dropLine(): void {
    this.#line = undefined;
    this.#held = undefined;
  }
}

/** Callers of one group and one priority that have no slot yet. */
export interface Unserved {
  readonly group: Group;
  readonly rank: number;
  /** The number of the first caller without a slot, or a lower number. */
  readonly number: number;
  readonly wanted: number;
  /**
   * When the first, second and last caller without a slot joined the queue, on `performance.now()`.
   */
  readonly sinceMs: number;
  readonly nextSinceMs: number;
  readonly lastSinceMs: number;
  /** The first caller without a slot. Undefined if it would take too long to find. */
  readonly first: Caller | undefined;
}

/**
 * Returns the number of callers with a slot, by priority. If a caller with a slot stops waiting,
 * the slot serves another caller.
 */
export function servedOf({ line, held }: Group): number[] {
  const served: number[] = [];
  let spare = held.size;
  for (let rank = 0; rank < PRIORITIES.length; rank++) {
    const own = Math.min(held.sizeOf(rank), line.sizeOf(rank));
    served.push(own);
    spare -= own;
  }
  for (let rank = 0; spare > 0 && rank < PRIORITIES.length; rank++) {
    const more = Math.min(spare, line.sizeOf(rank) - served[rank]!);
    served[rank]! += more;
    spare -= more;
  }
  return served;
}

/**
 * Returns true if all callers that go before this caller have a slot. The caller must be the last
 * one of its priority.
 */
export function isFirstUnserved(caller: Caller): boolean {
  const { group } = caller;
  const served = servedOf(group);
  let lacking = 0;
  for (let rank = 0; rank <= RANKS[effectivePriority(caller)]; rank++) {
    lacking += group.line.sizeOf(rank) - served[rank]!;
  }
  return lacking === 1;
}

/**
 * The maximum number of callers that a search passes one by one. With more callers, their arrival
 * times are estimated as evenly spaced, because passing them one by one would take too long.
 */
export const MOST_PASSED = 100;

/** Returns the callers without a slot, grouped by priority, the most urgent first. */
export function unservedByPriority(group: Group): Unserved[] {
  const { line } = group;
  const slotRequests: Unserved[] = [];
  const allServed = servedOf(group);
  for (let rank = 0; rank < allServed.length; rank++) {
    const served = allServed[rank]!;
    const waiting = line.sizeOf(rank);
    const wanted = waiting - served;
    if (wanted === 0) continue;
    const lastSinceMs = line.lastOf(rank)!.queuedMs;
    let caller = line.firstOf(rank)!;
    const behind = (count: number): number =>
      caller.queuedMs + ((lastSinceMs - caller.queuedMs) * count) / waiting;
    let sinceMs = behind(served);
    let nextSinceMs = behind(served + 1);
    let first: Caller | undefined;
    if (served <= MOST_PASSED) {
      for (let passed = 0; passed < served; passed++) caller = caller.next as Caller;
      sinceMs = caller.queuedMs;
      nextSinceMs = (caller.next ?? caller).queuedMs;
      first = caller;
    }
    const { number } = caller;
    slotRequests.push({ group, rank, number, wanted, sinceMs, nextSinceMs, lastSinceMs, first });
  }
  return slotRequests;
}

/** Callers that arrive within this time count as one arrival. */
const TOGETHER_MS = 10;
/**
 * The maximum number of callers that one request covers. Further callers come with the next
 * request.
 */
const MOST_LOOKED_AT = 1_000;

/**
 * Like `unservedByPriority`, but groups callers by arrival. Callers of several groups then go in
 * the order of their arrival.
 */
export function unservedInOrder(group: Group, most: number): Unserved[] {
  const served = servedOf(group);
  const runs: Unserved[] = [];
  let run: { -readonly [Field in keyof Unserved]: Unserved[Field] } | undefined;
  let looked = 0;
  for (const { rank, caller } of group.line.fromFirst()) {
    served[rank]! -= 1;
    if (served[rank]! >= 0) continue;
    looked += 1;
    if (looked > MOST_LOOKED_AT) break;
    const { queuedMs: sinceMs, number } = caller;
    // Because lanes take turns, a caller may go before callers that arrived earlier. The turn
    // decides, not the arrival.
    if (run?.rank === rank && sinceMs < run.sinceMs + TOGETHER_MS) {
      run.wanted += 1;
      run.lastSinceMs = Math.max(run.lastSinceMs, sinceMs);
      run.nextSinceMs = run.lastSinceMs;
      continue;
    }
    if (runs.length === most) break;
    const since = { sinceMs, nextSinceMs: sinceMs, lastSinceMs: sinceMs };
    run = { group, rank, number, wanted: 1, first: undefined, ...since };
    runs.push(run);
  }
  return runs;
}

/** Returns true if this key limits the calls of a group. */
export function isOfKey({ scopes }: Pick<Group, "scopes">, key: string): boolean {
  return scopes.some((scope) => scope.key === key);
}

/** Returns true if two lists of scopes have the same limits. Their keys may differ. */
export function haveSameLimits(a: readonly KeyScope[], b: readonly KeyScope[]): boolean {
  return a.length === b.length && a.every(({ limits }, index) => limits === b[index]!.limits);
}

function haveLimits(scopes: readonly KeyScope[], { scopeLimits }: CallTerms): boolean {
  return (
    scopes.length === scopeLimits.length &&
    scopes.every(({ limits }, index) => limits === scopeLimits[index])
  );
}

/**
 * Returns the cost of a group's calls under each limit of another group. The cost is 0 under limits
 * of keys that only the other group has.
 */
export function costsUnder(
  scopes: readonly KeyScope[],
  { scopes: own, callTerms: { shared, costs } }: Pick<Group, "scopes" | "callTerms">,
): number[] {
  const under = costs.slice(0, shared.length);
  for (const { key, limits } of scopes) {
    let after = shared.length;
    const found = own.find((scope) => {
      if (scope.key === key) return true;
      after += scope.limits.length;
      return false;
    });
    const isSame = found?.limits === limits;
    under.push(...limits.map((_, index) => (isSame ? costs[after + index]! : 0)));
  }
  return under;
}

/** Calls without a key take turns as if they had one common key. No key has this text. */
export const WITHOUT_KEY: KeyTurns = Object.freeze({
  names: "\u0001",
  weights: [1],
  isPending: false,
  floorUs: 0,
  criticalPerMille: 900,
});

/** What identifies a group. */
interface GroupOptions extends TryCall {
  /** True if the call settles its cost. Under a budget, the estimate is then only reserved. */
  readonly settles?: boolean | undefined;
  /**
   * The earlier draw for the same call. The new draw only takes the cost beyond that, and no lease.
   */
  readonly beyond?: TryCall | undefined;
  /** The weights that the queue of a job gives to each level of its key, the widest first. */
  readonly laneWeights?: readonly number[] | undefined;
  /** The name of the only member of a pool that the call uses. */
  readonly member?: string | undefined;
}

/**
 * The groups of one bucket. Calls with the same key and cost are interchangeable and share a group.
 */
export interface Groups {
  /**
   * Returns the group of a call.
   *
   * @throws {@link InvalidOptionError} when a unit or a tier is unknown, or when all limits of the
   * bucket are per key and the call has no key.
   * @throws {@link CostTooLargeError} when the call could never pass.
   */
  of(options: GroupOptions): Group;
  /**
   * Returns the group of a call that does not wait. The group may be a one-off group, because no
   * other call needs to find it.
   */
  ofTry(options: TryCall): Group;
  /** Forgets all groups, because another policy is active. */
  clear(): void;
}

/** The minimum number of groups before idle groups are removed. */
const LEAST_SWEPT = 1_000;
/**
 * With more idle groups than this, idle groups are removed. Fewer are kept, because finding a group
 * is cheaper than creating one.
 */
const MOST_IDLE = 10_000;

/** The maximum number of cached terms. There is one entry for each combination of tiers. */
const MOST_CACHED_TERMS = 8;

export function createGroups(
  keeper: SlotContext,
  policy: () => Policy,
  usesMember: (name: string) => boolean = () => true,
): Groups {
  const { name: bucket } = keeper;
  const groups = new Map<string, Group>();
  const byKey = new Map<string, Group>();
  let plain: Group | undefined;
  /**
   * Cached terms of calls with a key and no cost. Most keys have the same limits and share an
   * entry.
   */
  const cachedTerms: CallTerms[] = [];
  let sweepAt = LEAST_SWEPT;

  function forgetIdle(): void {
    const idle = [...groups.values()].filter(({ isIdle }) => isIdle);
    for (const group of idle) group.dropLine();
    const busy = groups.size - idle.length;
    if (idle.length > MOST_IDLE) {
      byKey.clear();
      for (const { id } of idle) groups.delete(id);
    }
    // Waits before the next sweep, because sweeping for each new group would cost more than keeping
    // idle groups.
    sweepAt = groups.size + Math.max(LEAST_SWEPT, busy);
  }

  /** Finds or creates the group of a call. A one-off group is not stored. */
  function find(options: GroupOptions, isOneOff: boolean = false): Group {
    const { key, cost, beyond, settles, laneWeights, member } = options;
    const scopes = scopesOf(policy(), key, `bucket("${bucket}")`);
    const { limits, shadows, perKey, pool } = policy();
    const count = scopes.length + limits.length + shadows.length;
    if (count === 0 && pool === undefined) throw noLimitError(key, perKey);
    const isPlain = cost === undefined && beyond === undefined && scopes.length > 0 && !pool;
    const usesCache = isPlain && settles !== true;
    const known = usesCache ? cachedTerms.find((terms) => haveLimits(scopes, terms)) : undefined;
    const costs = known ?? costsFor(scopes, { cost, beyond, member });
    // A key may contain spaces and digits, so a colon marks the end of the costs.
    const ofMembers = pool?.members.flatMap((each) => each.limits) ?? [];
    const limitsOfOne = known === undefined &&
      settles === true && [...limitsOfCall(limits, scopes), ...ofMembers];
    const reserves = limitsOfOne && usesBudget(limitsOfOne, costs.costs);
    const limited = textOfScopes(scopes.map((scope) => scope.key));
    const home = pool === undefined ? 0 : homeOf(pool, key, member);
    const costText = `${textOfCosts(costs)}${reserves ? " reserved" : ""}`;
    const name = `${costText}:${limited}`;
    const atHome = home === 0 ? "" : ` @${home}`;
    const ofTurns = `${costText} ${laneWeights?.join() ?? ""}${atHome}:${key ?? ""}`;
    const id = takesTurns() ? ofTurns : `${costText}${atHome}:${limited}`;
    const found = isOneOff ? undefined : groups.get(id);
    // A stored group is only used if its limits are unchanged, because the limits of a tier may
    // have changed.
    if (found !== undefined && haveSameLimits(found.scopes, scopes)) return found;
    const callTerms = known ?? termsOf(scopes, costs, { settles, member });
    if (usesCache && known === undefined && cachedTerms.length < MOST_CACHED_TERMS)
      cachedTerms.push(callTerms);
    const turns = turnsOf(key, costs.costs, laneWeights);
    const common = { keeper, id, name, scopes, turns };
    const group = new Group(callTerms, {
      ...common,
      ...(pool && { pool: groupPool({ pool, home, callTerms, ...common }, settles) }),
    });
    return isOneOff ? group : add(group);
  }

  /** Returns the member that a call uses, as in `SlotRequest`. */
  function homeOf(pool: PoolPolicy, key: string | undefined, member: string | undefined): number {
    if (member === undefined) {
      return pool.stickyUs === undefined || key === undefined ? 0 : memberOfKey(pool, key) + 1;
    }
    const names = pool.members.map(({ name }) => name);
    const index = names.indexOf(member);
    if (index >= 0) return -index - 1;
    const where = `pool("${bucket}")`;
    const remedy = unknownMember(member, names);
    throw new InvalidOptionError({ where, option: "member", value: member, remedy });
  }

  function groupPool(
    of: Pick<Group, "callTerms" | "keeper" | "name" | "scopes"> & {
      pool: PoolPolicy;
      home: number;
    },
    settles: boolean | undefined,
  ): GroupPool {
    const { pool, home, callTerms, keeper, name, scopes } = of;
    const { costs, scopeLimits } = callTerms;
    const members: MemberGroup[] = [];
    const ownCount = limitsOfCall(callTerms.shared, scopes).length;

    function create(number: number): MemberGroup {
      const member = pool.members[number - 1]!;
      const after = pool.members.slice(0, number - 1).flatMap((each) => each.limits).length;
      const first = ownCount + after;
      const ofMember = costs.slice(first, first + member.limits.length);
      const withMember = [...scopes, member.scope];
      const terms = callTermsOf({
        ...callTerms,
        scopeLimits: [...scopeLimits, member.limits],
        memberLimits: [],
        costs: [...costs.slice(0, ownCount), ...ofMember],
        whose: ownersOfLimits(policy(), withMember),
        settles,
      });
      return { callTerms: terms, keeper, name: `${name} @${number}`, scopes: withMember, member };
    }

    return { pool, home, groupOf: (number) => (members[number] ??= create(number)) };
  }

  /** Returns true if keys take turns at limits that they share. */
  function takesTurns(): boolean {
    const { limits, fair, pool } = policy();
    return fair !== undefined && (limits.length > 0 || pool !== undefined);
  }

  function turnsOf(
    key: string | undefined,
    costs: readonly number[],
    laneWeights: GroupOptions["laneWeights"],
  ): KeyTurns | undefined {
    const { fair } = policy();
    if (!takesTurns() || fair === undefined) return undefined;
    if (key === undefined) return { ...WITHOUT_KEY, criticalPerMille: fair.criticalPerMille };
    return turnsOfKey(fair, { key, costs, laneWeights });
  }

  function termsOf(
    scopes: readonly KeyScope[],
    costs: CallCosts,
    { settles, member: only }: Pick<GroupOptions, "settles" | "member">,
  ): CallTerms {
    const { limits: shared, text, pool } = policy();
    const scopeLimits = scopes.map(({ limits }) => limits);
    const members = pool?.members ?? [];
    const whose = ownersOfLimits(policy(), [...scopes, ...members.map(({ scope }) => scope)]);
    const memberLimits = members.map(({ limits }) => limits);
    const ofMembers = costs.costs.slice(shared.length + scopeLimits.flat().length);
    const whyClosed = pool && (() => whyNoMember(pool, { costs: ofMembers, only }, usesMember));
    const common = { shared, scopeLimits, memberLimits, whose, text, settles, whyClosed };
    return callTermsOf({ ...costs, ...common });
  }

  /**
   * Returns the cost of a call minus the cost that was already drawn for it. Nothing was drawn from
   * the limits of another key.
   */
  function costsFor(
    scopes: readonly KeyScope[],
    { cost, beyond, member }: GroupOptions,
  ): CallCosts {
    const { pool } = policy();
    const limits = limitsOfCall(policy().limits, scopes);
    const ofMembers = memberCostsOf(bucket, pool?.members ?? [], cost, member);
    const costs = costsOf(bucket, limits, cost).concat(ofMembers);
    const shadowCosts = shadowCostsOf(policy().shadows, cost, beyond);
    if (beyond === undefined) return { costs, shadowCosts };
    const before = costsUnder(scopes, find(beyond));
    return { costs: costsBeyond(before, costs, limits), shadowCosts };
  }

  /**
   * Returns the error for a call that no limit applies to. Such a call would never be slowed down.
   */
  function noLimitError(key: string | undefined, perKey: Policy["perKey"]): InvalidOptionError {
    const names = perKey?.names;
    const given = namedOf(key);
    const what = names === undefined ? "a key" : `keys by the names ${names.join(", ")}`;
    const remedy =
      key === undefined
        ? `all limits of the bucket are per key: give the call ${what}`
        : `no limit of the bucket holds for it: give the call ${names === undefined ? "a path with more names" : what}`;
    return new InvalidOptionError({
      where: `bucket("${bucket}")`,
      option: names === undefined ? "key" : "keys",
      value: given.keys ?? given.key,
      remedy,
    });
  }

  function add(group: Group): Group {
    if (groups.size >= sweepAt) forgetIdle();
    groups.set(group.id, group);
    return group;
  }

  /** Returns the group of calls with a key and no cost, if all keys have the same limits. */
  function findByKey(key: string): Group | undefined {
    const { perKey, pool } = policy();
    if (perKey === undefined && !takesTurns() && pool?.stickyUs === undefined)
      return isOfNames(key) ? undefined : (plain ??= find({}));
    if (perKey === undefined) return byKey.get(key);
    return perKey.isLocal ? undefined : byKey.get(key);
  }

  function of(options: GroupOptions): Group {
    const { key, cost, beyond, settles, laneWeights, member } = options;
    // The cached groups of a key do not reserve, so a call that settles its cost looks its group up.
    // They have the weights of the bucket.
    if (cost !== undefined || beyond !== undefined || settles === true) return find(options);
    if (laneWeights !== undefined && takesTurns()) return find(options);
    if (member !== undefined) return find(options);
    if (key === undefined) return (plain ??= find(options));
    const known = findByKey(key);
    if (known !== undefined) return known;
    const group = find(options);
    // Only a key with its own limits or its own turns is cached. Otherwise, many keys below the last
    // level with limits share one group.
    const isOwn = textOfScopes(group.scopes.map((scope) => scope.key)) === key;
    if (isOwn || group.pool?.home || group.turns !== undefined) byKey.set(key, group);
    return group;
  }

  return {
    of,
    ofTry(options) {
      // A key with names gets a one-off group, because most combinations of names would be removed
      // before they are used again.
      return options.key !== undefined && isOfNames(options.key)
        ? find(options, true)
        : of(options);
    },
    clear() {
      groups.clear();
      byKey.clear();
      plain = undefined;
      cachedTerms.length = 0;
    },
  };
}
