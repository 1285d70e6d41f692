import { LRUCache } from "lru-cache";

/**
 * What was used last, by name, of so many at most. It takes its room as it fills: by the cache's own
 * `max` it would take all of it at once, which for 10,000 is 158 KB and 2 ms for each bucket that is made.
 * `onForget` is told of what is remembered no more, for whatever reason.
 */
export function rememberLast<Value extends object | number>(
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
