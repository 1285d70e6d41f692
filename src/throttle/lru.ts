import { LRUCache } from "lru-cache";

/**
 * Creates a cache of the `most` latest values by name. `onForget` receives each evicted or deleted value. The cache uses
 * `maxSize` because `max` would allocate all entries at once: 158 KB and 2 ms per bucket for 10,000 entries.
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
