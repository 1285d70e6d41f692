import { LRUCache } from "lru-cache";

/**
 * A cache of the `most` values that were used last, by name. It takes its room as it fills: with `max`, the library
 * would reserve all of it at once, which for 10,000 is 158 KB and 2 ms for each bucket that is made. `onForget` gets
 * each value that leaves the cache, but none that is replaced.
 */
export function createLru<Value extends object | number>(
  most: number,
  onForget?: (value: Value, name: string) => void,
): LRUCache<string, Value> {
  const options = { maxSize: most, sizeCalculation: () => 1 };
  if (onForget === undefined) return new LRUCache<string, Value>(options);
  return new LRUCache<string, Value>({
    ...options,
    dispose(value, name, reason) {
      if (reason !== "set") onForget(value, name);
    },
  });
}
