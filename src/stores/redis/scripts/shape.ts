/**
 * The vocabulary of scripts: a shape says how a value is written as an argument, and how it is read from a reply. The
 * TypeScript types of both follow from it.
 */

export type Operand = string | number | Buffer;

/** Reads a value from a reply. */
export interface Reader<Value> {
  read(reply: unknown): Value;
}

/** One argument, or one part of a reply. */
export interface Shape<Value> extends Reader<Value> {
  write(value: Value): Operand;
}

/** All arguments or parts from here on, the same number for each value. It is the last field. */
export interface Rest<Value> extends Reader<readonly Value[]> {
  readonly names: readonly string[];
  readFrom(reply: readonly unknown[], start: number): readonly Value[];
  writeAll(values: readonly Value[]): Operand[];
}

/** An argument that follows from the input; if it `repeats`, a list of all arguments from here on. */
export interface Derived<Input> {
  readonly repeats?: boolean;
  from(input: Input): Operand | readonly Operand[];
}

/** Names of arguments, or of the parts of a reply, in their order. */
export type Fields = Readonly<Record<string, Reader<unknown> | Derived<never>>>;
/** Like the above, for a reply, or for the arguments of one of many values. */
export type Parts = Readonly<Record<string, Reader<unknown>>>;

/** What a shape, or fields of them, read. */
export type Read<Given> =
  Given extends Reader<infer Value>
    ? Value
    : { readonly [Name in keyof Given]: Given[Name] extends Reader<infer Value> ? Value : never };

/** The input that arguments are made of. What may be undefined may be left out. */
export type InputOf<Given> = Written<{
  readonly [
    Name in keyof Given as Given[Name] extends Reader<unknown> ? Name : never
  ]: Given[Name] extends Rest<infer Value> ? readonly Written<Value>[] : Read<Given[Name]>;
}> &
  Needed<Given>;

type Written<Value> = Value extends string | number
  ? Value
  : {
      readonly [Name in keyof Value as undefined extends Value[Name] ? never : Name]: Value[Name];
    } & {
      readonly [Name in keyof Value as undefined extends Value[Name] ? Name : never]?: Value[Name];
    };

/** What all derived arguments need together. */
type Needed<Given> = {
  [Name in keyof Given]: Given[Name] extends Derived<infer Input> ? (of: Input) => void : never;
}[keyof Given] extends (of: infer All) => void
  ? All
  : never;

export const text: Shape<string> = { read: String, write: (value) => value };
export const int: Shape<number> = { read: Number, write: (value) => value };
/** 1 or 0. */
export const flag: Shape<boolean> = {
  read: (reply) => Number(reply) === 1,
  write: (value) => (value ? 1 : 0),
};
/** Ms; below 0 without an end. */
export const endlessMs: Shape<number> = {
  read: (reply) => (Number(reply) < 0 ? Infinity : Number(reply)),
  write: (ms) => (ms === Infinity ? -1 : ms),
};
/** A reply that says nothing. */
export const nothing: Reader<void> = { read: () => undefined };

/** One of these texts. */
export function word<Word extends string>(): Shape<Word> {
  return text as Shape<Word>;
}

export function json<Value>(): Shape<Value> {
  return { read: (reply) => JSON.parse(String(reply)) as Value, write: JSON.stringify };
}

/** An argument that no reply has. */
export function written<Value>(write: (value: Value) => Operand): Shape<Value> {
  return { read: (reply) => reply as Value, write };
}

/** Empty, or nil in a reply, if it is undefined; an argument can have another default. */
export function optional<Value>(shape: Shape<Value>, byDefault?: Operand): Shape<Value | undefined>;
export function optional<Value>(reader: Reader<Value>): Reader<Value | undefined>;
export function optional<Value>(
  shape: Reader<Value>,
  byDefault: Operand = "",
): Shape<Value | undefined> {
  return {
    read: (reply) => (isEmpty(reply) ? undefined : shape.read(reply)),
    write: (value) => (value === undefined ? byDefault : (shape as Shape<Value>).write(value)),
  };
}

function isEmpty(reply: unknown): boolean {
  return reply === "" || reply === null || reply === undefined;
}

/** A number from `first` on stands for each of these. */
export function oneOf<const Value>(values: readonly Value[], first = 0): Reader<Value> {
  return { read: (reply) => values[Number(reply) - first]! };
}

/** Reads as a shape does, and makes another value of that. */
export function mapped<Given extends Reader<unknown> | Parts, Value>(
  given: Given,
  make: (value: Read<Given>) => Value,
): Reader<Value> {
  const reader = readerOf(given);
  return { read: (reply) => make(reader.read(reply)) };
}

/** A list in a list; empty if it is no list, as Lua has JSON say. */
export function list<Given extends Reader<unknown> | Parts>(
  given: Given,
): Reader<readonly Read<Given>[]> {
  const reader = readerOf(given);
  return {
    read: (reply) => (Array.isArray(reply) ? reply.map((each) => reader.read(each)) : []),
  };
}

/** A list within a reply that has the parts of each value one behind the other. */
export function flat<Given extends Parts>(given: Given): Reader<readonly Read<Given>[]> {
  const values = rest(given);
  return { read: (reply) => values.read(reply) };
}

/** Reads the rest of the reply as a list, although the reply has no list around these values. */
export function rest<Given extends Reader<unknown> | Parts>(given: Given): Rest<Read<Given>> {
  const parts = isReader(given) ? undefined : Object.entries(given);
  const one = isReader(given) ? given : undefined;
  const readAt = parts && partsReader(parts);
  const step = parts?.length ?? 1;

  function readFrom(reply: readonly unknown[], start: number): Read<Given>[] {
    const values: unknown[] = [];
    for (let at = start; at < reply.length; at += step) {
      values.push(readAt === undefined ? one!.read(reply[at]) : readAt(reply, at));
    }
    return values as Read<Given>[];
  }

  return {
    names: parts?.map(([name]) => name) ?? [],
    readFrom,
    read: (reply) => readFrom(reply as readonly unknown[], 0),
    writeAll: (values) =>
      parts === undefined
        ? values.map((value) => (one as Shape<unknown>).write(value))
        : values.flatMap((value) => writeParts(parts, value as object)),
  };
}

/** An argument that is the same each time. */
export function constant(value: Operand): Derived<unknown> {
  return { from: () => value };
}

/** An argument that is made of the input. */
export function from<Input>(make: Derived<Input>["from"]): Derived<Input> {
  return { from: make };
}

/** The arguments from here on, made of the input. */
export function fromEach<Input>(make: (input: Input) => readonly Operand[]): Derived<Input> {
  return { from: make, repeats: true };
}

/** The arguments as these fields say. */
export function writerOf<Given extends Fields>(
  given: Given,
): (input: InputOf<Given>) => readonly Operand[] {
  const parts = Object.entries(given);
  return (input) => writeParts(parts, input);
}

/** Reads a value, or the parts of a list as fields of an object. */
export function readerOf<Given extends Reader<unknown> | Parts>(given: Given): Reader<Read<Given>> {
  if (isReader(given)) return given as Reader<Read<Given>>;
  const readAt = partsReader(Object.entries(given));
  return { read: (reply) => readAt(reply as readonly unknown[], 0) as Read<Given> };
}

/** The name of an argument, or the names of those that repeat. */
export type ArgName = string | { readonly each: readonly string[] };

/** The names of fields in their order. */
export function partNames(given: Fields): readonly ArgName[] {
  return Object.entries(given).map(([name, part]) => {
    if ("repeats" in part) return { each: [name] };
    if (!("readFrom" in part)) return name;
    const { names } = part as Rest<unknown>;
    return { each: names.length === 0 ? [name] : names };
  });
}

type Part = readonly [name: string, part: Reader<unknown> | Derived<never>];

function writeParts(parts: readonly Part[], input: object): Operand[] {
  const operands: Operand[] = [];
  for (const [name, part] of parts) {
    if ("from" in part) {
      const made = part.from(input as never);
      if (Array.isArray(made)) operands.push(...(made as Operand[]));
      else operands.push(made as Operand);
      continue;
    }
    const value = (input as Record<string, unknown>)[name];
    if (isRest(part)) operands.push(...part.writeAll(value as readonly unknown[]));
    else operands.push((part as Shape<unknown>).write(value));
  }
  return operands;
}

/** All values that it reads have their fields in one order, so that V8 keeps them in one form. */
function partsReader(
  parts: readonly Part[],
): (reply: readonly unknown[], start: number) => Record<string, unknown> {
  const readers = parts.map(([name, part]) => ({ name, part: part as Reader<unknown> }));
  return (reply, start) => {
    const value: Record<string, unknown> = {};
    let at = start;
    for (const { name, part } of readers) {
      value[name] = isRest(part) ? part.readFrom(reply, at) : part.read(reply[at]);
      at++;
    }
    return value;
  };
}

function isReader(given: Reader<unknown> | Parts): given is Reader<unknown> {
  return typeof given.read === "function";
}

function isRest(part: Reader<unknown>): part is Rest<unknown> {
  return "readFrom" in part;
}
