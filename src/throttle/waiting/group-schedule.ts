import { RANKS } from "../../core/input/options.ts";
import { haveSameLimits, isFirstLacking, servedOf, type Caller, type Group } from "./group.ts";
import { waitsWith } from "./line.ts";

/**
 * The groups in which callers wait, and which of them is asked for when. It alone writes what a group carries of that;
 * few groups are looked at, however many wait.
 */
export interface GroupSchedule extends Iterable<Group> {
  /** All groups that wait; or of many one that may be asked for, and the one whose time is nearest. */
  readonly soonest: SoonestGroups;
  /** How many groups are deferred by their keys. */
  readonly deferredGroups: number;
  /** How many callers of those have no slot, and have yet to wait for their key's time. */
  readonly deferredCallers: number;
  /** Whether calls of this key wait; they are in several groups when they cost different amounts. */
  hasKey(key: string): boolean;
  /** The groups of this key in which calls wait. */
  ofKey(key: string): Iterable<Group>;
  /**
   * Up to `count` groups that may be asked for at that time, in the order of their turns. If no group's time has come,
   * the one whose time is nearest, and others by turns: a message about a change may have been lost.
   */
  next(count: number, atMs: number): Group[];
  /** A caller has joined the line of its group. */
  joined(caller: Caller): void;
  /** Callers or slots of a group have left, or slots have come. */
  update(group: Group): void;
  /** A group was given slots: turns of others come before its next one, if nothing else decides. */
  served(group: Group): void;
  /**
   * A reply says when the key of a group may be asked about again, at `untilMs`, and what holds its calls back. If that
   * time has yet to come, all callers that wait by now are asked for before this group is again.
   */
  answered(
    group: Group,
    reply: { readonly untilMs: number; readonly arrivedMs: number; readonly bindsAt: number },
  ): void;
  /** A group is asked for at this time at the earliest, on `performance.now()`; 0: at any time. */
  deferUntil(group: Group, untilMs: number): void;
  /** All groups may be asked for at any time. */
  deferNone(): void;
  /** There is news of a key: its groups are asked for as if it had not deferred them. */
  wake(key: string): void;
  /** There is news of all keys; groups that were deferred still come after those that were not. */
  wakeAll(): void;
  clear(): void;
}

export interface SoonestGroups extends Iterable<Group> {
  /** How many groups wait. */
  readonly size: number;
}

type Scheduled = "notBeforeMs" | "behind" | "queuedAt" | "position" | "wasNotified" | "bindsAt";

/** The fields of a group that this file alone writes: they are read-only to all others. */
function own(group: Group): { -readonly [Field in Scheduled]: Group[Field] } {
  return group;
}

/** If more groups than this wait, no slots are gathered for them, and not all are looked at. */
export const MANY = 200;

export function createGroupSchedule(): GroupSchedule {
  const all = new Set<Group>();
  const byKey = new Map<string, Set<Group>>();
  /** A group in which a caller has no slot yet is in one of these. */
  const free = createHeap(comesBefore);
  const deferred = createHeap((a: Group, b: Group) => a.notBeforeMs < b.notBeforeMs);
  /** The deferred groups again, the one first that was asked for the longest ago. */
  const leastRecentlyAsked = new Set<Group>();
  /** Groups that are deferred until then are free. */
  let freeUntilMs = 0;
  let lastQueuedAt = 0;
  /** The number of the caller that came last. */
  let newest = 0;

  function add(group: Group): void {
    all.add(group);
    own(group).queuedAt = lastQueuedAt += 1;
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

  /** Most buckets have one group, which stays where it is with each call that comes and leaves. */
  function staysAlone(group: Group): boolean {
    if (group.position !== "free" || free.size > 1) return false;
    return group.line.size > group.held.size && group.notBeforeMs <= freeUntilMs;
  }

  function update(group: Group): void {
    if (!staysAlone(group)) move(group);
  }

  function move(group: Group): void {
    // An idle group has dropped its line, and reading it would make a new one.
    const hasCallers = !group.isIdle && group.line.size > 0;
    if (!hasCallers) remove(group);
    else if (!all.has(group)) add(group);
    const lacksSlots = hasCallers && group.line.size > group.held.size;
    const isFree = group.notBeforeMs <= freeUntilMs;
    const position = !lacksSlots ? "nowhere" : isFree ? "free" : "deferred";
    if (position === "nowhere" && group.position === "nowhere") return;
    own(group).position = position;
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
    own(group).queuedAt = lastQueuedAt += 1;
    update(group);
  }

  function deferUntil(group: Group, untilMs: number): void {
    own(group).notBeforeMs = untilMs;
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
   * Adds the group of each key whose call comes first, even if it is deferred: the store saves up for that call, and
   * gives the others only what is left.
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

  /** Among those of the same limits: a key whose tier has changed may wait under both. */
  function firstOfKey(key: string, { scopes }: Group): Group {
    const waiting = [...byKey.get(key)!].filter(
      ({ limitedKey, position, scopes: others }) =>
        limitedKey === key && position !== "nowhere" && haveSameLimits(others, scopes),
    );
    return waiting.reduce((a, b) => (arrivedBefore(arrivalOf(b), arrivalOf(a)) ? b : a));
  }

  /** No group is among them twice. */
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
      for (const group of groups) own(group).wasNotified = false;
      return groups;
    },
    joined(caller) {
      newest = Math.max(newest, caller.number);
      const { group } = caller;
      const isFirst = group.line.head === caller;
      // What its key answered holds for the calls that waited then; a more urgent one is asked for at once.
      if (group.notBeforeMs > 0 && group.line.size > 1 && isFirstLacking(caller)) {
        own(group).notBeforeMs = 0;
        if (!isFirst) update(group);
      }
      // A group's turn depends on the first of its line, and most callers come behind others.
      if (group.position !== "free" || isFirst) update(group);
    },
    update,
    served: moveToEnd,
    answered(group: Group, { untilMs, arrivedMs, bindsAt }) {
      own(group).bindsAt = bindsAt;
      // What the reply says of a key is outdated if there was news of it since the request.
      deferUntil(group, group.wasNotified ? 0 : untilMs);
      if (group.notBeforeMs <= arrivedMs) return;
      own(group).behind = newest;
      moveToEnd(group);
    },
    deferUntil,
    deferNone() {
      for (const group of all) deferUntil(group, 0);
    },
    wake(key) {
      for (const group of byKey.get(key) ?? []) {
        own(group).wasNotified = true;
        own(group).behind = 0;
        deferUntil(group, 0);
      }
    },
    wakeAll() {
      for (const group of all) {
        own(group).wasNotified = true;
        deferUntil(group, 0);
      }
    },
    clear() {
      for (const group of all) own(group).position = "nowhere";
      all.clear();
      byKey.clear();
      free.clear();
      deferred.clear();
      leastRecentlyAsked.clear();
    },
  };
}

/**
 * Which turn comes first: the more urgent group's, then that of the caller that came first. But a key that deferred its
 * calls comes after all callers that had come by then.
 */
function comesBefore(a: Group, b: Group): boolean {
  return (rankOf(a) - rankOf(b) || turnNumber(a) - turnNumber(b) || a.queuedAt - b.queuedAt) < 0;
}

/** A call, by its priority and by the order in which calls came. */
export interface Arrival {
  readonly rank: number;
  readonly number: number;
}

/** The next call of a group. */
function arrivalOf(group: Group): Arrival {
  return { rank: rankOf(group), number: group.line.head!.number };
}

/** The first call of a group without a slot; the last of its priority, if that is not known at once. */
export function firstLacking(group: Group): Arrival & { readonly sinceMs: number } {
  const { line, held } = group;
  // Most groups that lack slots hold none: counting by priority would be most of the work here.
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
  return RANKS[waitsWith(line.head!)];
}

function turnNumber({ line, behind }: Group): number {
  return Math.max(line.head!.number, behind);
}

/** Items in an order of which the first is always known. */
export interface Heap<T> extends Iterable<T> {
  readonly size: number;
  readonly first: T | undefined;
  /** The first `count` items in their order, or all if there are fewer. */
  firstOf(count: number): T[];
  /** Adds an item, or moves one whose order has changed. */
  put(item: T): void;
  /** Takes an item out, if it is in. */
  delete(item: T): void;
  clear(): void;
}

/**
 * A binary heap that knows where each item lies, so that all but iterating takes the logarithm of its size at most.
 * An item must be put again whenever its order changes.
 */
export function createHeap<T>(comesBefore: (a: T, b: T) => boolean): Heap<T> {
  const items: T[] = [];
  const indexes = new Map<T, number>();

  function lay(item: T, at: number): void {
    items[at] = item;
    indexes.set(item, at);
  }

  /** Lays an item where the ones above it come before it, and the ones below it do not. */
  function sift(item: T, from: number): void {
    let at = from;
    while (at > 0) {
      const above = (at - 1) >> 1;
      if (!comesBefore(item, items[above]!)) break;
      lay(items[above]!, at);
      at = above;
    }
    for (let below = firstBelow(at); below !== undefined; below = firstBelow(at)) {
      if (!comesBefore(items[below]!, item)) break;
      lay(items[below]!, at);
      at = below;
    }
    lay(item, at);
  }

  function firstBelow(at: number): number | undefined {
    const left = 2 * at + 1;
    if (left >= items.length) return undefined;
    const right = left + 1;
    return right < items.length && comesBefore(items[right]!, items[left]!) ? right : left;
  }

  /** The next item is always one that lies right below an item taken already. */
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
