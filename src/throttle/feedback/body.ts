/**
 * Reads from the body of a response why the downstream refused a call, and how long to wait. The reader recognizes
 * fields by their names, so it works for any structure of the body.
 */
import { types } from "node:util";
import type { QuotaPeriod } from "../../core/answer.ts";
import {
  CODE_NAME,
  meaningInResult,
  meaningOf,
  QUOTA_NAME,
  RESET_NAME,
  RPC_LIMIT_EXCEEDED,
  saysTooMany,
  TEXT_NAME,
  WAIT_NAME,
  type Meaning,
} from "./dialects.ts";
import { readProperty } from "./properties.ts";
import { periodOf, unitOf } from "./remaining.ts";
import { readDelayMs, readWaitMs } from "./retry-after.ts";

/** What a body says about a refusal. */
export interface BodyFacts {
  readonly meanings: Set<Meaning>;
  /** The longest wait that the body asks for, in ms. */
  waitMs: number | undefined;
  /** The longest time until a quota resets, in ms. */
  resetMs: number | undefined;
  period: QuotaPeriod | undefined;
  unit: string | undefined;
  /** The HTTP status that the body repeats: `429`. */
  status: number | undefined;
  /** True if the body has the form of Google's APIs. Their daily quotas reset at midnight in California. */
  isGoogle: boolean;
  /** True if the body names one of Google's limits that are daily by default. */
  isOfDay: boolean;
  /** The messages for people in the body. */
  text: string;
}

/** The state of reading one body. */
interface Reading {
  readonly facts: BodyFacts;
  /** True if the body came with a success. Then only unambiguous words count as a refusal. */
  readonly isResult: boolean;
  readonly wallNowMs: number;
  readonly seen: Set<object>;
  left: number;
}

/** The bounds for reading a body, which protect against hostile bodies. */
const [MOST_VALUES, DEEPEST, LONGEST_BODY, LONGEST_TEXT] = [1_000, 8, 65_536, 4_000];
const MOST_IN_LIST = 100;

/** A number of ms from here on is a point in time. As a delay, it would be three years. */
const FIRST_EPOCH_MS = 1e11;

/** Reads a body, which may be parsed or text, and adds what it says about a refusal to `facts`. Never throws. */
export function readBody(
  body: unknown,
  facts: BodyFacts,
  { isResult, wallNowMs }: { readonly isResult: boolean; readonly wallNowMs: number },
): void {
  const reading = { facts, isResult, wallNowMs, seen: new Set<object>(), left: MOST_VALUES };
  const parsed = typeof body === "string" ? parse(body, reading) : body;
  if (isResult) readResult(parsed, reading);
  else visit("", parsed, reading, 0);
}

export function noFacts(): BodyFacts {
  return {
    meanings: new Set(),
    waitMs: undefined,
    resetMs: undefined,
    period: undefined,
    unit: undefined,
    status: undefined,
    isGoogle: false,
    isOfDay: false,
    text: "",
  };
}

/** Reads the errors in the body of a success. The other fields may contain any data, so they are ignored. */
function readResult(body: unknown, reading: Reading): void {
  if (typeof body !== "object" || body === null) return;
  const [errors, error] = [readProperty(body, "errors"), readProperty(body, "error")];
  for (const each of [errors, readProperty(errors, "graphQLErrors"), error]) {
    if (each !== undefined && each !== null) visit("error", each, reading, 0);
  }
  const { facts } = reading;
  if (isRpcRefusal(body, readProperty(error, "code"))) facts.meanings.add("rate");
  // Marketo uses numbers as codes, so only the message shows a refusal.
  if (readProperty(body, "success") === false && saysTooMany(facts.text)) {
    facts.meanings.add("rate");
  }
  const code = readProperty(body, "error_code") ?? overLimitOf(readProperty(body, "status"));
  const meaning = meaningInResult(code);
  if (meaning !== undefined) {
    facts.meanings.add(meaning);
    readPart("message", readProperty(body, "error_message"), reading);
  }
  if (facts.meanings.size > 0) readQueryCost(readProperty(body, "extensions"), facts);
}

/**
 * Returns a status such as `OVER_QUERY_LIMIT`, with which Google's maps refuse. Ignores other statuses, because the
 * status in other data may mean anything.
 */
function overLimitOf(status: unknown): unknown {
  return typeof status === "string" && status.startsWith("OVER_") ? status : undefined;
}

/**
 * True if a successful response refuses the call: JSON-RPC refuses with a 200, and so may OpenRouter. Outside of
 * JSON-RPC, an error next to an id is data of a record.
 */
function isRpcRefusal(body: object, code: unknown): boolean {
  const isRpc = readProperty(body, "jsonrpc") !== undefined;
  if (code === RPC_LIMIT_EXCEEDED) return isRpc;
  return code === 429 && (isRpc || readProperty(body, "id") === undefined);
}

function visit(name: string, value: unknown, reading: Reading, depth: number): void {
  reading.left -= 1;
  if (reading.left < 0 || value === undefined || value === null) return;
  if (typeof value !== "object") return readPart(name, value, reading);
  // Skips nested errors: each is a separate layer, which is read together with its own headers.
  if (depth > DEEPEST || reading.seen.has(value) || types.isNativeError(value)) return;
  reading.seen.add(value);
  readTime(name, value, reading);
  try {
    visitParts(name, value, reading, depth);
  } catch {
    // A getter or a Proxy threw.
  }
}

function visitParts(name: string, value: object, reading: Reading, depth: number): void {
  if (Array.isArray(value)) {
    const count = Math.min(value.length, MOST_IN_LIST);
    for (let index = 0; index < count; index++) visit(name, value[index], reading, depth + 1);
    return;
  }
  if (value instanceof Uint8Array) return;
  if (!reading.isResult) {
    readQueryCost(readProperty(value, "extensions"), reading.facts);
    if (readProperty(readProperty(value, "cost"), "throttleStatus") !== undefined) {
      readQueryCost(value, reading.facts);
    }
  }
  let parts = 0;
  for (const part in value) {
    parts += 1;
    if (parts > MOST_IN_LIST) return;
    visit(plainName(part), readProperty(value, part), reading, depth + 1);
  }
}

function readPart(name: string, value: unknown, reading: Reading): void {
  const { facts, isResult } = reading;
  readTime(name, value, reading);
  if (CODE_NAME.test(name)) {
    const meaning = isResult ? meaningInResult(value) : meaningOf(value);
    if (meaning !== undefined) facts.meanings.add(meaning);
    const status = Number(value);
    if (!isResult && Number.isInteger(status) && status >= 400 && status <= 599) {
      facts.status ??= status;
    }
    // HubSpot and others use the name of the exceeded limit as the code.
    if (meaning === "quota" && typeof value === "string") facts.period ??= periodOf(value);
  }
  if (typeof value !== "string") return;
  if (QUOTA_NAME.test(name)) {
    facts.period = longer(facts.period, periodOf(value));
    facts.unit ??= unitOf(value);
  }
  if (name === "@type" || name === "domain") {
    facts.isOfDay ||= /^(?:usageLimits|youtube\.quota|global)$/.test(value);
    facts.isGoogle ||= facts.isOfDay || /googleapis\.com/.test(value);
  }
  if (TEXT_NAME.test(name) && facts.text.length < LONGEST_TEXT) {
    facts.text += `${value.slice(0, LONGEST_TEXT)}\n`;
  }
}

function readTime(name: string, value: unknown, { facts, wallNowMs }: Reading): void {
  const isReset = RESET_NAME.test(name);
  if (!isReset && !WAIT_NAME.test(name)) return;
  const isMs = /(?:ms|millis|milliseconds)$|^msbefore/.test(name);
  const isDelay = isMs && !(Number(value) >= FIRST_EPOCH_MS);
  const waitMs = isDelay ? readDelayMs(value, 1) : readWaitMs(value, wallNowMs);
  if (waitMs === undefined) return;
  if (isReset) facts.resetMs = Math.max(facts.resetMs ?? 0, waitMs);
  else facts.waitMs = Math.max(facts.waitMs ?? 0, waitMs);
}

/**
 * Computes the wait of Shopify's GraphQL API, whose responses name the cost of the query, the available points and the
 * restore rate.
 */
function readQueryCost(extensions: unknown, facts: BodyFacts): void {
  const cost = readProperty(extensions, "cost");
  const status = readProperty(cost, "throttleStatus");
  const [requested, available, restoreRate] = [
    readProperty(cost, "requestedQueryCost"),
    readProperty(status, "currentlyAvailable"),
    readProperty(status, "restoreRate"),
  ].map(Number);
  const waitMs = ((requested! - available!) / restoreRate!) * 1_000;
  if (Number.isFinite(waitMs) && waitMs > 0) facts.waitMs ??= Math.ceil(waitMs);
  if (cost !== undefined) facts.unit ??= "points";
}

const LENGTHS: readonly QuotaPeriod[] = ["second", "minute", "hour", "day", "month"];

function longer(
  one: QuotaPeriod | undefined,
  other: QuotaPeriod | undefined,
): QuotaPeriod | undefined {
  if (one === undefined || other === undefined) return one ?? other;
  return LENGTHS.indexOf(one) >= LENGTHS.indexOf(other) ? one : other;
}

/**
 * Parses text as JSON, or reads the codes in XML by their tags. Adds any other text to `facts.text`, as a message for
 * people.
 */
function parse(text: string, reading: Reading): unknown {
  const { facts, isResult } = reading;
  const given = text.slice(0, LONGEST_BODY).trim();
  if (given.startsWith("{") || given.startsWith("[")) {
    try {
      return JSON.parse(given);
    } catch {
      if (!isResult) readPieces(given, reading);
      return undefined;
    }
  }
  if (isResult) return undefined;
  const codes = given.matchAll(/<(?:\w+:)?(code|reason|status|type)>([\w.-]{1,100})</gi);
  for (const [, , code] of codes) {
    const meaning = meaningOf(code);
    if (meaning !== undefined) facts.meanings.add(meaning);
  }
  facts.text += `${given.slice(0, LONGEST_TEXT)}\n`;
  return undefined;
}

/** Reads the fields in JSON that cannot be parsed, because it was cut off or is followed by more text. */
function readPieces(text: string, reading: Reading): void {
  const pieces = text.matchAll(/"([@\w.-]{1,40})"\s*:\s*(?:"([^"\\]{0,1000})"|(\d[\d.]{0,20}))/g);
  for (const [, name = "", words, digits] of pieces) {
    reading.left -= 1;
    if (reading.left < 0) return;
    readPart(plainName(name), words ?? Number(digits), reading);
  }
}

function plainName(name: string): string {
  return name.toLowerCase().replaceAll(/[-_. ]/g, "");
}
