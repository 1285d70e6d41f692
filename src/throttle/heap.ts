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
