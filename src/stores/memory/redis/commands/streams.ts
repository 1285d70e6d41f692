import { tableOf, type Commands, type Table, type Value } from "../../lua/runtime.ts";
import type { Keyspace, Stream, StreamEntry } from "../keyspace.ts";
import { bytesOf, integerOf, optionOf, syntaxError } from "./arguments.ts";

type Id = readonly [ms: number, sequence: number];

/** Redis stores entries in nodes of this size, and trims only whole nodes with `~`. */
const NODE_SIZE = 100;
const LAST = Number.MAX_SAFE_INTEGER;

/** Streams without consumer groups. */
export function streamCommands({ streamAt, keep, nowMs }: Keyspace): Commands {
  function range(
    key: Value,
    from: Value,
    to: Value,
    given: readonly Value[],
    isReverse: boolean,
  ): Table {
    const count = optionOf(given[0]) === "COUNT" ? integerOf(given[1]) : Infinity;
    const items = streamAt(key)?.items ?? [];
    const [first, end] = [
      placeOf(items, boundOf(from, 0), false),
      placeOf(items, boundOf(to, LAST), true),
    ];
    const found = items.slice(first, end);
    return entriesOf((isReverse ? found.reverse() : found).slice(0, count));
  }

  const commands: Commands = {
    XADD(key, ...operands) {
      const [trimming, next, makes] = readTrimming(operands);
      const id = bytesOf(operands[next]);
      const fields = operands.slice(next + 1).map(bytesOf);
      if (fields.length === 0 || fields.length % 2 !== 0)
        throw new Error("ERR wrong number of arguments for 'xadd' command");
      const found = streamAt(key);
      if (found === undefined && !makes) return false;
      const stream = keep(key, found, createStream);
      const [ms, sequence] = nextId(stream, id, nowMs());
      stream.items.push({ ms, sequence, fields });
      [stream.lastMs, stream.lastSequence] = [ms, sequence];
      stream.added += 1;
      trim(stream, trimming);
      return `${ms}-${sequence}`;
    },
    XTRIM(key, ...operands) {
      const stream = streamAt(key);
      return stream === undefined ? 0 : trim(stream, readTrimming(operands)[0]);
    },
    XLEN: (key) => streamAt(key)?.items.length ?? 0,
    XDEL(key, ...ids) {
      const items = streamAt(key)?.items ?? [];
      let count = 0;
      for (const id of ids) {
        const [ms, sequence] = idOf(bytesOf(id), 0);
        const at = placeOf(items, [ms, sequence], false);
        if (items[at]?.ms !== ms || items[at].sequence !== sequence) continue;
        items.splice(at, 1);
        count += 1;
      }
      return count;
    },
    XRANGE: (key, from, to, ...options) => range(key, from, to, options, false),
    XREVRANGE: (key, to, from, ...options) => range(key, from, to, options, true),
    XREAD(...operands) {
      const { count, keys, ids } = readXread(operands);
      const found = keys.flatMap((key, index) => {
        const items = streamAt(key)?.items ?? [];
        const id = bytesOf(ids[index]);
        const from = id === "$" ? items.length : placeOf(items, idOf(id, 0), true);
        const entries = items.slice(from, count === 0 ? undefined : from + count);
        return entries.length === 0 ? [] : [tableOf([key, entriesOf(entries)])];
      });
      return found.length === 0 ? false : tableOf(found);
    },
    XINFO(what, key) {
      const stream = streamAt(key);
      if (optionOf(what) !== "STREAM") throw syntaxError();
      if (stream === undefined) throw new Error("ERR no such key");
      const { items, added } = stream;
      const edge = (entry: StreamEntry | undefined): Value => (entry ? entryOf(entry) : false);
      const facts = {
        length: items.length,
        "last-generated-id": lastIdOf(stream),
        "entries-added": added,
        groups: 0,
        "first-entry": edge(items[0]),
        "last-entry": edge(items.at(-1)),
      };
      return tableOf(Object.entries(facts).flat());
    },
  };
  return commands;
}

function createStream(): Stream {
  return { items: [], lastMs: 0, lastSequence: 0, added: 0 };
}

export function lastIdOf({ lastMs, lastSequence }: Stream): string {
  return `${lastMs}-${lastSequence}`;
}

export function readXread(operands: readonly Value[]): {
  readonly count: number;
  /** Undefined if the command does not block. */
  readonly blockMs: number | undefined;
  readonly keys: readonly Value[];
  readonly ids: readonly Value[];
} {
  let [count, blockMs] = [0, undefined as number | undefined];
  for (let at = 0; at < operands.length; at += 2) {
    const option = optionOf(operands[at]);
    if (option === "COUNT") count = integerOf(operands[at + 1]);
    else if (option === "BLOCK") blockMs = integerOf(operands[at + 1]);
    else if (option === "STREAMS") {
      const rest = operands.slice(at + 1);
      const half = rest.length / 2;
      return { count, blockMs, keys: rest.slice(0, half), ids: rest.slice(half) };
    } else break;
  }
  throw syntaxError();
}

interface Trimming {
  readonly isRough: boolean;
  readonly most?: number;
  readonly least?: Id;
}

/** Reads the options of `XADD` and `XTRIM`. Returns also the index after them, and whether XADD may create the stream. */
function readTrimming(
  operands: readonly Value[],
): readonly [Trimming | undefined, next: number, makes: boolean] {
  let [at, makes] = [0, true];
  let trimming: Trimming | undefined;
  for (;;) {
    const option = optionOf(operands[at]);
    if (option === "NOMKSTREAM") {
      makes = false;
      at += 1;
    } else if (option === "LIMIT") at += 2;
    else if (option === "MAXLEN" || option === "MINID") {
      at += 1;
      const isRough = operands[at] === "~";
      if (isRough || operands[at] === "=") at += 1;
      const bound = operands[at];
      at += 1;
      trimming =
        option === "MAXLEN"
          ? { isRough, most: integerOf(bound) }
          : { isRough, least: idOf(bytesOf(bound), 0) };
    } else return [trimming, at, makes];
  }
}

function trim({ items }: Stream, trimming: Trimming | undefined): number {
  if (trimming === undefined) return 0;
  const { most = Infinity, least, isRough } = trimming;
  const excess =
    least === undefined ? Math.max(0, items.length - most) : placeOf(items, least, false);
  const count = isRough ? Math.floor(excess / NODE_SIZE) * NODE_SIZE : excess;
  items.splice(0, count);
  return count;
}

function nextId({ lastMs, lastSequence }: Stream, id: string, nowMs: number): Id {
  if (id === "*") return nowMs > lastMs ? [nowMs, 0] : [lastMs, lastSequence + 1];
  const ms = Number(id.split("-")[0]);
  if (id.endsWith("-*")) return [ms, ms === lastMs ? lastSequence + 1 : 0];
  const given = idOf(id, 0);
  if (compare(given, [lastMs, lastSequence]) > 0) return given;
  throw new Error(
    "ERR The ID specified in XADD is equal or smaller than the target stream top item",
  );
}

function idOf(id: string, sequence: number): Id {
  const [, ms, own] = /^(\d+)(?:-(\d+))?$/.exec(id) ?? [];
  if (ms === undefined)
    throw new Error("ERR Invalid stream ID specified as stream command argument");
  return [Number(ms), own === undefined ? sequence : Number(own)];
}

function boundOf(bound: Value, sequence: number): Id {
  const id = bytesOf(bound);
  if (id === "-") return [0, 0];
  if (id === "+") return [LAST, LAST];
  if (!id.startsWith("(")) return idOf(id, sequence);
  const [ms, own] = idOf(id.slice(1), sequence);
  return [ms, own + (sequence === 0 ? 1 : -1)];
}

function compare([ms, sequence]: Id, [otherMs, otherSequence]: Id): number {
  return ms === otherMs ? sequence - otherSequence : ms - otherMs;
}

/** Returns the index of the first entry at or after an id, or after it with `isAfter`. */
function placeOf(items: readonly StreamEntry[], id: Id, isAfter: boolean): number {
  let [low, high] = [0, items.length];
  while (low < high) {
    const middle = (low + high) >>> 1;
    const { ms, sequence } = items[middle]!;
    const order = compare([ms, sequence], id);
    if (order < 0 || (isAfter && order === 0)) low = middle + 1;
    else high = middle;
  }
  return low;
}

function entriesOf(entries: readonly StreamEntry[]): Table {
  return tableOf(entries.map(entryOf));
}

function entryOf({ ms, sequence, fields }: StreamEntry): Table {
  return tableOf([`${ms}-${sequence}`, tableOf([...fields])]);
}
