/** A Lua value. Nil is `undefined`. Each character of a string represents one byte. */
export type Value = undefined | boolean | number | string | Table | ((...args: never[]) => Values);
/** The result of a Lua function: one value, or an array of several. */
export type Values = Value | Value[];

/**
 * A Lua table. A field whose name is written in a script, such as `t.name`, is stored as the
 * property `$name`.
 */
export interface Table {
  /** The values of the keys 1, 2, … */
  a: Value[];
  /** The values of all other keys, except named fields. */
  h: Map<Value, Value> | undefined;
  m: Table | undefined;
  [field: `$${string}`]: Value;
}

/**
 * An empty list that all tables without items share, to save allocations. Never change this list.
 */
export const none: Value[] = [];

export function tableOf(items: Value[]): Table {
  return { a: items, h: undefined, m: undefined };
}

export function isTable(value: Values): value is Table {
  return typeof value === "object" && !Array.isArray(value);
}

const HEAD = new Set(["a", "h", "m"]);

/**
 * The field names that are written in scripts. `t[name]` must find the property that `t.name` uses.
 */
const fieldNames = new Set<string>();

/** Registers the field names that are written in a script. */
export function knowFields(names: readonly string[]): void {
  for (const name of names) fieldNames.add(name);
}

export function get(table: Table, key: Value): Value {
  if (typeof key === "number") {
    const items = table.a;
    if (key >= 1 && key <= items.length) {
      const found = items[key - 1];
      if (found !== undefined) return found;
    }
    if (table.h === undefined && table.m === undefined) return undefined;
  }
  return getOther(table, key);
}

function getOther(table: Table, key: Value): Value {
  const found = rawGet(table, key);
  if (found !== undefined || table.m === undefined) return found;
  const index = table.m["$__index"];
  if (typeof index === "function")
    return first((index as (...args: unknown[]) => Values)(table, key));
  return index === undefined ? undefined : get(index as Table, key);
}

export function rawGet(table: Table, key: Value): Value {
  if (typeof key === "number" && key >= 1 && key <= table.a.length) return table.a[key - 1];
  if (typeof key === "string" && fieldNames.has(key)) return table[`$${key}`];
  return table.h?.get(key);
}

export function set(table: Table, key: Value, value: Value): void {
  if (typeof key === "number") {
    const items = table.a;
    const count = items.length;
    if (key >= 1 && key <= count) {
      items[key - 1] = value;
      if (value === undefined && key === count) trim(items);
      return;
    }
    if (key === count + 1) {
      if (value === undefined) {
        table.h?.delete(key);
        return;
      }
      if (items === none) table.a = [value];
      else items.push(value);
      if (table.h !== undefined) takeNext(table, table.h);
      return;
    }
  }
  if (key === undefined) throw new Error("a table cannot have nil as a key");
  if (typeof key === "string" && fieldNames.has(key)) table[`$${key}`] = value;
  else if (value === undefined) table.h?.delete(key);
  else (table.h ??= new Map()).set(key, value);
}

/**
 * Moves a key that now follows the last list item into the list, and repeats this for the keys
 * after it.
 */
function takeNext({ a }: Table, others: Map<Value, Value>): void {
  others.delete(a.length);
  for (let next = others.get(a.length + 1); next !== undefined; next = others.get(a.length + 1)) {
    others.delete(a.length + 1);
    a.push(next);
  }
}

/** Removes nils at the end of a list. */
export function trim(items: Value[]): Value[] {
  while (items.length > 0 && items[items.length - 1] === undefined) items.pop();
  return items;
}

export function lengthOf(value: Value): number {
  return typeof value === "string" ? value.length : (value as Table).a.length;
}

export function first(values: Values): Value {
  return Array.isArray(values) ? values[0] : values;
}

export function list(values: Values): Value[] {
  return Array.isArray(values) ? values : [values];
}

export function isTrue(value: Value): boolean {
  return value !== undefined && value !== false;
}

/** Converts a value to a string as Lua does. A number gets 14 significant digits. */
export function text(value: Value): string {
  if (typeof value === "string") return value;
  if (typeof value === "number") return digits(value, 14);
  throw new Error(`a ${typeOf(value)} cannot be converted to a string`);
}

/** Formats a number as C's `%.<count>g` does. */
export function digits(value: number, count: number): string {
  if (Number.isInteger(value) && Math.abs(value) < 10 ** count) {
    return Object.is(value, -0) ? "-0" : String(value);
  }
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "nan" : value > 0 ? "inf" : "-inf";
  const plain = value.toPrecision(count);
  // C writes an exponent for the same values, except for the smallest ones.
  if (Math.abs(value) >= 1e-4 && !plain.includes("e")) {
    let end = plain.includes(".") ? plain.length : 0;
    while (plain[end - 1] === "0") end -= 1;
    if (plain[end - 1] === ".") end -= 1;
    return end > 0 ? plain.slice(0, end) : plain;
  }
  const [mantissa, exponent] = value.toExponential(count - 1).split("e") as [string, string];
  const power = Number(exponent);
  if (power >= -4 && power < count) {
    const fixed = value.toFixed(Math.max(0, count - 1 - power));
    return fixed.includes(".") ? fixed.replace(/\.?0+$/, "") : fixed;
  }
  const sign = power < 0 ? "-" : "+";
  const short = mantissa.includes(".") ? mantissa.replace(/\.?0+$/, "") : mantissa;
  return `${short}e${sign}${String(Math.abs(power)).padStart(2, "0")}`;
}

export function modulo(left: Value, right: Value): number {
  const a = Number(left);
  const b = Number(right);
  return a - Math.floor(a / b) * b;
}

export function toNumber(value: Value, base?: Value): Value {
  if (typeof value === "number") return value;
  if (typeof value !== "string") return undefined;
  if (base !== undefined && base !== 10) {
    const whole = parseInt(value, base as number);
    return Number.isNaN(whole) ? undefined : whole;
  }
  const number = Number(value);
  if (number === 0 && value.trim() === "") return undefined;
  return Number.isNaN(number) ? undefined : number;
}

export function toText(value: Value): string {
  if (value === undefined) return "nil";
  return typeof value === "boolean" ? String(value) : text(value);
}

/** The value of `null` in JSON: not nil, so that a table can contain it. */
export const jsonNull: Table = tableOf([]);

export function typeOf(value: Value): string {
  if (value === undefined) return "nil";
  if (value === jsonNull) return "userdata";
  return typeof value === "object" ? "table" : typeof value;
}

/** Formats a number as C's `%.0f` does. Halves are rounded to the even number. */
function whole(value: number): string {
  if (!Number.isInteger(value)) {
    const floor = Math.floor(value);
    const rest = value - floor;
    if (rest > 0.5 || (rest === 0.5 && floor % 2 !== 0)) return whole(floor + 1);
    return Number.isFinite(value) ? whole(floor) : digits(value, 14);
  }
  if (Object.is(value, -0)) return "-0";
  return Math.abs(value) < 1e21 ? String(value) : BigInt(value).toString();
}

type Part = string | ((value: Value) => string);
const formats = new Map<string, readonly Part[]>();

export function format(pattern: string, ...values: Value[]): string {
  if (pattern === "%.0f") return whole(Number(values[0]));
  let parts = formats.get(pattern);
  if (parts === undefined) {
    parts = partsOf(pattern);
    formats.set(pattern, parts);
  }
  let made = "";
  let at = 0;
  for (const part of parts) made += typeof part === "string" ? part : part(values[at++]);
  return made;
}

function partsOf(pattern: string): readonly Part[] {
  const parts: Part[] = [];
  for (const [, plain, zero, width, digits_, letter] of pattern.matchAll(
    /([^%]+)|%(0?)(\d*)(?:\.(\d+))?([dsfgx%])|%/g,
  )) {
    if (plain !== undefined || letter === "%") parts.push(plain ?? "%");
    else if (letter === undefined) throw new Error(`the format ${pattern} is not supported`);
    else {
      const write = writerOf(letter, digits_ === undefined ? undefined : Number(digits_));
      const [size, filler] = [Number(width), zero === "0" ? "0" : " "];
      parts.push(size === 0 ? write : (value) => write(value).padStart(size, filler));
    }
  }
  return parts;
}

function writerOf(letter: string, precision: number | undefined): (value: Value) => string {
  switch (letter) {
    case "s":
      return toText;
    case "f":
      if (precision === 0) return (value) => whole(Number(value));
      return (value) => Number(value).toFixed(precision ?? 6);
    case "g":
      return (value) => digits(Number(value), precision ?? 6);
    case "x":
      return (value) => Math.trunc(Number(value)).toString(16);
    default:
      return (value) => whole(Math.trunc(Number(value)));
  }
}

export function sub(value: Value, from: number, to: number = -1): string {
  const all = text(value);
  const start = from < 0 ? Math.max(all.length + from, 0) : Math.max(from - 1, 0);
  return all.slice(start, Math.max(start, to < 0 ? all.length + to + 1 : to));
}

const CLASSES: Readonly<Record<string, string>> = {
  a: "A-Za-z",
  d: "0-9",
  l: "a-z",
  s: "\\t-\\r ",
  u: "A-Z",
  w: "A-Za-z0-9",
  x: "0-9A-Fa-f",
};
const patterns = new Map<string, RegExp>();

/** Converts a Lua pattern to a regular expression. `%b` and `%f` are not supported. */
function regularOf(pattern: string): RegExp {
  const found = patterns.get(pattern);
  if (found !== undefined) return found;
  let inSet = false;
  const source = pattern.replace(
    /%(.)|[[\]{}|\\/?*+.()^$-]/gs,
    (whole_, name: string | undefined, at: number) => {
      if (name !== undefined) {
        const set = CLASSES[name];
        if (set !== undefined) return inSet ? set : `[${set}]`;
        const negated = CLASSES[name.toLowerCase()];
        if (negated !== undefined && !inSet) return `[^${negated}]`;
        if (/[A-Za-z0-9]/.test(name))
          throw new Error(`the Lua pattern ${pattern} is not supported`);
        return `\\${name}`;
      }
      if (whole_ === "[" && !inSet) {
        inSet = true;
        return "[";
      }
      if (whole_ === "]" && inSet) {
        inSet = false;
        return "]";
      }
      if (inSet)
        return whole_ === "^" && pattern[at - 1] === "["
          ? "^"
          : whole_ === "-"
            ? "-"
            : `\\${whole_}`;
      // A repetition follows one character or class. After a group or at the start, it is itself.
      if (/[-*+?]/.test(whole_) && /^\^?$|[()]$/.test(pattern.slice(0, at).replaceAll(/%./gs, "x")))
        return `\\${whole_}`;
      if (whole_ === "-") return "*?";
      if (whole_ === "^") return at === 0 ? "^" : "\\^";
      if (whole_ === "$") return at === pattern.length - 1 ? "$" : "\\$";
      return /[{}|\\/]/.test(whole_) ? `\\${whole_}` : whole_;
    },
  );
  const made = new RegExp(source, "gs");
  patterns.set(pattern, made);
  return made;
}

function captures(found: RegExpExecArray): Values {
  return found.length === 1 ? found[0] : found.length === 2 ? found[1] : found.slice(1);
}

export function match(value: Value, pattern: string): Values {
  const regular = regularOf(pattern);
  regular.lastIndex = 0;
  const found = regular.exec(text(value));
  return found === null ? undefined : captures(found);
}

export function matches(value: Value, pattern: string): Value[][] {
  const all = text(value);
  const regular = regularOf(pattern);
  const made: Value[][] = [];
  regular.lastIndex = 0;
  for (let found = regular.exec(all); found !== null; found = regular.exec(all)) {
    made.push(list(captures(found)));
    if (found[0] === "") regular.lastIndex += 1;
  }
  return made;
}

export function find(value: Value, pattern: string, from: number = 1, isPlain?: Value): Values {
  const all = text(value);
  if (isPlain === true) {
    const at = all.indexOf(pattern, from - 1);
    return at < 0 ? undefined : [at + 1, at + pattern.length];
  }
  const regular = regularOf(pattern);
  regular.lastIndex = from - 1;
  const found = regular.exec(all);
  return found === null
    ? undefined
    : [found.index + 1, found.index + found[0].length, ...found.slice(1)];
}

export function gsub(value: Value, pattern: string, by: Value): Values {
  let count = 0;
  const made = text(value).replace(regularOf(pattern), (...found) => {
    count += 1;
    const parts = found.slice(
      0,
      found.findIndex((each) => typeof each === "number"),
    );
    if (typeof by === "string") {
      return by.replace(/%(.)/g, (_, name: string) =>
        /\d/.test(name) ? parts[Number(name)] : name,
      );
    }
    const of = parts[1] ?? parts[0];
    const put =
      typeof by === "function"
        ? first((by as (...args: unknown[]) => Values)(of))
        : get(by as Table, of);
    return isTrue(put) ? text(put) : parts[0];
  });
  return [made, count];
}

export function concat(
  { a }: Table,
  between: Value = "",
  from: number = 1,
  to: number = a.length,
): string {
  const part = from === 1 && to === a.length ? a : a.slice(from - 1, to);
  let made = "";
  for (let index = 0; index < part.length; index++) {
    made += index === 0 ? text(part[index]) : text(between) + text(part[index]);
  }
  return made;
}

export function insert(table: Table, ...given: [Value] | [number, Value]): undefined {
  if (table.a === none) table.a = [];
  if (given.length === 1) {
    table.a.push(given[0]);
    if (table.h !== undefined) takeNext(table, table.h);
  } else table.a.splice(given[0] - 1, 0, given[1]);
}

export function remove({ a }: Table, at: number = a.length): Value {
  return a.length === 0 ? undefined : a.splice(at - 1, 1)[0];
}

export function sort({ a }: Table, before?: Value): undefined {
  if (before === undefined) {
    a.sort((left, right) => (left! < right! ? -1 : left! > right! ? 1 : 0));
    return;
  }
  const isBefore = before as (left: unknown, right: unknown) => Values;
  a.sort((left, right) =>
    isTrue(first(isBefore(left, right))) ? -1 : isTrue(first(isBefore(right, left))) ? 1 : 0,
  );
}

export function unpack({ a }: Table, from: number = 1, to: number = a.length): Value[] {
  const items = a.slice(from - 1, to);
  while (items.length < to - from + 1) items.push(undefined);
  return items;
}

export function select(from: Value, ...values: Value[]): Values {
  return from === "#" ? values.length : values.slice(Number(from) - 1);
}

export function* pairs(table: Table): Generator<[Value, Value]> {
  for (let index = 0; index < table.a.length; index++) {
    if (table.a[index] !== undefined) yield [index + 1, table.a[index]];
  }
  for (const name of Object.keys(table)) {
    if (HEAD.has(name)) continue;
    const value = table[name as `$${string}`];
    if (value !== undefined) yield [name.slice(1), value];
  }
  if (table.h !== undefined) yield* table.h;
}

export function next(table: Table): Values {
  for (const pair of pairs(table)) return pair;
  return undefined;
}

export function* iterate(step: Value, state: Value, control: Value): Generator<Value[]> {
  for (;;) {
    const values = list((step as (...args: unknown[]) => Values)(state, control));
    if (values[0] === undefined) return;
    [control] = values;
    yield values;
  }
}

export function fill(table: Table, entries: readonly (readonly [Value, Value])[]): Table {
  for (const [key, value] of entries) set(table, key, value);
  return table;
}

export function setMeta(table: Table, meta: Table): Table {
  table.m = meta;
  return table;
}

/**
 * `doubles` and `bytes` share the same memory, to convert numbers to bytes and back. The bytes are
 * little-endian, as `struct`'s `<` requires, because every machine that Node supports is
 * little-endian.
 */
let doubles = new Float64Array(64);
let bytes = Buffer.from(doubles.buffer);

function makeRoom(count: number): void {
  if (count <= doubles.length) return;
  doubles = new Float64Array(2 * count);
  bytes = Buffer.from(doubles.buffer);
}

export function packDoubles(values: readonly Value[]): string {
  const count = values.length;
  makeRoom(count);
  for (let index = 0; index < count; index++) doubles[index] = values[index] as number;
  return bytes.toString("latin1", 0, count * 8);
}

/** Reads doubles from the start of a string. The next call reuses the returned array. */
export function readDoubles(count: number, value: Value): Float64Array {
  const packed = value as string;
  if (packed.length < count * 8) throw new Error("data string too short");
  makeRoom(count);
  bytes.write(packed, 0, count * 8, "latin1");
  return doubles;
}

export function unpackDoubles(count: number, value: Value): Value[] {
  readDoubles(count, value);
  const values: Value[] = [];
  for (let index = 0; index < count; index++) values.push(doubles[index]!);
  values.push(count * 8 + 1);
  return values;
}

/**
 * Unpacks values as Lua's `struct.unpack` does. Supports doubles (`d`) and strings of a given
 * length (`c72`).
 */
export function unpackStruct(pattern: string, value: Value, from: number = 1): Value[] {
  const packed = value as string;
  checkFormat(pattern);
  let at = from - 1;
  const values: Value[] = [];
  for (const [part, size] of pattern.matchAll(/d|c(\d+)/g)) {
    const width = part === "d" ? 8 : Number(size);
    if (packed.length < at + width) throw new Error("data string too short");
    const own = packed.slice(at, at + width);
    values.push(part === "d" ? readDoubles(1, own)[0]! : own);
    at += width;
  }
  values.push(at + 1);
  return values;
}

function checkFormat(pattern: string): void {
  if (!/^<(?:d|c\d+)*$/.test(pattern))
    throw new Error(`the struct format ${pattern} is not supported`);
}

export function pack(pattern: string, ...values: readonly Value[]): string {
  checkFormat(pattern);
  let at = 0;
  let packed = "";
  for (const [part, size] of pattern.matchAll(/d|c(\d+)/g)) {
    const value = values[at++];
    packed += part === "d" ? packDoubles([value]) : (value as string).slice(0, Number(size));
  }
  return packed;
}

export function errorReply(message: Value): Table {
  return { ...tableOf([]), $err: message };
}

export function fail(message: Value): never {
  throw new Error(text(message));
}

/** The Redis commands by name, in upper case. */
export type Commands = Readonly<Record<string, (...operands: Value[]) => Value>>;

/** Returns `redis.call`, for scripts that compute the command's name. */
export function caller(commands: Commands): (name: string, ...operands: Value[]) => Value {
  return (name, ...operands) => {
    const known = text(name).toUpperCase();
    if (!Object.hasOwn(commands, known)) {
      throw new Error(`the in-memory Redis has no command ${known}`);
    }
    return commands[known]!(...operands);
  };
}

export function rep(value: Value, count: number): string {
  return text(value).repeat(Math.max(0, count));
}
