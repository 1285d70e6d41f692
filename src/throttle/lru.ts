import { LRUCache } from "lru-cache";

/**
 * Creates a cache that keeps the `most` recently used values by name, where `most` is a number. `onForget` receives
 * each evicted or deleted value. The cache sets `maxSize` instead of `max`, because `max` would allocate all entries at
 * once: 158 KB and 2 ms per bucket for 10,000 entries.
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
