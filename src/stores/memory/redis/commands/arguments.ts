import { digits, tableOf, type Table, type Value } from "../../lua/runtime.ts";
import type { ScoreRange } from "../sorted-set.ts";

export const OK: Table = { ...tableOf([]), $ok: "OK" };

/** Converts an argument to a string, because Redis stores numbers as strings. */
export function bytesOf(value: Value): string {
  return typeof value === "string" ? value : digits(value as number, 17);
}

export function optionOf(value: Value): string | undefined {
  return typeof value === "string" ? value.toUpperCase() : undefined;
}

/** Redis reads only this form of a whole number, and no other form that JavaScript reads. */
const INTEGER = /^(?:0|-?[1-9]\d*)$/;

export function integerOf(value: Value): number {
  const isRead = typeof value === "string" ? INTEGER.test(value) : Number.isInteger(value);
  if (isRead) return Number(value);
  throw new Error("ERR value is not an integer or out of range");
}

/** Reads how many items a command takes. */
export function countOf(value: Value): number {
  const count = integerOf(value);
  if (count < 0) throw new Error("ERR value is out of range, must be positive");
  return count;
}

export function floatOf(value: Value): number {
  const text = bytesOf(value);
  if (/^[+-]?inf(inity)?$/i.test(text)) return text.startsWith("-") ? -Infinity : Infinity;
  const number = text === "" || /\s/.test(text) ? NaN : Number(text);
  if (Number.isNaN(number)) throw new Error("ERR value is not a valid float");
  return number;
}

export function syntaxError(): Error {
  return new Error("ERR syntax error");
}

/** Converts the first and last index of a range, which may count from the end, to those of `slice`. */
export function sliceOf(from: Value, to: Value, count: number): readonly [number, number] {
  const [start, end] = [integerOf(from), integerOf(to)];
  return [
    start < 0 ? Math.max(0, count + start) : start,
    end < 0 ? Math.max(0, count + end + 1) : end + 1,
  ];
}

export function rangeOf(least: Value, most: Value): ScoreRange {
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
  const number = Number(score);
  if (Number.isNaN(number) || score === "") throw new Error("ERR min or max is not a float");
  return [number, isOut];
}

const patterns = new Map<string, RegExp>();

/** Converts a pattern of `KEYS`, `SCAN` and `PSUBSCRIBE` to a regular expression. */
export function globOf(pattern: string): RegExp {
  const found = patterns.get(pattern);
  if (found !== undefined) return found;
  const source = pattern.replaceAll(
    /\\(.)|\[(\^?)((?:\\.|[^\]])*)\]|[^]/g,
    (all, plain, not, set) => {
      if (plain !== undefined) return `\\x${code(plain as string)}`;
      if (set !== undefined) {
        const inner = (set as string).replaceAll(
          /\\(.)|[^-]/g,
          (each: string, escaped?: string) => `\\x${code(escaped ?? each)}`,
        );
        return inner === "" ? (not === "" ? "(?!)" : "[^]") : `[${not as string}${inner}]`;
      }
      return all === "*" ? "[^]*" : all === "?" ? "[^]" : `\\x${code(all)}`;
    },
  );
  const made = new RegExp(`^${source}$`);
  if (patterns.size >= 1_000) patterns.clear();
  patterns.set(pattern, made);
  return made;

  function code(letter: string): string {
    return letter.charCodeAt(0).toString(16).padStart(2, "0");
  }
}

/**
 * Replies to `SCAN` and its relatives. All items come in one page, so that the cursor is always 0
 * and no item is missed while others change.
 */
export function scanned(
  cursor: Value,
  options: readonly Value[],
  items: Iterable<readonly string[]>,
): Table {
  integerOf(cursor);
  let match: RegExp | undefined;
  for (let at = 0; at < options.length; at += 2) {
    const name = optionOf(options[at]);
    if (name === "MATCH") match = globOf(bytesOf(options[at + 1]));
    else if (name !== "COUNT" && name !== "TYPE") throw syntaxError();
  }
  const found: Value[] = [];
  for (const item of items) if (match?.test(item[0]!) !== false) found.push(...item);
  return tableOf(["0", tableOf(found)]);
}
