import { digits, tableOf, type Commands, type Table, type Value } from "../../lua/runtime.ts";
import type { Keyspace } from "../keyspace.ts";
import {
  addEntry,
  createSortedSet,
  rankOfMember,
  ranksOf,
  removeEntry,
  removeRanks,
  type SortedSet,
} from "../sorted-set.ts";
import {
  bytesOf,
  countOf,
  floatOf,
  integerOf,
  optionOf,
  rangeOf,
  scanned,
  sliceOf,
  syntaxError,
} from "./arguments.ts";

type Ranks = readonly [from: number, to: number];

interface RangeOptions {
  readonly hasScores: boolean;
  readonly offset: number;
  readonly limit: number;
}

const PLAIN: RangeOptions = { hasScores: false, offset: 0, limit: -1 };
const ADD_OPTIONS = new Set(["NX", "XX", "GT", "LT", "CH", "INCR"]);

export function sortedSetCommands(keyspace: Keyspace): Commands {
  const { sortedAt, find, keep, dropIfEmpty, keys } = keyspace;

  /** Returns the members at ranks, which count from the highest score with `isReverse`. */
  function members(
    set: SortedSet | undefined,
    [first, end]: Ranks,
    isReverse: boolean,
    { hasScores, offset, limit }: RangeOptions,
  ): Table {
    const found: string[] = [];
    if (set === undefined || offset < 0) return tableOf(found);
    const count = Math.min(Math.max(0, end - first - offset), limit < 0 ? Infinity : limit);
    for (let index = 0; index < count; index++) {
      const rank = isReverse ? end - 1 - offset - index : first + offset + index;
      const { member, score } = set.entries[rank]!;
      found.push(member);
      if (hasScores) found.push(digits(score, 17));
    }
    return tableOf(found);
  }

  function byRank(key: Value, from: Value, to: Value, isReverse: boolean, options: RangeOptions) {
    const set = sortedAt(key);
    const count = set?.entries.length ?? 0;
    const [first, end] = sliceOf(from, to, count);
    const capped = Math.min(end, count);
    const ranks: Ranks = isReverse ? [count - capped, count - first] : [first, capped];
    return members(set, ranks, isReverse, options);
  }

  function byScore(
    key: Value,
    least: Value,
    most: Value,
    isReverse: boolean,
    options: RangeOptions,
  ) {
    const set = sortedAt(key);
    const ranks = set === undefined ? NO_RANKS : ranksOf(set, rangeOf(least, most));
    return members(set, ranks, isReverse, options);
  }

  function byText(
    key: Value,
    least: Value,
    most: Value,
    isReverse: boolean,
    options: RangeOptions,
  ) {
    const set = sortedAt(key);
    return members(set, textRanks(set, least, most), isReverse, options);
  }

  function removeAt(key: Value, find: (set: SortedSet) => Ranks): number {
    const set = sortedAt(key);
    if (set === undefined) return 0;
    const count = removeRanks(set, ...find(set));
    dropIfEmpty(key, set.entries.length);
    return count;
  }

  function pop(key: Value, count: Value, isMost: boolean): Table {
    const most = count === undefined ? 1 : countOf(count);
    const set = sortedAt(key);
    if (set === undefined) return tableOf([]);
    const size = set.entries.length;
    const taken = Math.min(size, most);
    const ranks: Ranks = isMost ? [size - taken, size] : [0, taken];
    const popped = members(set, ranks, isMost, { ...PLAIN, hasScores: true });
    removeRanks(set, ...ranks);
    dropIfEmpty(key, set.entries.length);
    return popped;
  }

  function add(key: Value, operands: readonly Value[]): Value {
    const options = new Set<string>();
    let at = 0;
    for (; typeof operands[at] === "string"; at += 1) {
      const option = (operands[at] as string).toUpperCase();
      if (!ADD_OPTIONS.has(option)) break;
      options.add(option);
    }
    const pairs = operands.slice(at);
    if (pairs.length === 0 || pairs.length % 2 !== 0) throw syntaxError();
    if (options.size > 1) assertTogether(options);
    if (options.has("INCR") && pairs.length > 2)
      throw new Error("ERR INCR option supports a single increment-element pair");
    const scores = pairs.filter((_, index) => index % 2 === 0).map(floatOf);
    const found = sortedAt(key);
    if (found === undefined && options.has("XX")) return options.has("INCR") ? false : 0;
    const set = keep(key, found, createSortedSet);
    let [added, changed] = [0, 0];
    let sum: Value = false;
    for (const [index, given] of scores.entries()) {
      const member = bytesOf(pairs[2 * index + 1]);
      const before = set.scores.get(member);
      const score = options.has("INCR") ? (before ?? 0) + given : given;
      if (Number.isNaN(score)) throw new Error("ERR resulting score is not a number (NaN)");
      if (before === undefined ? options.has("XX") : options.has("NX")) continue;
      if (before !== undefined && options.has("GT") && score <= before) continue;
      if (before !== undefined && options.has("LT") && score >= before) continue;
      if (addEntry(set, member, score)) added += 1;
      else if (score !== before) changed += 1;
      sum = digits(score, 17);
    }
    dropIfEmpty(key, set.entries.length);
    if (options.has("INCR")) return sum;
    return options.has("CH") ? added + changed : added;
  }

  /** The entries of a sorted set, or of a set, whose members count with a score of 1. */
  function entriesAt(key: Value): Iterable<{ readonly member: string; readonly score: number }> {
    const content = find(key);
    if (content instanceof Set) return [...content].map((member) => ({ member, score: 1 }));
    return sortedAt(key)?.entries ?? [];
  }

  function combine(operands: readonly Value[], isUnion: boolean): number {
    const [target, given, ...others] = operands;
    const count = integerOf(given);
    const names = others.slice(0, count);
    let weights = names.map(() => 1);
    let join = (a: number, b: number): number => a + b;
    for (let at = count; at < others.length;) {
      const option = optionOf(others[at]);
      if (option === "WEIGHTS") {
        weights = others.slice(at + 1, at + 1 + count).map(floatOf);
        at += 1 + count;
      } else if (option === "AGGREGATE") {
        const how = optionOf(others[at + 1]);
        if (how !== "SUM") join = how === "MIN" ? Math.min : Math.max;
        at += 2;
      } else throw syntaxError();
    }
    const scores = new Map<string, number>();
    const counts = new Map<string, number>();
    for (const [index, name] of names.entries()) {
      for (const { member, score } of entriesAt(name)) {
        const own = score * weights[index]!;
        const before = scores.get(member);
        scores.set(member, before === undefined ? own : join(before, own));
        counts.set(member, (counts.get(member) ?? 0) + 1);
      }
    }
    const set = createSortedSet();
    for (const [member, score] of scores) {
      if (isUnion || counts.get(member) === names.length) addEntry(set, member, score);
    }
    keys.delete(target as string);
    if (set.entries.length > 0) keep(target, undefined, () => set);
    return set.entries.length;
  }

  function rank(key: Value, member: Value): number | undefined {
    const set = sortedAt(key);
    return set && rankOfMember(set, bytesOf(member));
  }

  return {
    ZADD: (key, ...operands) => add(key, operands),
    ZINCRBY: (key, amount, member) => add(key, ["INCR", amount, member]),
    ZREM(key, ...given) {
      const set = sortedAt(key);
      if (set === undefined) return 0;
      let count = 0;
      for (const member of given) if (removeEntry(set, bytesOf(member))) count += 1;
      dropIfEmpty(key, set.entries.length);
      return count;
    },
    ZCARD: (key) => sortedAt(key)?.entries.length ?? 0,
    ZSCORE(key, member) {
      const score = sortedAt(key)?.scores.get(bytesOf(member));
      return score === undefined ? false : digits(score, 17);
    },
    ZMSCORE(key, ...given) {
      const scores = sortedAt(key)?.scores;
      const found = given.map((member) => scores?.get(bytesOf(member)));
      return tableOf(found.map((score) => (score === undefined ? false : digits(score, 17))));
    },
    ZRANK: (key, member) => rank(key, member) ?? false,
    ZREVRANK(key, member) {
      const found = rank(key, member);
      return found === undefined ? false : sortedAt(key)!.entries.length - 1 - found;
    },
    ZCOUNT(key, least, most) {
      const set = sortedAt(key);
      if (set === undefined) return 0;
      const [from, to] = ranksOf(set, rangeOf(least, most));
      return Math.max(0, to - from);
    },
    ZLEXCOUNT(key, least, most) {
      const [from, to] = textRanks(sortedAt(key), least, most);
      return Math.max(0, to - from);
    },
    ZRANGE(key, from, to, ...given) {
      if (given.length === 0) return byRank(key, from, to, false, PLAIN);
      const { flags, ...options } = readOptions(given);
      const isReverse = flags.has("REV");
      if (flags.has("BYSCORE") || flags.has("BYLEX")) {
        const find = flags.has("BYLEX") ? byText : byScore;
        return isReverse ? find(key, to, from, true, options) : find(key, from, to, false, options);
      }
      return byRank(key, from, to, isReverse, options);
    },
    ZREVRANGE: (key, from, to, ...given) => byRank(key, from, to, true, readOptions(given)),
    ZRANGEBYSCORE: (key, least, most, ...given) =>
      byScore(key, least, most, false, given.length === 0 ? PLAIN : readOptions(given)),
    ZREVRANGEBYSCORE: (key, most, least, ...given) =>
      byScore(key, least, most, true, readOptions(given)),
    ZRANGEBYLEX: (key, least, most, ...given) =>
      byText(key, least, most, false, readOptions(given)),
    ZREVRANGEBYLEX: (key, most, least, ...given) =>
      byText(key, least, most, true, readOptions(given)),
    ZREMRANGEBYSCORE: (key, least, most) =>
      removeAt(key, (set) => ranksOf(set, rangeOf(least, most))),
    ZREMRANGEBYLEX: (key, least, most) => removeAt(key, (set) => textRanks(set, least, most)),
    ZREMRANGEBYRANK: (key, from, to) =>
      removeAt(key, ({ entries }) => sliceOf(from, to, entries.length)),
    ZPOPMIN: (key, ...count) => pop(key, count[0], false),
    ZPOPMAX: (key, ...count) => pop(key, count[0], true),
    ZUNIONSTORE: (...operands) => combine(operands, true),
    ZINTERSTORE: (...operands) => combine(operands, false),
    ZSCAN(key, cursor, ...options) {
      const entries = sortedAt(key)?.entries ?? [];
      return scanned(
        cursor,
        options,
        entries.map(({ member, score }) => [member, digits(score, 17)]),
      );
    },
  };
}

/** Refuses options of `ZADD` that exclude each other. */
function assertTogether(options: ReadonlySet<string>): void {
  if (options.has("NX") && options.has("XX"))
    throw new Error("ERR XX and NX options at the same time are not compatible");
  if (["GT", "LT", "NX"].filter((option) => options.has(option)).length > 1)
    throw new Error("ERR GT, LT, and/or NX options at the same time are not compatible");
}

const NO_RANKS: Ranks = [0, 0];

function readOptions(given: readonly Value[]): RangeOptions & { readonly flags: Set<string> } {
  const flags = new Set<string>();
  let [offset, limit] = [0, -1];
  for (let at = 0; at < given.length; at += 1) {
    const name = optionOf(given[at]);
    if (name === "LIMIT") {
      [offset, limit] = [integerOf(given[at + 1]), integerOf(given[at + 2])];
      at += 2;
    } else if (name !== undefined && /^(?:WITHSCORES|REV|BYSCORE|BYLEX)$/.test(name)) {
      flags.add(name);
    } else throw syntaxError();
  }
  return { hasScores: flags.has("WITHSCORES"), offset, limit, flags };
}

/** Finds the ranks of a range of members, in a set whose members all have the same score. */
function textRanks(set: SortedSet | undefined, least: Value, most: Value): Ranks {
  const entries = set?.entries ?? [];
  return [place(least, false), place(most, true)];

  function place(bound: Value, isEnd: boolean): number {
    const text = bytesOf(bound);
    if (text === "-") return 0;
    if (text === "+") return entries.length;
    if (!/^[[(]/.test(text)) throw new Error("ERR min or max not valid string range item");
    const member = text.slice(1);
    // The first rank at or after the member, or after it.
    const isAfter = (text[0] === "[") === isEnd;
    let [low, high] = [0, entries.length];
    while (low < high) {
      const middle = (low + high) >>> 1;
      const own = entries[middle]!.member;
      if (own < member || (isAfter && own === member)) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
