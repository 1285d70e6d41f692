import { RANKS } from "../../core/input/options.ts";
import { haveSameLimits, isFirstUnserved, servedOf, type Caller, type Group } from "./group.ts";
import { effectivePriority } from "./line.ts";

/**
 * Orders the groups with waiting callers, and decides which the next request asks for. No other file writes the
 * schedule fields of a group. However many groups wait, each step looks at only a few of them.
 */
export interface GroupSchedule extends Iterable<Group> {
  /**
   * All waiting groups. If there are more than {@link MANY}: only the first one that is free, and the deferred one
   * whose time is nearest.
   */
  readonly soonest: SoonestGroups;
  /** The number of groups that their key defers. */
  readonly deferredGroups: number;
  /** The number of callers without a slot whose key's time has yet to come. */
  readonly deferredCallers: number;
  /** True if calls of this key wait. Calls of one key with different costs are in different groups. */
  hasKey(key: string): boolean;
  /** The waiting groups of this key. */
  ofKey(key: string): Iterable<Group>;
  /**
   * Up to `count` groups that may be asked for at `atMs`, in the order of their turns. If there is none, the group
   * whose time is nearest, and other groups by turns, because a change notification may have been lost.
   */
  next(count: number, atMs: number): Group[];
  /** A caller joined the line of its group. */
  joined(caller: Caller): void;
  /** The callers or slots of a group changed. */
  update(group: Group): void;
  /** A group received slots. Unless priority or arrival decide otherwise, other groups now go before it. */
  served(group: Group): void;
  /**
   * A reply says that a group may be asked for again at `untilMs`, and which limit holds its calls back. If `untilMs`
   * is in the future, all callers that wait now are asked for before this group.
   */
  answered(
    group: Group,
    reply: { readonly untilMs: number; readonly arrivedMs: number; readonly bindsAt: number },
  ): void;
  /** Sets the earliest time to ask for a group, on `performance.now()`; 0 allows any time. */
  deferUntil(group: Group, untilMs: number): void;
  /** Allows all groups to be asked for at any time. */
  deferNone(): void;
  /** A notification about a key arrived: its groups are asked for as if the key had never deferred them. */
  wake(key: string): void;
  /** A notification about all keys arrived. Groups that were deferred still go after the others. */
  wakeAll(): void;
  clear(): void;
}

export interface SoonestGroups extends Iterable<Group> {
  /** The number of waiting groups. */
  readonly size: number;
}

type Scheduled = "notBeforeMs" | "behind" | "queuedAt" | "position" | "wasNotified" | "bindsAt";

/** Write access to the fields that are read-only for all other files. */
function writable(group: Group): { -readonly [Field in Scheduled]: Group[Field] } {
  return group;
}

/** With more waiting groups than this, requests are not gathered, and not all groups are looked at. */
export const MANY = 200;

export function createGroupSchedule(): GroupSchedule {
  const all = new Set<Group>();
  const byKey = new Map<string, Set<Group>>();
  /** Every group with a caller without a slot is in exactly one of these two. */
  const free = createHeap(comesBefore);
  const deferred = createHeap((a: Group, b: Group) => a.notBeforeMs < b.notBeforeMs);
  /** The deferred groups, ordered by when they were last asked for. */
  const leastRecentlyAsked = new Set<Group>();
  /** Groups deferred until this time or earlier are free. */
  let freeUntilMs = 0;
  let lastQueuedAt = 0;
  /** The number of the newest caller. */
  let newest = 0;

  function add(group: Group): void {
    all.add(group);
    writable(group).queuedAt = lastQueuedAt += 1;
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

  /** A shortcut: most buckets have one group, which calls do not move. */
  function staysAlone(group: Group): boolean {
    if (group.position !== "free" || free.size > 1) return false;
    return group.line.size > group.held.size && group.notBeforeMs <= freeUntilMs;
  }

  function update(group: Group): void {
    if (!staysAlone(group)) move(group);
  }

  function move(group: Group): void {
    // Reading the line of an idle group would create a new one.
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
    if (position === "deferred") {
      deferred.put(group);
      leastRecentlyAsked.add(group);
    } else {
      deferred.delete(group);
      leastRecentlyAsked.delete(group);
    }
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
   * Adds for each key the group of its first call, even if that group is deferred. The store saves up for that call and
   * gives other calls only what is left.
   */
  function withFirstOfKeys(groups: readonly Group[], count: number): Group[] {
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
   * Only among groups with the same limits: after a change of tier, a key may wait under both the old and the new
   * limits.
   */
  function firstOfKey(key: string, { scopes }: Group): Group {
    const waiting = [...byKey.get(key)!].filter(
      ({ limitedKey, position, scopes: others }) =>
        limitedKey === key && position !== "nowhere" && haveSameLimits(others, scopes),
    );
    return waiting.reduce((a, b) => (arrivedBefore(arrivalOf(b), arrivalOf(a)) ? b : a));
  }

  /** Up to `count` deferred groups: the one whose time is nearest, then those that were not asked for the longest. */
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
    get deferredGroups() {
      return deferred.size;
    },
    get deferredCallers() {
      const nowMs = performance.now();
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
      const ready = free.firstOf(count);
      const groups = withFirstOfKeys(ready.length === 0 ? someDeferred(count) : ready, count);
      for (const group of groups) writable(group).wasNotified = false;
      return groups;
    },
    joined(caller) {
      newest = Math.max(newest, caller.number);
      const { group } = caller;
      const isFirst = group.line.head === caller;
      // The key deferred the calls that waited then; a more urgent call is asked for at once.
      if (group.notBeforeMs > 0 && group.line.size > 1 && isFirstUnserved(caller)) {
        writable(group).notBeforeMs = 0;
        if (!isFirst) update(group);
      }
      // A group's turn depends on its first caller, and most callers join behind others.
      if (group.position !== "free" || isFirst) update(group);
    },
    update,
    served: moveToEnd,
    answered(group: Group, { untilMs, arrivedMs, bindsAt }) {
      writable(group).bindsAt = bindsAt;
      // If a notification arrived after the request was sent, the reply is outdated.
      deferUntil(group, group.wasNotified ? 0 : untilMs);
      if (group.notBeforeMs <= arrivedMs) return;
      writable(group).behind = newest;
      moveToEnd(group);
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
      leastRecentlyAsked.clear();
    },
  };
}

/**
 * True if `a` goes first: by priority, then by the arrival of its first caller. A group that its key deferred goes
 * after all callers that had arrived by then.
 */
function comesBefore(a: Group, b: Group): boolean {
  return (rankOf(a) - rankOf(b) || turnNumber(a) - turnNumber(b) || a.queuedAt - b.queuedAt) < 0;
}

/** A call's priority and its number in the order of arrival. */
export interface Arrival {
  readonly rank: number;
  readonly number: number;
}

/** The first call of a group. */
function arrivalOf(group: Group): Arrival {
  return { rank: rankOf(group), number: group.line.head!.number };
}

/**
 * The first call of a group without a slot. If that is not cheap to find, its number is Infinity: last of its priority.
 */
export function firstUnserved(group: Group): Arrival & { readonly sinceMs: number } {
  const { line, held } = group;
  // A shortcut: most groups that need slots hold none, and counting by priority would be most of the work here.
  if (held.size === 0 && line.head !== undefined) {
    const { number, sinceMs } = line.head;
    return { rank: rankOf(group), number, sinceMs };
  }
  for (const [rank, served] of servedOf(group).entries()) {
    if (served === line.sizeOf(rank)) continue;
    const { number, sinceMs } = line.firstOf(rank)!;
    return { rank, number: served === 0 ? number : Infinity, sinceMs };
  }
  return { rank: Infinity, number: Infinity, sinceMs: 0 };
}

export function arrivedBefore(a: Arrival, b: Arrival): boolean {
  return (a.rank - b.rank || a.number - b.number) < 0;
}

export function rankOf({ line }: Group): number {
  return RANKS[effectivePriority(line.head!)];
}

function turnNumber({ line, behind }: Group): number {
  return Math.max(line.head!.number, behind);
}

/** A priority queue. */
export interface Heap<T> extends Iterable<T> {
  readonly size: number;
  readonly first: T | undefined;
  /** The first `count` items in order, or all if there are fewer. */
  firstOf(count: number): T[];
  /** Adds an item, or moves it after its order has changed. */
  put(item: T): void;
  /** Removes an item if it is present. */
  delete(item: T): void;
  clear(): void;
}

/**
 * A binary heap with an index of its items. Every operation except iteration takes logarithmic time. An item must be
 * put again whenever its order changes.
 */
export function createHeap<T>(comesBefore: (a: T, b: T) => boolean): Heap<T> {
  const items: T[] = [];
  const indexes = new Map<T, number>();

  function setItem(item: T, at: number): void {
    items[at] = item;
    indexes.set(item, at);
  }

  /** Moves an item up or down to its position. */
  function sift(item: T, from: number): void {
    let at = from;
    while (at > 0) {
      const above = (at - 1) >> 1;
      if (!comesBefore(item, items[above]!)) break;
      setItem(items[above]!, at);
      at = above;
    }
    for (let below = firstBelow(at); below !== undefined; below = firstBelow(at)) {
      if (!comesBefore(items[below]!, item)) break;
      setItem(items[below]!, at);
      at = below;
    }
    setItem(item, at);
  }

  function firstBelow(at: number): number | undefined {
    const left = 2 * at + 1;
    if (left >= items.length) return undefined;
    const right = left + 1;
    return right < items.length && comesBefore(items[right]!, items[left]!) ? right : left;
  }

  /** Searches only directly below the items already taken, because a heap has its next item there. */
  function firstOf(count: number): T[] {
    const taken: T[] = [];
    const next = items.length > 0 ? [0] : [];
    while (taken.length < count && next.length > 0) {
      const at = next.reduce((a, b) => (comesBefore(items[b]!, items[a]!) ? b : a));
      taken.push(items[at]!);
      const below = [2 * at + 1, 2 * at + 2].filter((each) => each < items.length);
      next.splice(next.indexOf(at), 1, ...below);
    }
    return taken;
  }

  return {
    firstOf,
    get size() {
      return items.length;
    },
    get first() {
      return items[0];
    },
    put(item) {
      sift(item, indexes.get(item) ?? items.push(item) - 1);
    },
    delete(item) {
      const at = indexes.get(item);
      if (at === undefined) return;
      indexes.delete(item);
      const last = items.pop()!;
      if (at < items.length) sift(last, at);
    },
    clear() {
      items.length = 0;
      indexes.clear();
    },
    [Symbol.iterator]: () => items.values(),
  };
}
