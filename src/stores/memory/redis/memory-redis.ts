import { digits, tableOf, type Commands, type Table, type Value } from "../lua/runtime.ts";
import {
  addEntry,
  createSortedSet,
  ranksOf,
  removeEntry,
  removeRanks,
  type ScoreRange,
  type SortedSet,
} from "./sorted-set.ts";

/** The value of a key: a string, a hash or a sorted set. */
type Content = string | Map<string, string> | SortedSet;

interface Kept {
  content: Content;
  /** When the key expires, in ms. Infinity if the key never expires. */
  expiresAtMs: number;
}

export interface MemoryRedis {
  /** The commands for scripts. A missing value is returned as `false`. */
  readonly commands: Commands;
  /** Deletes expired keys, at most once a minute. */
  readonly sweep: () => void;
  readonly clear: () => void;
}

const SWEEP_EVERY_MS = 60_000;
const OK: Table = { ...tableOf([]), $ok: "OK" };

/**
 * Creates a small in-memory Redis for translated scripts. It supports strings, hashes and sorted
 * sets that expire. Each character of a string represents one byte.
 */
export function createMemoryRedis(given: {
  /** The clock of `TIME`, in whole µs. */
  readonly nowUs: () => number;
  readonly expiryUs: () => number;
  readonly publish: (channel: string, message: string) => void;
}): MemoryRedis {
  const { nowUs, expiryUs, publish } = given;
  const keys = new Map<string, Kept>();
  let sweepAtMs = nowMs() + SWEEP_EVERY_MS;

  function nowMs(): number {
    return Math.floor(expiryUs() / 1_000);
  }

  function find(key: Value): Content | undefined {
    const kept = keys.get(key as string);
    if (kept === undefined) return undefined;
    if (kept.expiresAtMs >= nowMs()) return kept.content;
    keys.delete(key as string);
    return undefined;
  }

  function textAt(key: Value): string | undefined {
    const content = find(key);
    if (content === undefined || typeof content === "string") return content;
    throw wrongType();
  }

  function hashAt(key: Value): Map<string, string> | undefined {
    const content = find(key);
    if (content === undefined || content instanceof Map) return content;
    throw wrongType();
  }

  function setAt(key: Value): SortedSet | undefined {
    const content = find(key);
    if (content === undefined) return content;
    if (typeof content === "string" || content instanceof Map) throw wrongType();
    return content;
  }

  function keep<Made extends Content>(key: Value, found: Made | undefined, make: () => Made): Made {
    if (found !== undefined) return found;
    const content = make();
    keys.set(key as string, { content, expiresAtMs: Infinity });
    return content;
  }

  function dropIfEmpty(key: Value, size: number): void {
    if (size === 0) keys.delete(key as string);
  }

  function put(key: Value, content: string, expiresAtMs: number): void {
    const kept = keys.get(key as string);
    if (kept === undefined) keys.set(key as string, { content, expiresAtMs });
    else {
      kept.content = content;
      kept.expiresAtMs = expiresAtMs;
    }
  }

  const commands: Commands = {
    TIME() {
      const now = nowUs();
      return tableOf([String(Math.floor(now / 1e6)), String(now % 1e6)]);
    },
    PUBLISH(channel, message) {
      publish(channel as string, bytesOf(message));
      return 0;
    },
    GET: (key) => textAt(key) ?? false,
    MGET(...names) {
      return tableOf(names.map((key) => textAt(key) ?? false));
    },
    GETRANGE(key, from, to) {
      const content = textAt(key) ?? "";
      const end = Number(to);
      return content.slice(Number(from), end < 0 ? content.length + end + 1 : end + 1);
    },
    SETRANGE(key, from, value) {
      const before = textAt(key) ?? "";
      const [start, part] = [Number(from), bytesOf(value)];
      const content =
        before.slice(0, start).padEnd(start, "\0") + part + before.slice(start + part.length);
      put(key, content, keys.get(key as string)?.expiresAtMs ?? Infinity);
      return content.length;
    },
    SET(key, value, option, ms) {
      const isTimed = optionOf(option) === "PX";
      if (option !== undefined && !isTimed) throw new Error("SET in memory takes no option but PX");
      put(key, bytesOf(value), isTimed ? nowMs() + Number(ms) : Infinity);
      return OK;
    },
    DEL(...names) {
      let count = 0;
      for (const key of names)
        if (find(key) !== undefined && keys.delete(key as string)) count += 1;
      return count;
    },
    EXISTS(...names) {
      let count = 0;
      for (const key of names) if (find(key) !== undefined) count += 1;
      return count;
    },
    PEXPIRE(key, ms) {
      if (find(key) === undefined) return 0;
      keys.get(key as string)!.expiresAtMs = nowMs() + Number(ms);
      return 1;
    },
    PTTL(key) {
      if (find(key) === undefined) return -2;
      const { expiresAtMs } = keys.get(key as string)!;
      return expiresAtMs === Infinity ? -1 : expiresAtMs - nowMs();
    },
    HSET(key, ...pairs) {
      const hash = keep(key, hashAt(key), () => new Map<string, string>());
      const before = hash.size;
      for (let index = 0; index < pairs.length; index += 2) {
        hash.set(bytesOf(pairs[index]), bytesOf(pairs[index + 1]));
      }
      return hash.size - before;
    },
    HMGET(key, ...names) {
      const hash = hashAt(key);
      return tableOf(names.map((name) => hash?.get(bytesOf(name)) ?? false));
    },
    HGETALL(key) {
      return tableOf([...(hashAt(key) ?? [])].flat());
    },
    HDEL(key, ...names) {
      const hash = hashAt(key);
      if (hash === undefined) return 0;
      const before = hash.size;
      for (const name of names) hash.delete(bytesOf(name));
      dropIfEmpty(key, hash.size);
      return before - hash.size;
    },
    ZADD(key, ...pairs) {
      const set = keep(key, setAt(key), createSortedSet);
      let count = 0;
      for (let index = 0; index < pairs.length; index += 2) {
        if (addEntry(set, bytesOf(pairs[index + 1]), Number(pairs[index]))) count += 1;
      }
      return count;
    },
    ZREM(key, ...members) {
      const set = setAt(key);
      if (set === undefined) return 0;
      let count = 0;
      for (const member of members) if (removeEntry(set, bytesOf(member))) count += 1;
      dropIfEmpty(key, set.entries.length);
      return count;
    },
    ZCARD: (key) => setAt(key)?.entries.length ?? 0,
    ZSCORE(key, member) {
      const score = setAt(key)?.scores.get(bytesOf(member));
      return score === undefined ? false : digits(score, 17);
    },
    ZMSCORE(key, ...members) {
      const scores = setAt(key)?.scores;
      const found = members.map((member) => scores?.get(bytesOf(member)));
      return tableOf(found.map((score) => (score === undefined ? false : digits(score, 17))));
    },
    ZCOUNT(key, least, most) {
      const set = setAt(key);
      if (set === undefined) return 0;
      const [from, to] = ranksOf(set, rangeOf(least, most));
      return to - from;
    },
    ZRANGE(key, from, to, option) {
      const entries = setAt(key)?.entries ?? [];
      const [start, end] = [from, to].map((each) => {
        const rank = Number(each);
        return rank < 0 ? Math.max(0, entries.length + rank) : rank;
      }) as [number, number];
      const found = entries.slice(start, end + 1);
      if (optionOf(option) !== "WITHSCORES") return tableOf(found.map(({ member }) => member));
      return tableOf(found.flatMap(({ member, score }) => [member, digits(score, 17)]));
    },
    ZRANGEBYSCORE(key, least, most, option, offset, limit) {
      const set = setAt(key);
      if (set === undefined) return tableOf([]);
      const hasLimit = optionOf(option) === "LIMIT";
      const [first, end] = ranksOf(set, rangeOf(least, most));
      const from = hasLimit ? first + Number(offset) : first;
      const to = hasLimit && Number(limit) >= 0 ? Math.min(end, from + Number(limit)) : end;
      const members: string[] = [];
      for (let rank = from; rank < to; rank++) members.push(set.entries[rank]!.member);
      return tableOf(members);
    },
    ZREMRANGEBYSCORE(key, least, most) {
      const set = setAt(key);
      if (set === undefined) return 0;
      const count = removeRanks(set, ...ranksOf(set, rangeOf(least, most)));
      dropIfEmpty(key, set.entries.length);
      return count;
    },
  };

  return {
    commands,
    sweep() {
      const now = nowMs();
      if (now < sweepAtMs) return;
      sweepAtMs = now + SWEEP_EVERY_MS;
      for (const [key, { expiresAtMs }] of keys) if (expiresAtMs < now) keys.delete(key);
    },
    clear: () => keys.clear(),
  };
}

/** Converts an argument to a string, because Redis stores numbers as strings. */
function bytesOf(value: Value): string {
  return typeof value === "string" ? value : digits(value as number, 17);
}

function optionOf(value: Value): string | undefined {
  return typeof value === "string" ? value.toUpperCase() : undefined;
}

function rangeOf(least: Value, most: Value): ScoreRange {
  const [from, isLeastOut] = boundOf(least);
  const [to, isMostOut] = boundOf(most);
  return { least: from, isLeastOut, most: to, isMostOut };
}

function boundOf(value: Value): readonly [score: number, isOut: boolean] {
  if (typeof value === "number") return [value, false];
  const text = value as string;
  const isOut = text.startsWith("(");
  const score = isOut ? text.slice(1) : text;
  if (/^[+-]?inf$/i.test(score)) return [score.startsWith("-") ? -Infinity : Infinity, isOut];
  return [Number(score), isOut];
}

function wrongType(): Error {
  return new Error("WRONGTYPE Operation against a key holding the wrong kind of value");
}
