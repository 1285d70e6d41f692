import { readDelayMs, readHttpDateMs } from "./retry-after.ts";

/** How many headers are read: no server sends more, and a hostile list would never end. */
const MOST_HEADERS = 2_000;

/**
 * A header's value, by its lower-case name: `"120"` of `retry-after`.
 * `source` is the form in which an HTTP client keeps headers: a fetch `Headers`, an
 * `AxiosHeaders` or anything else with `get`, a plain object, a `Map`, an array
 * of pairs, or the flat raw array of Node and undici. Several values of one
 * name are joined by commas. Undefined when there is no such header, and for
 * any other source; never throws.
 */
export function headerOf(source: unknown, name: string): string | undefined {
  if (typeof source !== "object" || source === null) return undefined;
  try {
    return toText(valueOf(source, name.toLowerCase()));
  } catch {
    // A getter or a Proxy that throws holds no header.
    return undefined;
  }
}

/** A property of any value; undefined when there is none, or when its getter throws. */
export function readProperty(value: unknown, name: string): unknown {
  if (typeof value !== "object" || value === null) return undefined;
  try {
    return (value as Readonly<Record<string, unknown>>)[name];
  } catch {
    return undefined;
  }
}

function valueOf(source: object, name: string): unknown {
  if (Array.isArray(source)) return valueOfArray(source, name);
  if (source instanceof Map) return valueOfPairs(source, name);
  const { get } = source as { get?: unknown };
  if (typeof get === "function") return get.call(source, name);
  return valueOfRecord(source as Readonly<Record<string, unknown>>, name);
}

function valueOfRecord(record: Readonly<Record<string, unknown>>, name: string): unknown {
  if (Object.hasOwn(record, name)) return record[name];
  const key = Object.keys(record).find((given) => isName(given, name));
  return key === undefined ? undefined : record[key];
}

function valueOfArray(list: readonly unknown[], name: string): unknown {
  return Array.isArray(list[0]) ? valueOfPairs(list, name) : valueOfPairs(pairsOf(list), name);
}

function* pairsOf(flat: readonly unknown[]): Generator<readonly unknown[]> {
  for (let index = 0; index + 1 < flat.length; index += 2) yield [flat[index], flat[index + 1]];
}

function valueOfPairs(pairs: Iterable<unknown>, name: string): unknown {
  const found: unknown[] = [];
  let seen = 0;
  for (const pair of pairs) {
    seen += 1;
    if (seen > MOST_HEADERS) break;
    if (Array.isArray(pair) && isName(toText(pair[0]), name)) found.push(toText(pair[1]));
  }
  return found;
}

function isName(given: string | undefined, name: string): boolean {
  return given?.length === name.length && given.toLowerCase() === name;
}

function toText(value: unknown): string | undefined {
  if (typeof value === "string") return value;
  if (typeof value === "number") return String(value);
  if (value instanceof Uint8Array) return Buffer.from(value).toString("latin1");
  if (!Array.isArray(value)) return undefined;
  const texts = value
    .slice(0, MOST_HEADERS)
    .map((one) => (Array.isArray(one) ? undefined : toText(one)));
  const present = texts.filter((text) => text !== undefined);
  return present.length === 0 ? undefined : present.join(", ");
}

/**
 * The time in epoch ms on the server that wrote these headers: their `Date`, and
 * their `Age` if a cache kept them; our own clock if they have no valid `Date`.
 * Times that an answer names are on that clock, and ours may be an hour off.
 */
export function readServerTimeMs(headers: unknown, wallNowMs: number): number {
  const sentAtMs = readHttpDateMs(headerOf(headers, "date"), wallNowMs);
  if (sentAtMs === undefined) return wallNowMs;
  return sentAtMs + (readDelayMs(headerOf(headers, "age"), 1_000) ?? 0);
}
