import { InvalidOptionError } from "../../core/errors.ts";
import { isOfNames, namedOf, textOfScopes } from "../../core/key-path.ts";
import { PRIORITIES, RANKS } from "../../core/input/options.ts";
import { scopesOf, ownersOfLimits } from "../../core/policy/per-key.ts";
import type { Policy } from "../../core/policy/policy.ts";
import { limitsOfCall, type KeyScope } from "../../core/store.ts";
import type { TryCall } from "../call-options.ts";
import {
  callTermsOf,
  costsBeyond,
  costsOf,
  shadowCostsOf,
  textOfCosts,
  type CallCosts,
  type CallTerms,
} from "../costs.ts";
import type { SlotContext, Start } from "../slot/slot.ts";
import { createHeldSlots, type HeldSlot, type HeldSlots } from "../slot/held-slots.ts";
import { createLine, effectivePriority, type Line, type Waiter } from "./line.ts";

/** A pending call in the line of its group. */
export interface Caller extends Waiter {
  /** Numbers callers by their arrival at the bucket. */
  readonly number: number;
  /**
   * The queue position, a time of `performance.now()`: when this caller arrived, or when the caller arrived whose position
   * it took over. Requests ask for earlier positions first.
   */
  queuedMs: number;
  /** When this caller arrived, on `performance.now()`. */
  readonly sinceMs: number;
  /** How long this caller waits for room in its key, in ms. If the room comes later, the call fails with `NoRoomYet`. */
  readonly patienceMs: number;
  /** The call's deadline, on `performance.now()`. */
  readonly untilMs: number;
  /** True for the call of a started job: it goes before all other calls of its priority. */
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
  /** On `performance.now()`. */
  readonly atMs: number;
  /** The number of that limit, as in `Granted`. */
  readonly bindsAt: number;
}

/** The part of one reply about a group of calls. Invalid if `epoch` is older than the cache's, which was cleared since. */
export interface CachedReply extends EarliestStart {
  readonly arrivedMs: number;
  readonly epoch: number;
}

/**
 * The calls of one key and cost, which can use each other's slots. This is a class to save memory, because each `tryDraw`
 * may create a group. Such a group has no waiting callers, so it creates no line.
 */
export class Group {
  readonly callTerms: CallTerms;
  readonly keeper: SlotContext;
  readonly name: string;
  /** The levels of the calls' key that have their own limits, the widest first. */
  readonly scopes: readonly KeyScope[];
  /** True if a caller with limited patience ever joined. Saves a search through up to 100,000 callers. */
  hasImpatient = false;
  /** The key, or head of it, that last delayed these calls. Undefined if none did. Only the pacer writes this field. */
  heldBy: string | undefined;
  /** A lower bound of its callers' deadlines, on `performance.now()`. */
  leastUntilMs: number = Infinity;
  /** When the newest caller of this group arrived, on `performance.now()`. */
  newestSinceMs = 0;
  /** The latest reply about these calls. Only `early-rejection.ts` writes it. */
  cachedReply: CachedReply | undefined = undefined;
  #line: Line<Caller> | undefined;
  #held: HeldSlots | undefined;

  // Only `group-schedule.ts` writes the fields below. They stay valid while no caller waits: the next caller finds its
  // key still deferred.
  /** The earliest time when a request may ask for this group, on `performance.now()`. 0: at any time. */
  readonly notBeforeMs: number = 0;
  /** Callers up to this number go first: they had arrived when the key deferred this group. */
  readonly behind: number = 0;
  /** Breaks ties between groups. */
  readonly queuedAt: number = 0;
  /** The part of the schedule that holds this group. `"nowhere"` while all its callers have slots. */
  readonly position: "free" | "deferred" | "nowhere" = "nowhere";
  /** True if a change notification about the key arrived after the last request that included it. */
  readonly wasNotified: boolean = false;
  /** The limit that held these calls back last, as numbered in replies. */
  readonly bindsAt: number = 0;

  constructor(
    callTerms: CallTerms,
    { keeper, name, scopes }: Pick<Group, "keeper" | "name" | "scopes">,
  ) {
    this.callTerms = callTerms;
    this.keeper = keeper;
    this.name = name;
    this.scopes = scopes;
  }

  /** The narrowest level with limits; undefined if there is none. */
  get limitedKey(): string | undefined {
    return this.scopes.at(-1)?.key;
  }

  get line(): Line<Caller> {
    return (this.#line ??= createLine());
  }

  get held(): HeldSlots {
    return (this.#held ??= createHeldSlots());
  }

  /** True if it has neither callers nor slots. */
  get isIdle(): boolean {
    return (this.#line?.size ?? 0) === 0 && (this.#held?.size ?? 0) === 0;
  }

  /** Frees what only waiting callers need. */
  dropLine(): void {
    this.#line = undefined;
    this.#held = undefined;
  }
}

/** Callers of one priority that have no slot yet. */
export interface Unserved {
  readonly rank: number;
  /** The number of the first such caller, or a lower number. */
  readonly number: number;
  readonly wanted: number;
  /** When the first, second and last such caller joined the queue, on `performance.now()`. */
  readonly sinceMs: number;
  readonly nextSinceMs: number;
  readonly lastSinceMs: number;
}

/** The number of callers with a slot, by priority. A slot whose caller has left serves another caller. */
export function servedOf({ line, held }: Group): number[] {
  const ranks = [...PRIORITIES.keys()];
  const spares = ranks.map((rank) => Math.max(0, held.sizeOf(rank) - line.sizeOf(rank)));
  let spare = spares.reduce((sum, each) => sum + each, 0);
  return ranks.map((rank) => {
    const own = Math.min(held.sizeOf(rank), line.sizeOf(rank));
    const more = Math.min(spare, line.sizeOf(rank) - own);
    spare -= more;
    return own + more;
  });
}

/** True if all callers that go before this one have a slot. The caller must be the last one of its priority. */
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
 * The most callers that a search steps over one by one. With more callers, it estimates their arrival times as evenly
 * spaced, because stepping would take too long.
 */
const MOST_PASSED = 100;

/** The callers without a slot, grouped by priority, the most urgent first. */
export function unservedByPriority(group: Group): Unserved[] {
  const { line } = group;
  const slotRequests: Unserved[] = [];
  for (const [rank, served] of servedOf(group).entries()) {
    const waiting = line.sizeOf(rank);
    const wanted = waiting - served;
    if (wanted === 0) continue;
    const lastSinceMs = line.lastOf(rank)!.queuedMs;
    let caller = line.firstOf(rank)!;
    const behind = (count: number): number =>
      caller.queuedMs + ((lastSinceMs - caller.queuedMs) * count) / waiting;
    let sinceMs = behind(served);
    let nextSinceMs = behind(served + 1);
    if (served <= MOST_PASSED) {
      for (let passed = 0; passed < served; passed++) caller = caller.next as Caller;
      sinceMs = caller.queuedMs;
      nextSinceMs = ((caller.next as Caller | undefined) ?? caller).queuedMs;
    }
    const { number } = caller;
    slotRequests.push({ rank, number, wanted, sinceMs, nextSinceMs, lastSinceMs });
  }
  return slotRequests;
}

/** Callers that arrive within this time count as together. */
const TOGETHER_MS = 10;
/** The most callers that one request covers; the others come with the next one. */
const MOST_LOOKED_AT = 1_000;

/**
 * Like `unservedByPriority`, but grouped by arrival, so that callers of several groups go in the order of their
 * arrival.
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
    // Lanes take turns, so a caller may have a later position than one that arrived after it: the turn decides.
    if (run?.rank === rank && sinceMs < run.sinceMs + TOGETHER_MS) {
      run.wanted += 1;
      run.lastSinceMs = Math.max(run.lastSinceMs, sinceMs);
      run.nextSinceMs = run.lastSinceMs;
      continue;
    }
    if (runs.length === most) break;
    run = { rank, number, wanted: 1, sinceMs, nextSinceMs: sinceMs, lastSinceMs: sinceMs };
    runs.push(run);
  }
  return runs;
}

/** True if the calls of a group are limited by this key. */
export function isOfKey({ scopes }: Pick<Group, "scopes">, key: string): boolean {
  return scopes.some((scope) => scope.key === key);
}

/** True if two lists of scopes have the same limits; the keys may differ. */
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
 * The cost of a group's calls under each limit of another group; 0 under limits of keys that only the other group has.
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

/** What identifies a group. */
interface GroupOptions extends TryCall {
  /** What was drawn for the call before. Its group draws only what the call needs beyond that, and no lease. */
  readonly beyond?: TryCall | undefined;
}

/** The groups of one bucket: calls of one key and cost are interchangeable. */
export interface Groups {
  /**
   * @throws {@link InvalidOptionError} when a unit or a tier is unknown, or the bucket's limits are all per key and none is given.
   * @throws {@link CostTooLargeError} when the call could never pass.
   */
  of(options: GroupOptions): Group;
  /** The group of a call that does not wait, so that no other call needs to find the group. */
  ofTry(options: TryCall): Group;
  /** Forgets all groups, because another policy is in force. */
  clear(): void;
}

/** The number of groups from which idle ones are swept. */
const LEAST_SWEPT = 1_000;
/**
 * Above this number of idle groups, they are forgotten. Fewer are kept, since finding a group is cheaper than making
 * one.
 */
const MOST_IDLE = 10_000;

/** The most kinds of calls whose terms are cached by their scopes: one for each combination of tiers. */
const MOST_CACHED_TERMS = 8;

export function createGroups(keeper: SlotContext, policy: () => Policy): Groups {
  const { name: bucket } = keeper;
  const groups = new Map<string, Group>();
  const byKey = new Map<string, Group>();
  let plain: Group | undefined;
  /** Cached terms of calls with a key and no cost; most keys have the same limits. */
  const cachedTerms: CallTerms[] = [];
  let sweepAt = LEAST_SWEPT;

  function forgetIdle(): void {
    const idle = [...groups.values()].filter(({ isIdle }) => isIdle);
    for (const group of idle) group.dropLine();
    const busy = groups.size - idle.length;
    if (idle.length > MOST_IDLE) {
      byKey.clear();
      for (const { name } of idle) groups.delete(name);
    }
    // Sweeping for each new group would cost more than the idle groups do.
    sweepAt = groups.size + Math.max(LEAST_SWEPT, busy);
  }

  /** The group of a call. A one-off group is not kept. */
  function find({ key, cost, beyond }: GroupOptions, isOneOff: boolean = false): Group {
    const scopes = scopesOf(policy(), key, `bucket("${bucket}")`);
    const { limits, shadows, perKey } = policy();
    if (scopes.length + limits.length + shadows.length === 0) throw noLimitError(key, perKey);
    const isPlain = cost === undefined && beyond === undefined && scopes.length > 0;
    const known = isPlain ? cachedTerms.find((terms) => haveLimits(scopes, terms)) : undefined;
    const costs = known ?? costsFor(scopes, { cost, beyond });
    // A key may contain spaces and digits, so a colon marks the end of the costs.
    const name = `${textOfCosts(costs)}:${textOfScopes(scopes.map((scope) => scope.key))}`;
    const found = isOneOff ? undefined : groups.get(name);
    // The limits of a tier may have changed.
    if (found !== undefined && haveSameLimits(found.scopes, scopes)) return found;
    const callTerms = known ?? termsOf(scopes, costs);
    if (isPlain && known === undefined && cachedTerms.length < MOST_CACHED_TERMS)
      cachedTerms.push(callTerms);
    const group = new Group(callTerms, { keeper, name, scopes });
    return isOneOff ? group : add(group);
  }

  function termsOf(scopes: readonly KeyScope[], costs: CallCosts): CallTerms {
    const { limits: shared, text } = policy();
    const scopeLimits = scopes.map(({ limits }) => limits);
    const whose = ownersOfLimits(policy(), scopes);
    return callTermsOf({ ...costs, shared, scopeLimits, whose, text });
  }

  /** The cost of a call, minus what was drawn for it before. Nothing was drawn from the limits of another key. */
  function costsFor(scopes: readonly KeyScope[], { cost, beyond }: GroupOptions): CallCosts {
    const limits = limitsOfCall(policy().limits, scopes);
    const costs = costsOf(bucket, limits, cost);
    const shadowCosts = shadowCostsOf(policy().shadows, cost, beyond);
    if (beyond === undefined) return { costs, shadowCosts };
    const before = costsUnder(scopes, find(beyond));
    return { costs: costsBeyond(before, costs, limits), shadowCosts };
  }

  /** The error for a call that no limit covers: it would never be slowed down. */
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
    groups.set(group.name, group);
    return group;
  }

  /** The group of calls with a key and no cost, if all keys have the same limits. */
  function findByKey(key: string): Group | undefined {
    const { perKey } = policy();
    if (perKey === undefined) return isOfNames(key) ? undefined : (plain ??= find({}));
    return perKey.isLocal ? undefined : byKey.get(key);
  }

  function of(options: GroupOptions): Group {
    const { key, cost, beyond } = options;
    if (cost !== undefined || beyond !== undefined) return find(options);
    if (key === undefined) return (plain ??= find(options));
    const known = findByKey(key);
    if (known !== undefined) return known;
    const group = find(options);
    // Below the last level with limits, many keys share one group.
    if (textOfScopes(group.scopes.map((scope) => scope.key)) === key) byKey.set(key, group);
    return group;
  }

  return {
    of,
    ofTry(options) {
      // Most combinations of named keys would be forgotten before they come again.
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
