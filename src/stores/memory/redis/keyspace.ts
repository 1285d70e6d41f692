import type { Value } from "../lua/runtime.ts";
import type { SortedSet } from "./sorted-set.ts";

export interface StreamEntry {
  readonly ms: number;
  readonly sequence: number;
  /** Names and values in turn. */
  readonly fields: readonly string[];
}

export interface Stream {
  readonly items: StreamEntry[];
  lastMs: number;
  lastSequence: number;
  added: number;
}

/** The value of a key: a string, a hash, a sorted set, a list, a set or a stream. */
export type Content = string | Map<string, string> | SortedSet | string[] | Set<string> | Stream;

interface Kept {
  content: Content;
  /** When the key expires, in ms. Infinity if the key never expires. */
  expiresAtMs: number;
}

/**
 * The keys of one database. Each character of a string represents one byte. The typed getters throw
 * Redis's `WRONGTYPE` for a key of another type.
 */
export interface Keyspace {
  readonly nowMs: () => number;
  /** All keys, also expired ones until `sweep` or `find` deletes them. */
  readonly keys: Map<string, Kept>;
  readonly find: (key: Value) => Content | undefined;
  readonly textAt: (key: Value) => string | undefined;
  readonly hashAt: (key: Value) => Map<string, string> | undefined;
  readonly sortedAt: (key: Value) => SortedSet | undefined;
  readonly listAt: (key: Value) => string[] | undefined;
  readonly membersAt: (key: Value) => Set<string> | undefined;
  readonly streamAt: (key: Value) => Stream | undefined;
  /** Returns what was found, or stores what `make` returns without an expiry. */
  readonly keep: <Made extends Content>(
    key: Value,
    found: Made | undefined,
    make: () => Made,
  ) => Made;
  readonly put: (key: Value, content: Content, expiresAtMs: number) => void;
  readonly expiresAtMs: (key: Value) => number;
  readonly dropIfEmpty: (key: Value, size: number) => void;
  /** Deletes expired keys. */
  readonly sweep: () => void;
}

export function createKeyspace(nowMs: () => number): Keyspace {
  const keys = new Map<string, Kept>();

  function find(key: Value): Content | undefined {
    const kept = keys.get(key as string);
    if (kept === undefined) return undefined;
    if (kept.expiresAtMs >= nowMs()) return kept.content;
    keys.delete(key as string);
    return undefined;
  }

  return {
    nowMs,
    keys,
    find,
    textAt(key) {
      const content = find(key);
      if (content === undefined || typeof content === "string") return content;
      throw wrongType();
    },
    hashAt(key) {
      const content = find(key);
      if (content === undefined || content instanceof Map) return content;
      throw wrongType();
    },
    sortedAt(key) {
      const content = find(key);
      if (content === undefined || typeOfContent(content) === "zset") return content as SortedSet;
      throw wrongType();
    },
    listAt(key) {
      const content = find(key);
      if (content === undefined || Array.isArray(content)) return content;
      throw wrongType();
    },
    membersAt(key) {
      const content = find(key);
      if (content === undefined || content instanceof Set) return content;
      throw wrongType();
    },
    streamAt(key) {
      const content = find(key);
      if (content === undefined || typeOfContent(content) === "stream") return content as Stream;
      throw wrongType();
    },
    keep(key, found, make) {
      if (found !== undefined) return found;
      const content = make();
      keys.set(key as string, { content, expiresAtMs: Infinity });
      return content;
    },
    put(key, content, expiresAtMs) {
      const kept = keys.get(key as string);
      if (kept === undefined) keys.set(key as string, { content, expiresAtMs });
      else {
        kept.content = content;
        kept.expiresAtMs = expiresAtMs;
      }
    },
    expiresAtMs: (key) => keys.get(key as string)?.expiresAtMs ?? Infinity,
    dropIfEmpty(key, size) {
      if (size === 0) keys.delete(key as string);
    },
    sweep() {
      const now = nowMs();
      for (const [key, { expiresAtMs }] of keys) if (expiresAtMs < now) keys.delete(key);
    },
  };
}

/** Returns the type of a value, as `TYPE` names it. */
export function typeOfContent(content: Content): string {
  if (typeof content === "string") return "string";
  if (content instanceof Map) return "hash";
  if ("scores" in content) return "zset";
  if (Array.isArray(content)) return "list";
  return content instanceof Set ? "set" : "stream";
}

function wrongType(): Error {
  return new Error("WRONGTYPE Operation against a key holding the wrong kind of value");
}
