import { readWaitHeader, USUAL_NAMES } from "./dialects.ts";
import { readProperty } from "./properties.ts";
import { readDelayMs, readHttpDateMs, readWaitMs } from "./retry-after.ts";

/** The most headers that are read. No server sends more, and a hostile list might never end. */
const MOST_HEADERS = 2_000;
/** The number of characters that are read of a header with JSON. */
const LONGEST_USAGE = 16_384;

/**
 * Returns the value of a header: `"120"` for `retry-after`. Undefined if the header is missing. Never throws.
 *
 * The `source` can have any form in which HTTP clients keep headers:
 *
 * - a fetch `Headers`, an `AxiosHeaders` or anything else with `get`
 * - a plain object, a `Map`, or an array of pairs
 * - the flat array of Node and undici
 *
 * If a header has several values, they are joined with commas.
 */
export function headerOf(source: unknown, name: string): string | undefined {
  if (typeof source !== "object" || source === null) return undefined;
  try {
    return toText(valueOf(source, name.toLowerCase()));
  } catch {
    // A getter or a Proxy threw.
    return undefined;
  }
}

/**
 * Returns all headers by lower-case name. The `source` can have any form that {@link headerOf} accepts; for anything
 * else, the map is empty. Never throws.
 */
export function listHeaders(source: unknown): ReadonlyMap<string, string> {
  const headers = new Map<string, string>();
  if (typeof source !== "object" || source === null) return headers;
  try {
    let seen = 0;
    for (const [name, value] of entriesOf(source)) {
      seen += 1;
      if (seen > MOST_HEADERS) break;
      const text = toText(value);
      const lower = toText(name)?.toLowerCase();
      if (lower === undefined || text === undefined) continue;
      const before = headers.get(lower);
      headers.set(lower, before === undefined ? text : `${before}, ${text}`);
    }
  } catch {
    // A getter or a Proxy threw.
  }
  return headers;
}

function* entriesOf(source: object): Iterable<readonly [unknown, unknown]> {
  if (Array.isArray(source)) {
    yield* pairsIn(typeof source[0] === "object" ? source : pairsOf(source));
    return;
  }
  if (Symbol.iterator in source) {
    yield* pairsIn(source as Iterable<unknown>);
    return;
  }
  const { get, entries } = source as { get?: unknown; entries?: unknown };
  if (typeof entries === "function") return yield* pairsIn(entries.call(source) as never);
  // gRPC's metadata lists the first value of each name with `getMap`. If an object has only `get`, the usual names are
  // looked up.
  const listed = typeof get === "function" ? readProperty(source, "getMap") : undefined;
  if (typeof listed === "function") {
    yield* Object.entries(listed.call(source) as object);
  } else if (typeof get === "function") {
    for (const name of USUAL_NAMES) yield [name, get.call(source, name)];
  } else {
    const record = source as Readonly<Record<string, unknown>>;
    for (const name in record) if (Object.hasOwn(record, name)) yield [name, record[name]];
  }
}

function* pairsIn(pairs: Iterable<unknown>): Iterable<readonly [unknown, unknown]> {
  for (const pair of pairs) {
    if (Array.isArray(pair)) yield [pair[0], pair[1]];
    else if (typeof pair === "object" && pair !== null) {
      // Browser logs and the clients of some platforms use this form.
      yield [readProperty(pair, "name") ?? readProperty(pair, "key"), readProperty(pair, "value")];
    }
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
 * Returns the current time on the server's clock, in epoch ms: the header `Date`, plus `Age` if the response comes from
 * a cache. Times in a response refer to this clock, and the clock of this process may be an hour off. Without a valid
 * `Date`, returns the time of this process.
 */
export function readServerTimeMs(headers: ReadonlyMap<string, string>, wallNowMs: number): number {
  const sentAtMs = readHttpDateMs(headers.get("date"), wallNowMs);
  if (sentAtMs === undefined) return wallNowMs;
  return sentAtMs + (readDelayMs(headers.get("age"), 1_000) ?? 0);
}

/**
 * Returns the wait that headers ask for, in ms. A header with ms takes precedence over a header with seconds, because
 * it is more exact. If several limits have waits, limits that still have units left are ignored. Of the others, the
 * longest wait counts.
 */
export function readRetryAfter(
  headers: ReadonlyMap<string, string>,
  wallNowMs: number,
): number | undefined {
  let waitMs: number | undefined;
  let exactMs: number | undefined;
  for (const [name, value] of headers) {
    const header = readWaitHeader(name);
    if (header === undefined || isLeft(headers, header.limit)) continue;
    if (header.isInMs) exactMs = longestOf(exactMs, readDelayMs(value, 1));
    else waitMs = longestOf(waitMs, readList(value, readServerTimeMs(headers, wallNowMs)));
  }
  return exactMs ?? waitMs;
}

/** True if a limit has units left according to the headers, so that the call did not exceed it. */
function isLeft(headers: ReadonlyMap<string, string>, limit: string): boolean {
  if (limit === "") return false;
  return ["x-ratelimit", "x-rate-limit", "ratelimit"].some(
    (family) => Number(headers.get(`${family}-remaining${limit}`)) > 0,
  );
}

/** Returns the longest wait in a header with several values. For example, a proxy may have added its own value. */
function readList(value: string, serverNowMs: number): number | undefined {
  const whole = readAhead(value, serverNowMs);
  if (whole !== undefined || !value.includes(",")) return whole;
  return value
    .split(",")
    .map((part) => readAhead(part, serverNowMs))
    .reduce(longestOf, undefined);
}

/**
 * Returns the wait in a value. Ignores a time in the past, because two clocks may differ. Only a delay of 0 allows the
 * next call at once.
 */
function readAhead(value: string, serverNowMs: number): number | undefined {
  const waitMs = readWaitMs(value, serverNowMs);
  return waitMs === 0 && readWaitMs(value, 0) !== 0 ? undefined : waitMs;
}

/**
 * Returns the wait until an app or account has access to Facebook's API again, in ms. The header names it in minutes.
 */
export function readRegainMs(headers: ReadonlyMap<string, string>): number | undefined {
  const usage = headers.get("x-business-use-case-usage")?.slice(0, LONGEST_USAGE) ?? "";
  const minutes = [...usage.matchAll(/"estimated_time_to_regain_access"\s*:\s*(\d{1,6})\b/g)];
  return Math.max(0, ...minutes.map(([, count]) => Number(count) * 60_000)) || undefined;
}

/**
 * Returns true or false if headers allow or forbid a retry, otherwise undefined. Reads `x-should-retry`,
 * `stripe-should-retry` and gRPC's pushback, which forbids a retry if it is negative.
 */
export function readShouldRetry(headers: ReadonlyMap<string, string>): boolean | undefined {
  for (const [name, value] of headers) {
    const said = value.trim().toLowerCase();
    if (/(?:^|-)should-retry$/.test(name) && /^(?:true|false)$/.test(said)) return said === "true";
    if (name === "grpc-retry-pushback-ms" && said.startsWith("-")) return false;
  }
  return undefined;
}

export function longestOf(one: number | undefined, other: number | undefined): number | undefined {
  return one === undefined || other === undefined ? (one ?? other) : Math.max(one, other);
}
