import { tableOf, type Commands, type Value } from "../../lua/runtime.ts";
import { typeOfContent, type Keyspace } from "../keyspace.ts";
import { bytesOf, globOf, integerOf, OK, optionOf, scanned } from "./arguments.ts";

export function keyCommands({ nowMs, keys, find, sweep }: Keyspace): Commands {
  function remove(names: readonly Value[]): number {
    let count = 0;
    for (const key of names) if (find(key) !== undefined && keys.delete(key as string)) count += 1;
    return count;
  }

  function expireAt(key: Value, atMs: number, [option]: readonly Value[]): number {
    if (find(key) === undefined) return 0;
    const kept = keys.get(key as string)!;
    const { expiresAtMs: before } = kept;
    const when = optionOf(option);
    if (when === "NX" && before !== Infinity) return 0;
    if (when === "XX" && before === Infinity) return 0;
    if (when === "GT" && atMs <= before) return 0;
    if (when === "LT" && atMs >= before) return 0;
    if (atMs <= nowMs()) keys.delete(key as string);
    else kept.expiresAtMs = atMs;
    return 1;
  }

  function expiry(key: Value, from: () => number, unitMs: number): number {
    if (find(key) === undefined) return -2;
    const { expiresAtMs } = keys.get(key as string)!;
    return expiresAtMs === Infinity ? -1 : Math.round((expiresAtMs - from()) / unitMs);
  }

  function rename(from: Value, to: Value): void {
    if (find(from) === undefined) throw new Error("ERR no such key");
    const kept = keys.get(from as string)!;
    keys.delete(from as string);
    keys.set(to as string, kept);
  }

  function all(): IterableIterator<string> {
    sweep();
    return keys.keys();
  }

  const never = (): number => 0;
  return {
    DEL: (...names) => remove(names),
    UNLINK: (...names) => remove(names),
    EXISTS(...names) {
      let count = 0;
      for (const key of names) if (find(key) !== undefined) count += 1;
      return count;
    },
    TOUCH: (...names) => names.filter((key) => find(key) !== undefined).length,
    TYPE(key) {
      const content = find(key);
      return { ...tableOf([]), $ok: content === undefined ? "none" : typeOfContent(content) };
    },
    EXPIRE: (key, seconds, ...options) =>
      expireAt(key, nowMs() + integerOf(seconds) * 1_000, options),
    PEXPIRE: (key, ms, ...options) => expireAt(key, nowMs() + integerOf(ms), options),
    EXPIREAT: (key, seconds, ...options) => expireAt(key, integerOf(seconds) * 1_000, options),
    PEXPIREAT: (key, ms, ...options) => expireAt(key, integerOf(ms), options),
    TTL: (key) => expiry(key, nowMs, 1_000),
    PTTL: (key) => expiry(key, nowMs, 1),
    EXPIRETIME: (key) => expiry(key, never, 1_000),
    PEXPIRETIME: (key) => expiry(key, never, 1),
    PERSIST(key) {
      if (find(key) === undefined) return 0;
      const kept = keys.get(key as string)!;
      if (kept.expiresAtMs === Infinity) return 0;
      kept.expiresAtMs = Infinity;
      return 1;
    },
    RENAME(from, to) {
      rename(from, to);
      return OK;
    },
    RENAMENX(from, to) {
      if (find(to) !== undefined) return 0;
      rename(from, to);
      return 1;
    },
    KEYS(pattern) {
      const matcher = globOf(bytesOf(pattern));
      return tableOf([...all()].filter((key) => matcher.test(key)));
    },
    SCAN: (cursor, ...options) => scanned(cursor, options, oneEach(typed(options))),
    DBSIZE: () => [...all()].length,
    RANDOMKEY: () => all().next().value ?? false,
  };

  function* typed(options: readonly Value[]): Generator<string> {
    const at = options.findIndex((option) => optionOf(option) === "TYPE");
    for (const key of all()) {
      const isWanted = at < 0 || typeOfContent(keys.get(key)!.content) === options[at + 1];
      if (isWanted) yield key;
    }
  }
}

function* oneEach(keys: Iterable<string>): Generator<readonly string[]> {
  for (const key of keys) yield [key];
}
