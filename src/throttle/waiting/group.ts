import { InvalidOptionError } from "../../core/errors.ts";
import { isOfNames, namedOf, textOfScopes } from "../../core/key-path.ts";
import { PRIORITIES, RANKS } from "../../core/input/options.ts";
import { scopesOf, whoseLimits } from "../../core/policy/per-key.ts";
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
import { createLine, waitsWith, type Line, type Waiter } from "./line.ts";

/** One caller in the line of a group. */
export interface Caller extends Waiter {
  /** In the order in which callers came to the bucket. */
  readonly number: number;
  /** Since when it is in the line, or since when the caller was whose place it took, on `performance.now()`: who came first is asked for first. */
  queuedMs: number;
  /** When it came, on `performance.now()`. */
  readonly sinceMs: number;
  /** If its key's time is farther off than this, in ms, it does not wait. */
  readonly patienceMs: number;
  /** Until when it waits at most, on `performance.now()`. */
  readonly untilMs: number;
  /** Whether it is the call of a job that has started: it goes before all others of its priority. */
  readonly isUnderWay: boolean;
  next: Caller | undefined;
  group: Group;
  go(slot: HeldSlot, start: Start): void;
  fail(error: unknown): void;
  /** Fails because it cannot go before its time is over. It is in no line. */
  refuse(): void;
}

/** When calls can start at the earliest, and what decides that. */
export interface EarliestStart {
  /** On `performance.now()`. */
  readonly atMs: number;
  /** As in `Granted`. */
  readonly bindsAt: number;
}

/** What one reply told of calls; of an older epoch it is void. */
export interface CachedReply extends EarliestStart {
  readonly arrivedMs: number;
  readonly epoch: number;
}

/**
 * Calls of one key and cost: a slot of one of them is as good for another.
 * A class, since there may be one for each call that is tried; no caller waits in those, so they need no line.
 */
export class Group {
  readonly callTerms: CallTerms;
  readonly keeper: SlotContext;
  readonly name: string;
  /** What of the calls' key has limits of its own, the widest first. */
  readonly scopes: readonly KeyScope[];
  /** Whether callers came that may be sent away; a search for them among 100,000 others would take long. */
  hasImpatient = false;
  /** Which of the scopes held these calls back last, if one of them did; only the pacer writes it. */
  heldBy: string | undefined;
  /** Before this time no wait of its callers is over, on `performance.now()`. */
  leastUntilMs: number = Infinity;
  /** When the last of its callers came that have entered so far. */
  newestSinceMs = 0;
  /** What the last reply told of these calls; only `hopeless.ts` writes it. */
  cachedReply: CachedReply | undefined = undefined;
  #line: Line<Caller> | undefined;
  #held: HeldSlots | undefined;

  // Only `group-schedule.ts` writes the fields from here on. They hold while no caller waits, too: the next one finds
  // its key deferred.
  /** When the key may be asked about again, on `performance.now()`; 0: at any time. */
  readonly notBeforeMs: number = 0;
  /** Callers up to this number are asked for before these: they had come when the key deferred these calls. */
  readonly behind: number = 0;
  /** Decides between groups of which nothing else says which comes first. */
  readonly queuedAt: number = 0;
  /** Where it is in the schedule: "nowhere" while no caller of it lacks a slot. */
  readonly position: "free" | "deferred" | "nowhere" = "nowhere";
  /** Whether there was news of the key since it was asked about last. */
  readonly wasNotified: boolean = false;
  /** What held these calls back last, as a reply numbers it. */
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

  /** The narrowest key that has limits; undefined if there is none. */
  get limitedKey(): string | undefined {
    return this.scopes.at(-1)?.key;
  }

  get line(): Line<Caller> {
    return (this.#line ??= createLine());
  }

  get held(): HeldSlots {
    return (this.#held ??= createHeldSlots());
  }

  /** Whether no caller waits in it, and no slot is held. */
  get isIdle(): boolean {
    return (this.#line?.size ?? 0) === 0 && (this.#held?.size ?? 0) === 0;
  }

  /** Drops what only callers that wait need. */
  dropLine(): void {
    this.#line = undefined;
    this.#held = undefined;
  }
}

/** Callers of one priority that have no slot yet. */
export interface Lacking {
  readonly rank: number;
  /** The number of the first of them, or a lower one. */
  readonly number: number;
  readonly wanted: number;
  /** Since when the first, the second and the last of them wait, on `performance.now()`. */
  readonly sinceMs: number;
  readonly nextSinceMs: number;
  readonly lastSinceMs: number;
}

/** How many callers of each priority have slots; one that was drawn for a caller that has left serves another. */
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

/** Whether no caller without a slot comes before this one, the last of its priority. */
export function isFirstLacking(caller: Caller): boolean {
  const { group } = caller;
  const served = servedOf(group);
  let lacking = 0;
  for (let rank = 0; rank <= RANKS[waitsWith(caller)]; rank++) {
    lacking += group.line.sizeOf(rank) - served[rank]!;
  }
  return lacking === 1;
}

/** Walking past more callers that have slots would take long: they are taken to have come evenly. */
const MOST_PASSED = 100;

/** The callers that have no slot yet, by priority, the most urgent first. */
export function lacking(group: Group): Lacking[] {
  const { line } = group;
  const wishes: Lacking[] = [];
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
    wishes.push({ rank, number, wanted, sinceMs, nextSinceMs, lastSinceMs });
  }
  return wishes;
}

/** Callers that came within this time came together. */
const TOGETHER_MS = 10;
/** How many callers are looked at for one request; the others come with the next. */
const MOST_LOOKED_AT = 1_000;

/** As `lacking`, but those that came together: so callers of several groups go in the order in which they came. */
export function lackingInOrder(group: Group, most: number): Lacking[] {
  const served = servedOf(group);
  const runs: Lacking[] = [];
  let run: { -readonly [Field in keyof Lacking]: Lacking[Field] } | undefined;
  let looked = 0;
  for (const { rank, caller } of group.line.fromFirst()) {
    served[rank]! -= 1;
    if (served[rank]! >= 0) continue;
    looked += 1;
    if (looked > MOST_LOOKED_AT) break;
    const { queuedMs: sinceMs, number } = caller;
    // Lanes take turns, so one that came earlier may stand behind: its turn counts.
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

/** Whether a key is one of those that have limits for the calls of a group. */
export function isOfKey({ scopes }: Pick<Group, "scopes">, key: string): boolean {
  return scopes.some((scope) => scope.key === key);
}

/** Whether two lists of scopes have the same limits, for whatever keys. */
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
 * What calls of one group cost under each limit of the calls of another; 0 under limits of keys that only the other has.
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

/** What a group is found by. */
interface GroupOptions extends TryCall {
  /** What was drawn for the call before: its group takes what the call needs beyond that, and no lease. */
  readonly beyond?: TryCall | undefined;
}

/** The groups of one bucket: calls of one key and cost are interchangeable. */
export interface Groups {
  /**
   * @throws {@link InvalidOptionError} when a unit or a tier is unknown, or the bucket's limits are all per key and none is given.
   * @throws {@link CostTooLargeError} when the call could never pass.
   */
  of(options: GroupOptions): Group;
  /** The same of a call that does not wait: no other call has to find its group. */
  ofTry(options: TryCall): Group;
  /** Another policy is in force: all groups are made again. */
  clear(): void;
}

/** From this many groups on, idle ones drop their lines. */
const LEAST_SWEPT = 1_000;
/** If more than this are idle, they are forgotten; fewer are kept, since making a group costs a try more than finding it. */
const MOST_IDLE = 10_000;

/** How many kinds of calls are known by their keys alone: one for each way in which tiers come together. */
const MOST_USUAL = 8;

export function createGroups(keeper: SlotContext, policy: () => Policy): Groups {
  const { name: bucket } = keeper;
  const groups = new Map<string, Group>();
  const byKey = new Map<string, Group>();
  let plain: Group | undefined;
  /** The terms of calls that say no more than their keys. Most keys have the same limits. */
  const usual: CallTerms[] = [];
  let sweepAt = LEAST_SWEPT;

  function forgetIdle(): void {
    const idle = [...groups.values()].filter(({ isIdle }) => isIdle);
    for (const group of idle) group.dropLine();
    const busy = groups.size - idle.length;
    if (idle.length > MOST_IDLE) {
      byKey.clear();
      for (const { name } of idle) groups.delete(name);
    }
    // Looking at all groups for each new one would cost more than the idle ones do.
    sweepAt = groups.size + Math.max(LEAST_SWEPT, busy);
  }

  /** The group of a call; one that is seldom looked for again is not kept. */
  function find({ key, cost, beyond }: GroupOptions, isSeldom: boolean = false): Group {
    const scopes = scopesOf(policy(), key, `bucket("${bucket}")`);
    const { limits, shadows, perKey } = policy();
    if (scopes.length + limits.length + shadows.length === 0) throw unlimited(key, perKey);
    const isPlain = cost === undefined && beyond === undefined && scopes.length > 0;
    const known = isPlain ? usual.find((terms) => haveLimits(scopes, terms)) : undefined;
    const costs = known ?? costsFor(scopes, { cost, beyond });
    // A key may hold spaces and digits: the colon marks where the costs end.
    const name = `${textOfCosts(costs)}:${textOfScopes(scopes.map((scope) => scope.key))}`;
    const found = isSeldom ? undefined : groups.get(name);
    // A tier's limits may have changed since.
    if (found !== undefined && haveSameLimits(found.scopes, scopes)) return found;
    const callTerms = known ?? termsOf(scopes, costs);
    if (isPlain && known === undefined && usual.length < MOST_USUAL) usual.push(callTerms);
    const group = new Group(callTerms, { keeper, name, scopes });
    return isSeldom ? group : add(group);
  }

  function termsOf(scopes: readonly KeyScope[], costs: CallCosts): CallTerms {
    const { limits: shared, text } = policy();
    const scopeLimits = scopes.map(({ limits }) => limits);
    const whose = whoseLimits(policy(), scopes);
    return callTermsOf({ ...costs, shared, scopeLimits, whose, text });
  }

  /** What a call costs; if something was drawn for it, what it needs beyond that. Of the limits of another key nothing was. */
  function costsFor(scopes: readonly KeyScope[], { cost, beyond }: GroupOptions): CallCosts {
    const limits = limitsOfCall(policy().limits, scopes);
    const costs = costsOf(bucket, limits, cost);
    const shadowCosts = shadowCostsOf(policy().shadows, cost, beyond);
    if (beyond === undefined) return { costs, shadowCosts };
    const before = costsUnder(scopes, find(beyond));
    return { costs: costsBeyond(before, costs, limits), shadowCosts };
  }

  /** No limit holds for a call: it would go at once, whatever it is. */
  function unlimited(key: string | undefined, perKey: Policy["perKey"]): InvalidOptionError {
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

  /** The group of calls that say no more than their key, under limits that are the same for all keys. */
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
    // Below the last level with limits, many keys are of one group.
    if (textOfScopes(group.scopes.map((scope) => scope.key)) === key) byKey.set(key, group);
    return group;
  }

  return {
    of,
    ofTry(options) {
      // Keys side by side come in so many combinations that few come again before they would be forgotten.
      return options.key !== undefined && isOfNames(options.key)
        ? find(options, true)
        : of(options);
    },
    clear() {
      groups.clear();
      byKey.clear();
      plain = undefined;
      usual.length = 0;
    },
  };
}
