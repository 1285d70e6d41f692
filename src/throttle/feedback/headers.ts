import { readWaitHeader, USUAL_NAMES } from "./dialects.ts";
import { readProperty } from "./properties.ts";
import { readDelayMs, readHttpDateMs, readWaitMs } from "./retry-after.ts";

/** The most headers that are read: no server sends more, and a hostile list would never end. */
const MOST_HEADERS = 2_000;
/** How much of a header in JSON is read. */
const LONGEST_USAGE = 16_384;

/**
 * A header's value by its lower-case name: `"120"` for `retry-after`. Undefined if there is none. Never throws.
 *
 * The `source` can have any form in which HTTP clients keep headers:
 *
 * - a fetch `Headers`, an `AxiosHeaders` or anything else with `get`
 * - a plain object, a `Map`, or an array of pairs
 * - the flat array of Node and undici
 *
 * Several values of one name are joined with commas.
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

/** All headers in any of these forms, by lower-case name; empty for any other source. Never throws. */
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
  // gRPC's metadata lists all first values with `getMap`. An object with nothing but `get` cannot be listed.
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
      // The form of browser logs and of some platforms' clients.
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
 * The server's time in epoch ms when it wrote these headers: their `Date`, plus `Age` if a cache kept them. If there is
 * no valid `Date`, this process's clock. Times in a response are on that clock, and ours may be an hour off.
 */
export function readServerTimeMs(headers: ReadonlyMap<string, string>, wallNowMs: number): number {
  const sentAtMs = readHttpDateMs(headers.get("date"), wallNowMs);
  if (sentAtMs === undefined) return wallNowMs;
  return sentAtMs + (readDelayMs(headers.get("age"), 1_000) ?? 0);
}

/**
 * The wait that headers ask for; one in ms is more exact. If several limits have waits, the limit with nothing left
 * counts, or the longest wait if that is unknown.
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

/** True if headers say that a limit has something left, so that it is not the exceeded one. */
function isLeft(headers: ReadonlyMap<string, string>, limit: string): boolean {
  if (limit === "") return false;
  return ["x-ratelimit", "x-rate-limit", "ratelimit"].some(
    (family) => Number(headers.get(`${family}-remaining${limit}`)) > 0,
  );
}

/** The longest of several values, for example if a proxy added its own. */
function readList(value: string, serverNowMs: number): number | undefined {
  const whole = readAhead(value, serverNowMs);
  if (whole !== undefined || !value.includes(",")) return whole;
  return value
    .split(",")
    .map((part) => readAhead(part, serverNowMs))
    .reduce(longestOf, undefined);
}

/** A time in the past is ignored, because two clocks may differ; only a delay of 0 allows the next call at once. */
function readAhead(value: string, serverNowMs: number): number | undefined {
  const waitMs = readWaitMs(value, serverNowMs);
  return waitMs === 0 && readWaitMs(value, 0) !== 0 ? undefined : waitMs;
}

/** Facebook's wait in minutes until an app or account gets access again. */
export function readRegainMs(headers: ReadonlyMap<string, string>): number | undefined {
  const usage = headers.get("x-business-use-case-usage")?.slice(0, LONGEST_USAGE) ?? "";
  const minutes = [...usage.matchAll(/"estimated_time_to_regain_access"\s*:\s*(\d{1,6})\b/g)];
  return Math.max(0, ...minutes.map(([, count]) => Number(count) * 60_000)) || undefined;
}

/** Whether headers allow a retry: `x-should-retry`, `stripe-should-retry`, and a negative pushback of gRPC. */
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
