import { RANKS } from "../../core/options.ts";
import type { Group } from "./group.ts";

/** The groups in which callers wait, by when they may be asked for: few are looked at, however many wait. */
export interface GroupSchedule extends Iterable<Group> {
  /** When to ask, in as few groups as tell it. */
  readonly soonest: SoonestGroups;
  /** Those of one key that has limits of its own: its calls are in several when they cost different amounts. */
  ofKey(key: string): ReadonlySet<Group>;
  /** Those that their key holds back, in no order. */
  readonly deferred: Iterable<Group> & { readonly size: number };
  /**
   * Up to so many of those that may be asked for at that time, as their turns come. If it is nobody's time yet,
   * the one whose time is nearest, and others in turn: word of a change may have been lost.
   */
  next(count: number, atMs: number): Group[];
  /** Somebody has come or left, or a slot has: the group goes where it belongs now. */
  update(group: Group): void;
  /** The others' turns come before this one's, as far as nothing else says whose does. */
  moveToEnd(group: Group): void;
  /** It is asked for at this time of `performance.now()` at the earliest; 0: at any time. */
  deferUntil(group: Group, untilMs: number): void;
  /** There is news of its key: it is asked for as if that had not held it back, and not only after all others. */
  wake(group: Group): void;
  clear(): void;
}

/** All groups that wait, or of many one that may be asked for and one whose time is nearest. */
export interface SoonestGroups extends Iterable<Group> {
  /** How many wait. */
  readonly size: number;
}

/** From so many groups on, none is gathered for, and not all are looked at. */
export const MANY = 200;
const NONE: ReadonlySet<Group> = new Set();

export function createGroupSchedule(): GroupSchedule {
  const all = new Set<Group>();
  const byKey = new Map<string, Set<Group>>();
  /** Those in which somebody has no slot yet are in one of these. */
  const free = createHeap(comesBefore);
  const deferred = createHeap((a: Group, b: Group) => a.notBeforeMs < b.notBeforeMs);
  /** The same as are held back, those first that were asked for the longest ago. */
  const leastRecentlyAsked = new Set<Group>();
  /** Who is held back until then is free. */
  let freeUntilMs = 0;
  let lastQueuedAt = 0;

  function add(group: Group): void {
    all.add(group);
    group.queuedAt = lastQueuedAt += 1;
    const { key } = group;
    if (key === undefined) return;
    const groups = byKey.get(key);
    if (groups === undefined) byKey.set(key, new Set([group]));
    else groups.add(group);
  }

  function remove(group: Group): void {
    all.delete(group);
    const { key } = group;
    if (key === undefined) return;
    const groups = byKey.get(key);
    groups?.delete(group);
    if (groups?.size === 0) byKey.delete(key);
  }

  /** Most buckets have one group alone, which stays where it is with each call that comes and leaves. */
  function staysAlone(group: Group): boolean {
    if (group.position !== "free" || free.size > 1) return false;
    return group.line.size > group.held.size && group.notBeforeMs <= freeUntilMs;
  }

  function update(group: Group): void {
    if (!staysAlone(group)) move(group);
  }

  function move(group: Group): void {
    // One that is idle has let go of its line: to ask for that would make it a new one.
    const hasCallers = !group.isIdle && group.line.size > 0;
    if (!hasCallers) remove(group);
    else if (!all.has(group)) add(group);
    const lacksSlots = hasCallers && group.line.size > group.held.size;
    const isFree = group.notBeforeMs <= freeUntilMs;
    const position = !lacksSlots ? "nowhere" : isFree ? "free" : "deferred";
    if (position === "nowhere" && group.position === "nowhere") return;
    group.position = position;
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

  /** None is told twice. */
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

  function letFree(untilMs: number): void {
    freeUntilMs = untilMs;
    for (let { first } = deferred; first !== undefined; { first } = deferred) {
      if (first.notBeforeMs > untilMs) return;
      update(first);
    }
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
    deferred,
    ofKey: (key) => byKey.get(key) ?? NONE,
    next(count, atMs) {
      letFree(atMs);
      const ready = free.firstOf(count);
      const groups = ready.length === 0 ? someDeferred(count) : ready;
      for (const group of groups) group.hasNews = false;
      return groups;
    },
    update,
    moveToEnd(group) {
      group.queuedAt = lastQueuedAt += 1;
      update(group);
    },
    deferUntil(group, untilMs) {
      group.notBeforeMs = untilMs;
      update(group);
    },
    wake(group) {
      group.hasNews = true;
      group.behind = 0;
      this.deferUntil(group, 0);
    },
    clear() {
      for (const group of all) group.position = "nowhere";
      all.clear();
      byKey.clear();
      free.clear();
      deferred.clear();
      leastRecentlyAsked.clear();
    },
  };
}

/**
 * Whose turn comes first: the more urgent's, then who came first, but a key that held its calls back gives way to
 * all who had come by then.
 */
function comesBefore(a: Group, b: Group): boolean {
  return (rankOf(a) - rankOf(b) || standingOf(a) - standingOf(b) || a.queuedAt - b.queuedAt) < 0;
}

export function rankOf({ line }: Group): number {
  return RANKS[line.head!.priority];
}

function standingOf({ line, behind }: Group): number {
  return Math.max(line.head!.number, behind);
}

/** Items of which the first is always known; any may be taken out, or put where it belongs now. */
export interface Heap<T> extends Iterable<T> {
  readonly size: number;
  readonly first: T | undefined;
  /** The first so many in their order, or all if there are fewer. */
  firstOf(count: number): T[];
  /** Adds an item, or moves one whose order has changed. */
  put(item: T): void;
  /** Takes an item out, if it is in. */
  delete(item: T): void;
  clear(): void;
}

/**
 * A binary heap that knows where each item lies, so that all but iterating takes the logarithm of its size at most.
 * An item has to be put anew whenever its order changes.
 */
export function createHeap<T>(comesBefore: (a: T, b: T) => boolean): Heap<T> {
  const items: T[] = [];
  const indexes = new Map<T, number>();

  function lay(item: T, at: number): void {
    items[at] = item;
    indexes.set(item, at);
  }

  /** Lays an item where those above it come before it, and those below it do not. */
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

  /** Each is followed by the first of those that lie right below one that was taken already. */
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
