/**
 * Reads and writes the parts of Protocol Buffers that a few small messages need:
 * https://protobuf.dev/programming-guides/encoding/
 */

/** The value of a field: a number, or the bytes of a text or a nested message. */
type Field = number | Uint8Array;
export type Fields = readonly (readonly [number, Field])[];

/**
 * Reads the fields of a message, in the order of the message, as pairs of field number and value. Fields with
 * fixed-length numbers are skipped. Numbers above 2^53 are not exact.
 *
 * @throws a RangeError when the bytes are not a message.
 */
export function readFields(bytes: Uint8Array, most: number = Infinity): Fields {
  const fields: (readonly [number, Field])[] = [];
  let at = 0;
  function varint(): number {
    let value = 0;
    for (let scale = 1; at < bytes.length; scale *= 128) {
      const byte = bytes[at]!;
      at += 1;
      value += (byte & 127) * scale;
      if (byte < 128) return value;
    }
    throw new RangeError("The message ends too early");
  }
  function skip(length: number): number {
    const from = at;
    at += length;
    if (at <= bytes.length) return from;
    throw new RangeError("The message ends too early");
  }
  while (at < bytes.length && fields.length < most) {
    const tag = varint();
    const [number, wire] = [Math.floor(tag / 8), tag & 7];
    if (wire === 0) fields.push([number, varint()]);
    else if (wire === 2) {
      const from = skip(varint());
      fields.push([number, bytes.subarray(from, at)]);
    } else if (wire === 1 || wire === 5) skip(wire === 1 ? 8 : 4);
    else throw new RangeError("No such type of field");
  }
  return fields;
}

/**
 * Returns the last value of a field, because in Protocol Buffers the last value counts if a field occurs more than
 * once.
 */
function last<Of extends Field>(
  fields: Fields,
  number: number,
  is: (value: Field) => value is Of,
): Of | undefined {
  return fields.findLast(
    (field): field is readonly [number, Of] => field[0] === number && is(field[1]),
  )?.[1];
}

const isNumber = (value: Field): value is number => typeof value === "number";
const isBytes = (value: Field): value is Uint8Array => typeof value !== "number";

export function bytesOf(fields: Fields, number: number): Uint8Array | undefined {
  return last(fields, number, isBytes);
}

/** Returns all values of a repeated field. */
export function allBytesOf(fields: Fields, number: number): Uint8Array[] {
  return fields.flatMap(([given, value]) => (given === number && isBytes(value) ? [value] : []));
}

export function textOf(fields: Fields, number: number): string {
  return Buffer.from(bytesOf(fields, number) ?? []).toString();
}

export function countOf(fields: Fields, number: number): number {
  return last(fields, number, isNumber) ?? 0;
}

/**
 * A field to write: its number and its value. The value is a whole number from 0, a text, or a message. A field with an
 * undefined value is omitted.
 */
export type Written = readonly [number, number | string | Uint8Array | undefined];

export function writeFields(fields: readonly Written[]): Uint8Array {
  const parts: Uint8Array[] = [];
  for (const [number, value] of fields) {
    // Zeros are omitted, because a reader reads a missing number as zero.
    if (value === undefined || value === 0) continue;
    if (typeof value === "number") parts.push(varintOf(number * 8), varintOf(value));
    else {
      const bytes = typeof value === "string" ? Buffer.from(value) : value;
      parts.push(varintOf(number * 8 + 2), varintOf(bytes.length), bytes);
    }
  }
  return Buffer.concat(parts);
}

function varintOf(value: number): Uint8Array {
  const bytes: number[] = [];
  let left = value;
  for (; left > 127; left = Math.floor(left / 128)) bytes.push((left % 128) + 128);
  return Uint8Array.from([...bytes, left]);
}
