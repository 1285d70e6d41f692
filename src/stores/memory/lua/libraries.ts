/**
 * The functions of Lua and Redis that only the scripts of queues use. Buckets in memory do not load
 * them.
 */
import {
  caller,
  digits,
  fail,
  isTable,
  jsonNull,
  list,
  pairs,
  set,
  tableOf,
  text,
  type Commands,
  type Table,
  type Value,
  type Values,
} from "./runtime.ts";

export function byte(value: Value, from: number = 1, to: number = from): Value[] {
  const all = text(value);
  const [start, end] = [from, to].map((at) => (at < 0 ? all.length + at + 1 : at));
  return Array.from(Buffer.from(all.slice(Math.max(0, start! - 1), end), "latin1"));
}

export function char(...codes: readonly Value[]): string {
  return String.fromCharCode(...codes.map(Number));
}

// Strings contain bytes, and Redis's locale changes only ASCII letters.
export function lower(value: Value): string {
  return text(value).replaceAll(/[A-Z]+/g, (letters) => letters.toLowerCase());
}

export function upper(value: Value): string {
  return text(value).replaceAll(/[a-z]+/g, (letters) => letters.toUpperCase());
}

export function statusReply(message: Value): Table {
  return { ...tableOf([]), $ok: message };
}

export function protectedCaller(commands: Commands): ReturnType<typeof caller> {
  const call = caller(commands);
  return (...given) => {
    try {
      return call(...given);
    } catch (error) {
      return { ...tableOf([]), $err: (error as Error).message };
    }
  };
}

export function protectedCall(called: Value, ...given: readonly Value[]): Values {
  try {
    return [true, ...list((called as (...args: unknown[]) => Values)(...given))];
  } catch (error) {
    return [false, (error as Error).message];
  }
}

const NOT_ASCII = /[\u0080-\u00ff]/;
/** The characters that lua-cjson escapes and `JSON.stringify` does not. */
const ALSO_ESCAPED = /[/\u007f]/g;

/** Writes JSON as lua-cjson does: an empty table is an object, and numbers have 14 digits. */
export function encodeJson(value: Value): string {
  switch (typeof value) {
    case "string":
      // Each character is one byte, so UTF-8 passes unchanged.
      return JSON.stringify(value).replaceAll(ALSO_ESCAPED, (letter) =>
        letter === "/" ? "\\/" : "\\u007f",
      );
    case "number":
      if (!Number.isFinite(value)) fail("Cannot serialise number: must not be NaN or Inf");
      return digits(value, 14);
    case "boolean":
      return String(value);
    case "function":
      return fail("Cannot serialise function: type not supported");
    default:
      return value === undefined || value === jsonNull ? "null" : encodeTable(value as Table);
  }
}

function encodeTable(table: Table): string {
  const entries = [...pairs(table)];
  const isList = entries.every(
    ([key]) => typeof key === "number" && Number.isInteger(key) && key > 0,
  );
  if (isList && entries.length > 0) {
    const count = Math.max(...entries.map(([key]) => key as number));
    if (count > 10 && count > entries.length * 2)
      fail("Cannot serialise table: excessively sparse array");
    const items = Array.from({ length: count }, (): string => "null");
    for (const [key, item] of entries) items[(key as number) - 1] = encodeJson(item);
    return `[${items.join(",")}]`;
  }
  const fields = entries.map(([key, item]) => `${encodeJson(text(key))}:${encodeJson(item)}`);
  return `{${fields.join(",")}}`;
}

export function decodeJson(value: Value): Value {
  const bytes = text(value);
  // Escapes such as \u00e9 become UTF-8 too, so each string is encoded after parsing.
  const hasOthers = NOT_ASCII.test(bytes) || bytes.includes("\\u");
  const json = hasOthers ? Buffer.from(bytes, "latin1").toString() : bytes;
  const encode = (each: string): string =>
    hasOthers ? Buffer.from(each).toString("latin1") : each;
  let parsed: unknown;
  try {
    parsed = JSON.parse(json);
  } catch {
    return fail("Expected value but found invalid token");
  }
  return fromJson(parsed);

  function fromJson(given: unknown): Value {
    if (given === null) return jsonNull;
    if (typeof given === "string") return encode(given);
    if (Array.isArray(given)) return tableOf(given.map(fromJson));
    if (typeof given !== "object") return given as number | boolean;
    const table = tableOf([]);
    for (const [name, item] of Object.entries(given)) set(table, encode(name), fromJson(item));
    return table;
  }
}

/** Reads a value in MessagePack, https://github.com/msgpack/msgpack/blob/master/spec.md. */
export function unpackMessage(packed: Value): Value {
  const bytes = Buffer.from(text(packed), "latin1");
  let at = 0;

  function unsigned(size: number): number {
    at += size;
    return size === 8 ? Number(bytes.readBigUInt64BE(at - 8)) : bytes.readUIntBE(at - size, size);
  }

  function signed(size: number): number {
    at += size;
    return size === 8 ? Number(bytes.readBigInt64BE(at - 8)) : bytes.readIntBE(at - size, size);
  }

  function string(size: number): string {
    if (at + size > bytes.length) fail("Missing bytes in input.");
    at += size;
    return bytes.toString("latin1", at - size, at);
  }

  function array(count: number): Table {
    const table = tableOf([]);
    for (let index = 1; index <= count; index++) set(table, index, read());
    return table;
  }

  function map(count: number): Table {
    const table = tableOf([]);
    for (let index = 0; index < count; index++) {
      const key = read();
      set(table, key, read());
    }
    return table;
  }

  function read(): Value {
    const tag = unsigned(1);
    if (tag < 0x80) return tag;
    if (tag < 0x90) return map(tag & 0x0f);
    if (tag < 0xa0) return array(tag & 0x0f);
    if (tag < 0xc0) return string(tag & 0x1f);
    if (tag >= 0xe0) return tag - 0x100;
    switch (tag) {
      case 0xc0:
        return undefined;
      case 0xc2:
      case 0xc3:
        return tag === 0xc3;
      case 0xc4:
      case 0xc5:
      case 0xc6:
        return string(unsigned(2 ** (tag - 0xc4)));
      case 0xca:
        at += 4;
        return bytes.readFloatBE(at - 4);
      case 0xcb:
        at += 8;
        return bytes.readDoubleBE(at - 8);
      case 0xcc:
      case 0xcd:
      case 0xce:
      case 0xcf:
        return unsigned(2 ** (tag - 0xcc));
      case 0xd0:
      case 0xd1:
      case 0xd2:
      case 0xd3:
        return signed(2 ** (tag - 0xd0));
      case 0xd9:
      case 0xda:
      case 0xdb:
        return string(unsigned(2 ** (tag - 0xd9)));
      case 0xdc:
      case 0xdd:
        return array(unsigned(tag === 0xdc ? 2 : 4));
      case 0xde:
      case 0xdf:
        return map(unsigned(tag === 0xde ? 2 : 4));
      default:
        return fail("Bad data format in input.");
    }
  }

  return isTable(packed) ? undefined : read();
}
