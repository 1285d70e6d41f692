import { RANKS } from "../../core/options.ts";
import type { Group } from "./group.ts";

/** The groups in which callers wait, by when they may be asked for: few are looked at, however many wait. */
export interface WaitingGroups extends Iterable<Group> {
  /** When to ask, in as few groups as tell it. */
  readonly soonest: SoonestGroups;
  /** Those of one key that has limits of its own: its calls are in several when they cost different amounts. */
  ofKey(key: string): ReadonlySet<Group>;
  /** Those that their key holds back, in no order. */
  readonly heldBack: Iterable<Group> & { readonly size: number };
  /**
   * Up to so many of those that may be asked for at that time, as their turns come. If it is nobody's time yet,
   * the one whose time is nearest, and others in turn: word of a change may have been lost.
   */
  next(count: number, atMs: number): Group[];
  /** Somebody has come or left, or a slot has: the group goes where it belongs now. */
  update(group: Group): void;
  /** The others' turns come before this one's, as far as nothing else says whose does. */
  standLast(group: Group): void;
  /** It is asked for at this time of `performance.now()` at the earliest; 0: at any time. */
  holdBack(group: Group, untilMs: number): void;
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

export function createWaitingGroups(): WaitingGroups {
  const all = new Set<Group>();
  const byKey = new Map<string, Set<Group>>();
  /** Those in which somebody has no slot yet are in one of these. */
  const free = createHeap(comesBefore);
  const heldBack = createHeap((a: Group, b: Group) => a.notBeforeMs < b.notBeforeMs);
  /** The same as are held back, those first that were asked for the longest ago. */
  const aside = new Set<Group>();
  /** Who is held back until then is free. */
  let freeUntilMs = 0;
  let stood = 0;

  function add(group: Group): void {
    all.add(group);
    group.stoodAt = stood += 1;
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
    if (group.stands !== "free" || free.size > 1) return false;
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
    const stands = !lacksSlots ? "nowhere" : isFree ? "free" : "aside";
    if (stands === "nowhere" && group.stands === "nowhere") return;
    group.stands = stands;
    if (stands === "free") free.put(group);
    else free.delete(group);
    if (stands === "aside") {
      heldBack.put(group);
      aside.add(group);
    } else {
      heldBack.delete(group);
      aside.delete(group);
    }
  }

  /** None is told twice. */
  function someAside(count: number): Group[] {
    const nearest = heldBack.first;
    if (nearest === undefined) return [];
    const some = [nearest];
    for (const group of aside) {
      if (some.length >= count) break;
      if (group !== nearest) some.push(group);
    }
    for (const group of some) {
      aside.delete(group);
      aside.add(group);
    }
    return some;
  }

  function letFree(untilMs: number): void {
    freeUntilMs = untilMs;
    for (let { first } = heldBack; first !== undefined; { first } = heldBack) {
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
        return [free.first, heldBack.first].filter((group) => group !== undefined).values();
      },
    },
    heldBack,
    ofKey: (key) => byKey.get(key) ?? NONE,
    next(count, atMs) {
      letFree(atMs);
      const ready = free.firstOf(count);
      const groups = ready.length === 0 ? someAside(count) : ready;
      for (const group of groups) group.hasNews = false;
      return groups;
    },
    update,
    standLast(group) {
      group.stoodAt = stood += 1;
      update(group);
    },
    holdBack(group, untilMs) {
      group.notBeforeMs = untilMs;
      update(group);
    },
    wake(group) {
      group.hasNews = true;
      group.behind = 0;
      this.holdBack(group, 0);
    },
    clear() {
      for (const group of all) group.stands = "nowhere";
      all.clear();
      byKey.clear();
      free.clear();
      heldBack.clear();
      aside.clear();
    },
  };
}

/**
 * Whose turn comes first: the more urgent's, then who came first, but a key that held its calls back gives way to
 * all who had come by then.
 */
function comesBefore(a: Group, b: Group): boolean {
  return (rankOf(a) - rankOf(b) || standingOf(a) - standingOf(b) || a.stoodAt - b.stoodAt) < 0;
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
  const places = new Map<T, number>();

  function lay(item: T, at: number): void {
    items[at] = item;
    places.set(item, at);
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
      sift(item, places.get(item) ?? items.push(item) - 1);
    },
    delete(item) {
      const at = places.get(item);
      if (at === undefined) return;
      places.delete(item);
      const last = items.pop()!;
      if (at < items.length) sift(last, at);
    },
    clear() {
      items.length = 0;
      places.clear();
    },
    [Symbol.iterator]: () => items.values(),
  };
}
