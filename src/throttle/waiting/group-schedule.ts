import { firstOfText } from "../../core/key-path.ts";
import { RANKS } from "../../core/input/options.ts";
import type { TurnTags } from "../../core/store.ts";
import {
  haveSameLimits,
  isFirstUnserved,
  servedOf,
  WITHOUT_KEY,
  type Caller,
  type Group,
} from "./group.ts";
import { effectivePriority } from "./line.ts";

/**
 * Orders the groups with waiting callers, and decides which groups the next request asks for. Only
 * this file writes the schedule fields of a group. Even with many waiting groups, each step
 * examines only a few of them.
 */
export interface GroupSchedule extends Iterable<Group> {
  /**
   * All waiting groups. With more than {@link MANY} groups, only two: the first free group, and the
   * deferred group whose time is nearest.
   */
  readonly soonest: SoonestGroups;
  /** True if keys take turns: calls with keys wait, or did so within the last minute. */
  readonly areTurns: boolean;
  /** The number of groups that are deferred by their key. */
  readonly deferredGroups: number;
  /** The number of callers without a slot whose key's time is in the future. */
  readonly deferredCallers: number;
  /**
   * Returns true if calls of this key wait. Calls of one key with different costs are in different
   * groups.
   */
  hasKey(key: string): boolean;
  /** Returns the waiting groups of this key. */
  ofKey(key: string): Iterable<Group>;
  /**
   * Returns up to `count` groups that may be asked for at `atMs`, in the order of their turns. If
   * there is none, returns the group whose time is nearest, and then other groups in rotation. This
   * detects changes if a notification was lost.
   */
  next(count: number, atMs: number): Group[];
  /** Call this when a caller has joined the line of its group. */
  joined(caller: Caller): void;
  /** Call this when the callers or slots of a group have changed. */
  update(group: Group): void;
  /**
   * Call this when a group has received slots. Other groups then go before it, unless priority or
   * arrival decides otherwise.
   */
  served(group: Group): void;
  /**
   * Call this when a reply states that a group may be asked for again at `untilMs`, and which limit
   * delays its calls. If `untilMs` is in the future, all callers that wait now go before this
   * group.
   */
  answered(
    group: Group,
    reply: { readonly untilMs: number; readonly arrivedMs: number; readonly bindsAt: number },
  ): void;
  /** Stores, from a reply, when the next calls of these groups start in virtual time. */
  learnTurns(tags: TurnTags, groups: readonly Group[]): void;
  /** Sets the earliest time to ask for a group, on `performance.now()`. 0 allows any time. */
  deferUntil(group: Group, untilMs: number): void;
  /** Allows all groups to be asked for at any time. */
  deferNone(): void;
  /**
   * Call this when a notification about a key arrives. The key's groups are asked for as if the key
   * had never deferred them.
   */
  wake(key: string): void;
  /**
   * Call this when a notification about all keys arrives. Groups that were deferred still go after
   * all other groups.
   */
  wakeAll(): void;
  clear(): void;
}

export interface SoonestGroups extends Iterable<Group> {
  /** The number of waiting groups. */
  readonly size: number;
}

type Scheduled =
  | "notBeforeMs"
  | "behind"
  | "queuedAt"
  | "position"
  | "wasNotified"
  | "bindsAt"
  | "turnTags"
  | "keepsTags";

/**
 * Returns the group with write access to the schedule fields, which are read-only for all other
 * files.
 */
function writable(group: Group): { -readonly [Field in Scheduled]: Group[Field] } {
  return group;
}

/** How long calls without a key take turns with those of keys after the last of these. */
const TURNS_KEPT_MS = 60_000;

/**
 * With more waiting groups than this, requests are not gathered per group, and only a few groups
 * are examined.
 */
export const MANY = 200;

/** `now` is the clock of all times here. Defaults to `performance.now()`; simulations pass their own time. */
export function createGroupSchedule(now: () => number = () => performance.now()): GroupSchedule {
  const all = new Set<Group>();
  const byKey = new Map<string, Set<Group>>();
  /**
   * Every group that has a caller without a slot is in exactly one of the heaps `free` and
   * `deferred`.
   */
  const free = createHeap(comesBefore);
  const deferred = createHeap((a: Group, b: Group) => a.notBeforeMs < b.notBeforeMs);
  /** The free groups of each key with a floor, ordered by when they were last asked for. */
  const withFloor = new Map<string, Set<Group>>();
  /** The deferred groups, ordered by when they were last asked for. */
  const leastRecentlyAsked = new Set<Group>();
  /** Groups that are deferred until this time or earlier count as free. */
  let freeUntilMs = 0;
  let lastQueuedAt = 0;
  /** The time until which keys take turns, on `performance.now()`. */
  let turnsUntilMs = 0;
  /** The virtual time of the turns in the latest reply. */
  let virtualNow = 0;
  /** The number of the newest caller. */
  let newest = 0;

  function add(group: Group): void {
    all.add(group);
    writable(group).queuedAt = lastQueuedAt += 1;
    if (group.turns !== undefined && group.turns.names !== WITHOUT_KEY.names) {
      turnsUntilMs = now() + TURNS_KEPT_MS;
    }
    // Idle time earns no credit.
    writable(group).turnTags = group.turns === undefined ? [] : [virtualNow];
    writable(group).keepsTags = false;
    for (const { key } of group.scopes) {
      const groups = byKey.get(key) ?? new Set();
      byKey.set(key, groups.add(group));
    }
  }

  function remove(group: Group): void {
    all.delete(group);
    for (const { key } of group.scopes) {
      byKey.get(key)?.delete(group);
      if (byKey.get(key)?.size === 0) byKey.delete(key);
    }
  }

  /**
   * Returns true if the bucket has only one group and calls do not change its position. This
   * shortcut applies to most buckets.
   */
  function staysAlone(group: Group): boolean {
    if (group.position !== "free" || free.size > 1) return false;
    return group.line.size > group.held.size && group.notBeforeMs <= freeUntilMs;
  }

  function update(group: Group): void {
    if (!staysAlone(group)) move(group);
  }

  function move(group: Group): void {
    // The check for idle comes first, because reading the line of an idle group would create a new
    // line.
    const hasCallers = !group.isIdle && group.line.size > 0;
    if (!hasCallers) remove(group);
    else if (!all.has(group)) add(group);
    const lacksSlots = hasCallers && group.line.size > group.held.size;
    const isFree = group.notBeforeMs <= freeUntilMs;
    const position = !lacksSlots ? "nowhere" : isFree ? "free" : "deferred";
    if (position === "nowhere" && group.position === "nowhere") return;
    writable(group).position = position;
    if (position === "free") free.put(group);
    else free.delete(group);
    if (group.turns !== undefined && group.turns.floorUs > 0) keepFloor(group, position === "free");
    if (position === "deferred") {
      deferred.put(group);
      leastRecentlyAsked.add(group);
    } else {
      deferred.delete(group);
      leastRecentlyAsked.delete(group);
    }
  }

  function keepFloor(group: Group, isFree: boolean): void {
    const name = firstOfText(group.turns!.names);
    const groups = withFloor.get(name) ?? new Set();
    if (isFree) withFloor.set(name, groups.add(group));
    else if (groups.delete(group) && groups.size === 0) withFloor.delete(name);
  }

  /** One group of each key with a floor: it is asked for, however far off its turn is. */
  function firstWithFloor(): Group[] {
    return [...withFloor.values()].map((groups) => {
      const [first] = groups;
      groups.delete(first!);
      groups.add(first!);
      return first!;
    });
  }

  function moveToEnd(group: Group): void {
    writable(group).queuedAt = lastQueuedAt += 1;
    update(group);
  }

  function deferUntil(group: Group, untilMs: number): void {
    writable(group).notBeforeMs = untilMs;
    update(group);
  }

  function freeThoseUntil(untilMs: number): void {
    freeUntilMs = untilMs;
    for (let { first } = deferred; first !== undefined; { first } = deferred) {
      if (first.notBeforeMs > untilMs) return;
      update(first);
    }
  }

  /**
   * Adds, for each key, the group of the key's first call, even if that group is deferred. The
   * store saves up for that call, so other calls get only the units that it does not need.
   */
  function withFirstOfKeys(groups: Group[], count: number): Group[] {
    if (groups.every(({ scopes }) => scopes.length === 0)) return groups.slice(0, count);
    const all = new Set<Group>();
    const seen = new Set<string>();
    for (const group of groups) {
      if (all.size >= count) break;
      const { limitedKey: key } = group;
      if (key !== undefined && !seen.has(key)) {
        seen.add(key);
        all.add(firstOfKey(key, group));
      }
      all.add(group);
    }
    return [...all];
  }

  /**
   * Returns the group of the key's first call. Only groups with the same limits are compared,
   * because after a tier change a key's calls may wait under the old and the new limits.
   */
  function firstOfKey(key: string, { scopes }: Group): Group {
    const waiting = [...byKey.get(key)!].filter(
      ({ limitedKey, position, scopes: others }) =>
        limitedKey === key && position !== "nowhere" && haveSameLimits(others, scopes),
    );
    return waiting.reduce((a, b) => (arrivedBefore(arrivalOf(b), arrivalOf(a)) ? b : a));
  }

  /**
   * Returns up to `count` deferred groups. The group whose time is nearest comes first, then the
   * groups that were asked for least recently.
   */
  function someDeferred(count: number): Group[] {
    const nearest = deferred.first;
    if (nearest === undefined) return [];
    const some = [nearest];
    for (const group of leastRecentlyAsked) {
      if (some.length >= count) break;
      if (group !== nearest) some.push(group);
    }
    for (const group of some) {
      leastRecentlyAsked.delete(group);
      leastRecentlyAsked.add(group);
    }
    return some;
  }

  return {
    [Symbol.iterator]: () => all.values(),
    soonest: {
      get size() {
        return all.size;
      },
      [Symbol.iterator]() {
        if (all.size <= MANY) return all.values();
        return [free.first, deferred.first].filter((group) => group !== undefined).values();
      },
    },
    get areTurns() {
      return now() < turnsUntilMs;
    },
    get deferredGroups() {
      return deferred.size;
    },
    get deferredCallers() {
      const nowMs = now();
      let callers = 0;
      for (const { line, held, notBeforeMs } of deferred) {
        if (notBeforeMs > nowMs) callers += line.size - held.size;
      }
      return callers;
    },
    hasKey: (key) => byKey.has(key),
    ofKey: (key) => byKey.get(key) ?? [],
    next(count, atMs) {
      freeThoseUntil(atMs);
      const soonest = free.firstOf(count);
      const ready =
        withFloor.size === 0 ? soonest : [...new Set([...firstWithFloor(), ...soonest])];
      const most = count + withFloor.size;
      const groups = withFirstOfKeys(ready.length === 0 ? someDeferred(count) : ready, most);
      for (const group of groups) writable(group).wasNotified = false;
      return groups;
    },
    joined(caller) {
      newest = Math.max(newest, caller.number);
      const { group } = caller;
      const isFirst = group.line.head === caller;
      // The key only deferred the calls that waited at that time. A new, more urgent call is asked
      // for immediately.
      if (group.notBeforeMs > 0 && group.line.size > 1 && isFirstUnserved(caller)) {
        writable(group).notBeforeMs = 0;
        if (!isFirst) update(group);
      }
      // The group moves only for a new first caller, because its turn depends on that caller. Most
      // callers join behind others.
      if (group.position !== "free" || isFirst) update(group);
    },
    update,
    served: moveToEnd,
    answered(group: Group, { untilMs, arrivedMs, bindsAt }) {
      writable(group).bindsAt = bindsAt;
      // If a notification arrived after the request was sent, the reply is outdated, and the group
      // is not deferred.
      deferUntil(group, group.wasNotified ? 0 : untilMs);
      if (group.notBeforeMs <= arrivedMs) return;
      writable(group).behind = newest;
      moveToEnd(group);
    },
    learnTurns({ virtualNow: latest, nextCalls }, groups) {
      // Calls of other processes have keys that take turns, so those of this one do from now on.
      if (nextCalls[0]?.length === 0) {
        turnsUntilMs = now() + TURNS_KEPT_MS;
        return;
      }
      // Tags begin anew once no key has taken turns for a while.
      if (latest < virtualNow) for (const group of all) writable(group).turnTags = [0];
      virtualNow = latest;
      for (const [index, group] of groups.entries()) {
        writable(group).turnTags = nextCalls[index]!;
        writable(group).keepsTags = group.line.size > group.held.size;
        update(group);
      }
    },
    deferUntil,
    deferNone() {
      for (const group of all) deferUntil(group, 0);
    },
    wake(key) {
      for (const group of byKey.get(key) ?? []) {
        writable(group).wasNotified = true;
        writable(group).behind = 0;
        deferUntil(group, 0);
      }
    },
    wakeAll() {
      for (const group of all) {
        writable(group).wasNotified = true;
        deferUntil(group, 0);
      }
    },
    clear() {
      for (const group of all) writable(group).position = "nowhere";
      all.clear();
      byKey.clear();
      free.clear();
      deferred.clear();
      withFloor.clear();
      leastRecentlyAsked.clear();
    },
  };
}

/**
 * Returns true if `a` goes first. Priority decides first, then the arrival of the group's first
 * caller. A group that its key deferred goes after all callers that had arrived by then.
 */
function comesBefore(a: Group, b: Group): boolean {
  const difference =
    byTurn(arrivalOf(a), arrivalOf(b)) || turnNumber(a) - turnNumber(b) || a.queuedAt - b.queuedAt;
  return difference < 0;
}

/** The more urgent call comes first. Where keys take turns, only critical calls do; then the key whose turn it is. */
function byTurn(a: Omit<Arrival, "number">, b: Omit<Arrival, "number">): number {
  if (a.turnTags === undefined || b.turnTags === undefined) return a.rank - b.rank;
  return (
    Math.min(1, a.rank) - Math.min(1, b.rank) || byTags(a.turnTags, b.turnTags) || a.rank - b.rank
  );
}

function byTags(a: readonly number[], b: readonly number[]): number {
  for (let level = 0; level < Math.min(a.length, b.length); level++) {
    const difference = a[level]! - b[level]!;
    if (difference !== 0) return difference;
  }
  return 0;
}

/** Which of two calls comes first. */
export function compareArrivals(a: Arrival, b: Arrival): number {
  return byTurn(a, b) || a.number - b.number;
}

/** A call's priority and its number in the order of arrival. */
export interface Arrival {
  readonly rank: number;
  readonly number: number;
  /** When it starts in the virtual time of keys that take turns; undefined: they do not. */
  readonly turnTags?: readonly number[] | undefined;
}

/** Returns the priority, the number and the turn of a group's first call. */
export function arrivalOf(group: Group): Arrival {
  return { rank: rankOf(group), number: group.line.head!.number, turnTags: turnTagsOf(group) };
}

function turnTagsOf({ turns, turnTags }: Group): readonly number[] | undefined {
  return turns === undefined ? undefined : turnTags;
}

/** The tags of calls that a floor guarantees. They are asked for before the turns of others. */
export const BEFORE_TURNS: readonly number[] = [-1];

/**
 * Returns the first call of a group that has no slot. If finding that call is expensive, the
 * returned number is Infinity, which puts the call last in its priority.
 */
export function firstUnserved(group: Group): Arrival & { readonly sinceMs: number } {
  const { line, held } = group;
  // This shortcut is enough for most groups, because they hold no slots. Counting by priority would
  // be most of the work here.
  if (held.size === 0 && line.head !== undefined) {
    const { number, sinceMs } = line.head;
    return { rank: rankOf(group), number, sinceMs, turnTags: turnTagsOf(group) };
  }
  const allServed = servedOf(group);
  for (let rank = 0; rank < allServed.length; rank++) {
    const served = allServed[rank]!;
    if (served === line.sizeOf(rank)) continue;
    const { number, sinceMs } = line.firstOf(rank)!;
    return { rank, number: served === 0 ? number : Infinity, sinceMs, turnTags: turnTagsOf(group) };
  }
  return { rank: Infinity, number: Infinity, sinceMs: 0 };
}

export function arrivedBefore(a: Arrival, b: Arrival): boolean {
  return compareArrivals(a, b) < 0;
}

function rankOf({ line }: Group): number {
  return RANKS[effectivePriority(line.head!)];
}

function turnNumber({ line, behind }: Group): number {
  return Math.max(line.head!.number, behind);
}

/** A priority queue whose items can change their order. */
export interface Heap<T> extends Iterable<T> {
  readonly size: number;
  readonly first: T | undefined;
  /** Returns the first `count` items in order, or all items if there are fewer. */
  firstOf(count: number): T[];
  /** Adds an item, or moves an item whose order has changed. */
  put(item: T): void;
  /** Removes an item if the heap contains it. */
  delete(item: T): void;
  clear(): void;
}

/**
 * A binary heap with an index of its items. Every operation except iteration takes logarithmic time. An item must be
 * put again whenever its order changes.
 */
export function createHeap<T>(comesBefore: (a: T, b: T) => boolean): Heap<T> {
  return new BinaryHeap(comesBefore);
}

/** A class, because V8 gives each object literal with a getter a hidden class of its own. */
class BinaryHeap<T> implements Heap<T> {
  readonly #comesBefore: (a: T, b: T) => boolean;
  readonly #items: T[] = [];
  readonly #indexes = new Map<T, number>();

  constructor(comesBefore: (a: T, b: T) => boolean) {
    this.#comesBefore = comesBefore;
  }

  get size(): number {
    return this.#items.length;
  }

  get first(): T | undefined {
    return this.#items[0];
  }

  /** Only examines items directly below those already taken, because a heap always has its next item there. */
  firstOf(count: number): T[] {
    const items = this.#items;
    if (items.length < 2 || count < 2) return items.slice(0, Math.min(count, 1));
    const taken: T[] = [];
    const next = [0];
    while (taken.length < count && next.length > 0) {
      let first = 0;
      for (let at = 1; at < next.length; at++) {
        if (this.#comesBefore(items[next[at]!]!, items[next[first]!]!)) first = at;
      }
      const at = next[first]!;
      taken.push(items[at]!);
      const below = [2 * at + 1, 2 * at + 2].filter((each) => each < items.length);
      next.splice(first, 1, ...below);
    }
    return taken;
  }

  put(item: T): void {
    this.#sift(item, this.#indexes.get(item) ?? this.#items.push(item) - 1);
  }

  delete(item: T): void {
    const at = this.#indexes.get(item);
    if (at === undefined) return;
    this.#indexes.delete(item);
    const last = this.#items.pop()!;
    if (at < this.#items.length) this.#sift(last, at);
  }

  clear(): void {
    this.#items.length = 0;
    this.#indexes.clear();
  }

  [Symbol.iterator](): ArrayIterator<T> {
    return this.#items.values();
  }

  /** Moves an item up or down to its position. */
  #sift(item: T, from: number): void {
    const items = this.#items;
    let at = from;
    while (at > 0) {
      const above = (at - 1) >> 1;
      if (!this.#comesBefore(item, items[above]!)) break;
      this.#setItem(items[above]!, at);
      at = above;
    }
    for (let below = this.#firstBelow(at); below >= 0; below = this.#firstBelow(at)) {
      if (!this.#comesBefore(items[below]!, item)) break;
      this.#setItem(items[below]!, at);
      at = below;
    }
    this.#setItem(item, at);
  }

  #setItem(item: T, at: number): void {
    this.#items[at] = item;
    this.#indexes.set(item, at);
  }

  /** Returns the first of the items below an item. -1 if there is none. */
  #firstBelow(at: number): number {
    const items = this.#items;
    const left = 2 * at + 1;
    if (left >= items.length) return -1;
    const right = left + 1;
    return right < items.length && this.#comesBefore(items[right]!, items[left]!) ? right : left;
  }
}
