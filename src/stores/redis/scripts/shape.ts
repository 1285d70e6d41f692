/**
 * Shapes for the arguments and replies of scripts. A shape defines how a value is written as an
 * argument and how it is read from a reply. The TypeScript types of inputs and replies follow from
 * the shapes.
 */

export type Operand = string | number | Buffer;

/**
 * Packs whole numbers as doubles into one argument. Redis reads twenty packed numbers faster than
 * it parses twenty strings.
 */
export function packNumbers(numbers: readonly number[]): Buffer {
  return Buffer.from(new Float64Array(numbers).buffer);
}

/** Reads a value from a reply. */
export interface Reader<Value> {
  read(reply: unknown): Value;
}

/** One argument, or one part of a reply. */
export interface Shape<Value> extends Reader<Value> {
  write(value: Value): Operand;
}

/**
 * All remaining arguments or reply parts, as a list. Each value of the list has the same number of
 * parts. Must be the last field.
 */
export interface Rest<Value> extends Reader<readonly Value[]> {
  readonly names: readonly string[];
  readFrom(reply: readonly unknown[], start: number): readonly Value[];
  writeAll(values: readonly Value[]): Operand[];
}

/**
 * An argument that is computed from the input. If `repeats` is true, it produces a list of all
 * remaining arguments.
 */
export interface Derived<Input> {
  readonly repeats?: boolean;
  from(input: Input): Operand | readonly Operand[];
}

/** The arguments of a script, or the parts of a reply, by name and in order. */
export type Fields = Readonly<Record<string, Reader<unknown> | Derived<never>>>;
/**
 * Like {@link Fields}, but without computed arguments. For replies, and for each value of a list of
 * arguments.
 */
export type Parts = Readonly<Record<string, Reader<unknown>>>;

/** The type of the value that a shape, or an object of shapes, reads. */
export type Read<Given> =
  Given extends Reader<infer Value>
    ? Value
    : { readonly [Name in keyof Given]: Given[Name] extends Reader<infer Value> ? Value : never };

/**
 * The type of the input from which arguments are written. Fields that may be undefined are
 * optional.
 */
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

/** The type of the input that all computed arguments need together. */
type Needed<Given> = {
  [Name in keyof Given]: Given[Name] extends Derived<infer Input> ? (of: Input) => void : never;
}[keyof Given] extends (of: infer All) => void
  ? All
  : never;

export const text: Shape<string> = { read: String, write: (value) => value };
export const int: Shape<number> = { read: Number, write: (value) => value };
/** A Boolean, written as 1 or 0. */
export const flag: Shape<boolean> = {
  read: (reply) => Number(reply) === 1,
  write: (value) => (value ? 1 : 0),
};
/** A duration in ms. Infinity is written as -1. */
export const endlessMs: Shape<number> = {
  read: (reply) => (Number(reply) < 0 ? Infinity : Number(reply)),
  write: (ms) => (ms === Infinity ? -1 : ms),
};
/** A reply without a value. */
export const nothing: Reader<void> = { read: () => undefined };

/** A text of a given string type. */
export function word<Word extends string>(): Shape<Word> {
  return text as Shape<Word>;
}

export function json<Value>(): Shape<Value> {
  return { read: (reply) => JSON.parse(String(reply)) as Value, write: JSON.stringify };
}

/** A value that is only written as an argument, never read. */
export function written<Value>(write: (value: Value) => Operand): Shape<Value> {
  return { read: (reply) => reply as Value, write };
}

/**
 * An optional value. Undefined is written as `byDefault`, by default the empty text. An empty text
 * or nil in a reply is read as undefined.
 */
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

/** One of `values`, encoded as a number: the value's index plus `first`. */
export function oneOf<const Value>(values: readonly Value[], first = 0): Reader<Value> {
  return { read: (reply) => values[Number(reply) - first]! };
}

/** Reads a value with another shape, and converts it. */
export function mapped<Given extends Reader<unknown> | Parts, Value>(
  given: Given,
  make: (value: Read<Given>) => Value,
): Reader<Value> {
  const reader = readerOf(given);
  return { read: (reply) => make(reader.read(reply)) };
}

/**
 * A list inside a reply. A value that is not a list is read as an empty list, because Lua encodes
 * an empty list as `{}`.
 */
export function list<Given extends Reader<unknown> | Parts>(
  given: Given,
): Reader<readonly Read<Given>[]> {
  const reader = readerOf(given);
  return {
    read: (reply) => (Array.isArray(reply) ? reply.map((each) => reader.read(each)) : []),
  };
}

/** A list inside a reply, which contains the parts of all values one after the other. */
export function flat<Given extends Parts>(given: Given): Reader<readonly Read<Given>[]> {
  const values = rest(given);
  return { read: (reply) => values.read(reply) };
}

/**
 * All remaining parts of a reply, read as a list. The reply does not nest them in a separate list.
 */
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

/** An argument with a constant value. */
export function constant(value: Operand): Derived<unknown> {
  return { from: () => value };
}

/** An argument that is computed from the input. */
export function from<Input>(make: Derived<Input>["from"]): Derived<Input> {
  return { from: make };
}

/** All remaining arguments, computed from the input. */
export function fromEach<Input>(make: (input: Input) => readonly Operand[]): Derived<Input> {
  return { from: make, repeats: true };
}

/** Returns a function that converts an input to the arguments that the fields describe. */
export function writerOf<Given extends Fields>(
  given: Given,
): (input: InputOf<Given>) => readonly Operand[] {
  const parts = Object.entries(given);
  return (input) => writeParts(parts, input);
}

/**
 * Returns a reader for a value. For an object of shapes, it reads the parts of a list into the
 * object's fields.
 */
export function readerOf<Given extends Reader<unknown> | Parts>(given: Given): Reader<Read<Given>> {
  if (isReader(given)) return given as Reader<Read<Given>>;
  const readAt = partsReader(Object.entries(given));
  return { read: (reply) => readAt(reply as readonly unknown[], 0) as Read<Given> };
}

/** The name of one argument, or the names of arguments that repeat. */
export type ArgName = string | { readonly each: readonly string[] };

/** Returns the names of fields in order. */
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

/**
 * Returns a function that reads several parts into an object. All objects have their fields in the
 * same order, so V8 uses one hidden class for them.
 */
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
