import { digits, tableOf, type Commands, type Value } from "../../lua/runtime.ts";
import type { Keyspace } from "../keyspace.ts";
import { bytesOf, floatOf, integerOf, OK, scanned } from "./arguments.ts";

export function hashCommands({ hashAt, keep, dropIfEmpty }: Keyspace): Commands {
  function hashOf(key: Value): Map<string, string> {
    return keep(key, hashAt(key), () => new Map<string, string>());
  }

  function set(key: Value, pairs: readonly Value[]): number {
    const hash = hashOf(key);
    const before = hash.size;
    for (let index = 0; index < pairs.length; index += 2) {
      hash.set(bytesOf(pairs[index]), bytesOf(pairs[index + 1]));
    }
    return hash.size - before;
  }

  return {
    HSET: (key, ...pairs) => set(key, pairs),
    HMSET(key, ...pairs) {
      set(key, pairs);
      return OK;
    },
    HSETNX(key, name, value) {
      if (hashAt(key)?.has(bytesOf(name)) === true) return 0;
      return set(key, [name, value]);
    },
    HGET: (key, name) => hashAt(key)?.get(bytesOf(name)) ?? false,
    HMGET(key, ...names) {
      const hash = hashAt(key);
      return tableOf(names.map((name) => hash?.get(bytesOf(name)) ?? false));
    },
    HGETALL: (key) => tableOf([...(hashAt(key) ?? [])].flat()),
    HKEYS: (key) => tableOf([...(hashAt(key)?.keys() ?? [])]),
    HVALS: (key) => tableOf([...(hashAt(key)?.values() ?? [])]),
    HLEN: (key) => hashAt(key)?.size ?? 0,
    HEXISTS: (key, name) => (hashAt(key)?.has(bytesOf(name)) === true ? 1 : 0),
    HSTRLEN: (key, name) => hashAt(key)?.get(bytesOf(name))?.length ?? 0,
    HDEL(key, ...names) {
      const hash = hashAt(key);
      if (hash === undefined) return 0;
      const before = hash.size;
      for (const name of names) hash.delete(bytesOf(name));
      dropIfEmpty(key, hash.size);
      return before - hash.size;
    },
    HINCRBY(key, name, amount) {
      const added = integerOf(amount);
      const sum = integerOf(hashAt(key)?.get(bytesOf(name)) ?? 0) + added;
      hashOf(key).set(bytesOf(name), String(sum));
      return sum;
    },
    HINCRBYFLOAT(key, name, amount) {
      const sum = floatOf(hashAt(key)?.get(bytesOf(name)) ?? 0) + floatOf(amount);
      hashOf(key).set(bytesOf(name), digits(sum, 17));
      return digits(sum, 17);
    },
    HSCAN: (key, cursor, ...options) => scanned(cursor, options, hashAt(key) ?? []),
  };
}
