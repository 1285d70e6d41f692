/**
 * Interprets the result or error of a call: did the downstream refuse the call, and for how long?
 *
 * - `layers.ts` finds the response in a result or an error.
 * - `headers.ts` and `remaining.ts` read headers.
 * - `body.ts` reads bodies.
 * - `dialects.ts` lists the words that APIs use for refusals.
 */
import { types } from "node:util";
import type { Answer, QuotaPeriod } from "../../core/answer.ts";
import { resetsAround } from "../../core/limits/calendar-days.ts";
import { noFacts, readBody, type BodyFacts } from "./body.ts";
import {
  meaningInResult,
  meaningOf,
  saysOverloaded,
  saysSecondaryLimit,
  saysSpent,
  saysTooLarge,
  saysTooLong,
  saysTooMany,
  saysTooManyMails,
  saysTooMuchExists,
  saysUsedUp,
  strongest,
  PARTS,
  STATUSES,
  type Meaning,
} from "./dialects.ts";
import {
  grpcCodeOf,
  readGrpcDetails,
  RESOURCE_EXHAUSTED,
  UNAVAILABLE,
  bodiesOf,
  codesOf,
  isErrorLike,
  isResponse,
  layersOf,
  ownWaitOf,
  type Layer,
} from "./layers.ts";
import {
  headerOf,
  listHeaders,
  longestOf,
  readRegainMs,
  readRetryAfter,
  readServerTimeMs,
  readShouldRetry,
} from "./headers.ts";
import { readOwnProperty, readProperty } from "./properties.ts";
import {
  periodIn,
  unitOf,
  hasOnlyEmptyQuotas,
  latestOf,
  LONGEST_RESET_MS,
  longestReset,
  readNamedPeriod,
  readNextReset,
  readUsedUp,
  type UsedUp,
} from "./remaining.ts";
import { readWaitInText } from "./retry-after.ts";

/** The meaning of a result or an error, with the response headers in the form in which the client keeps them. */
export interface Interpretation {
  readonly answer: Answer;
  readonly headers: unknown;
}

/** The text of response bodies that were already read, by response. */
export type ReadBodies = ReadonlyMap<object, string>;

/** The wait after a refusal that names no retry time, in ms. */
export const USUAL_MS = 1_000;
/** The wait after a refusal by GitHub's secondary rate limit, in ms. */
const SECONDARY_MS = 60_000;
/** A wait up to this length never counts as lasting, in ms. */
const SHORT_MS = 60_000;
/** A refusal counts as lasting if its quota resets later than this, in ms. */
const LASTING_MS = 900_000;

/** The statuses that mean "too many calls" or "no capacity" by RFC 6585, by RFC 9110 or by the rules of a vendor. */
const REFUSALS: ReadonlySet<number> = new Set([429, 503, 509, 529]);
const OVERLOADED = 529;
/**
 * The statuses that are refusals only if the text of the response says so, and those for which a header is enough. The
 * latter are GitHub's 403 and Binance's 418 for a ban.
 */
const [BY_SENTENCE, BY_HEADER] = [new Set([400, 403, 418, 420]), new Set([403, 418])];

const NO_BODIES: ReadBodies = new Map();
const NOTHING: Answer = Object.freeze({
  status: undefined,
  refused: false,
  afterMs: undefined,
  until: undefined,
  stated: false,
  scope: undefined,
  unit: undefined,
  lasts: false,
  overloaded: false,
  retry: false,
});
export const NO_ANSWER: Interpretation = Object.freeze({ answer: NOTHING, headers: undefined });

/**
 * Interprets a call's result or error, and the errors inside it. Reads no response bodies itself: `bodies` has those
 * that were already read. Never throws, for any input.
 */
export function interpret(
  resultOrError: unknown,
  wallNowMs: number,
  bodies: ReadBodies = NO_BODIES,
): Interpretation {
  if (typeof resultOrError !== "object" || resultOrError === null) return NO_ANSWER;
  const glanced = bodies.size === 0 ? readPlainSuccess(resultOrError) : undefined;
  if (glanced !== undefined) return glanced;
  let outermost: Interpretation | undefined;
  const refusals: Interpretation[] = [];
  for (const [depth, layer] of layersOf(resultOrError).entries()) {
    const heard = interpretLayer(layer, wallNowMs, bodies);
    if (heard.answer.refused) refusals.push(heard);
    else if (heard.answer.status !== undefined) {
      outermost ??= heard;
      // Nested objects of a successful result are data, so they are not interpreted.
      if (depth === 0 && heard.answer.status < 300 && !layer.isError) break;
    }
  }
  // A refusal inside takes precedence: an app may wrap its provider's 429 in a 502.
  return mostSpecific(refusals) ?? outermost ?? NO_ANSWER;
}

/** The properties that plain data does not have. A result without a status that has one of them is read in full. */
const SIGNIFICANT = [
  ...STATUSES,
  ...PARTS,
  "cause",
  "errors",
  "error",
  "data",
  "body",
  "ok",
  "type",
  "stack",
  "metadata",
  "trailers",
];

/**
 * Returns the interpretation of plain data or of a plain success. Undefined for anything else. This shortcut exists
 * because reading a result in full takes longer than a draw.
 */
function readPlainSuccess(source: object): Interpretation | undefined {
  if (types.isNativeError(source)) return undefined;
  const found = source as Readonly<Record<string, unknown>>;
  try {
    if (found["response"] !== undefined || found["errors"] !== undefined) return undefined;
    const status = found["status"] ?? found["statusCode"];
    if (status === undefined) {
      return SIGNIFICANT.some((name) => found[name] !== undefined) ? undefined : NO_ANSWER;
    }
    const isSuccess = typeof status === "number" && status >= 200 && status < 300;
    if (!isSuccess || !Number.isInteger(status) || found["error"] !== undefined) return undefined;
    // For a response class, reads only own properties. Gaxios adds `data` to a response, but node-fetch's class logs a
    // warning if `data` is read. The `body` of such a class is a stream.
    const isClonable = typeof found["clone"] === "function";
    const partOf = (name: string): unknown =>
      isClonable && !Object.hasOwn(found, name) ? undefined : found[name];
    if (mayContainErrors(partOf("data")) || mayContainErrors(partOf("body"))) return undefined;
    const { headers } = found;
    return typeof headers === "object" && headers !== null
      ? { answer: { ...NOTHING, status }, headers }
      : undefined;
  } catch {
    // A getter or a Proxy threw.
    return undefined;
  }
}

/** True if a body may contain errors, so that it must be read in full. A body may be parsed or text. */
function mayContainErrors(body: unknown): boolean {
  if (typeof body === "string") return body.includes('"error');
  if (typeof body !== "object" || body === null) return false;
  const { errors, error, error_code, status } = body as Readonly<Record<string, unknown>>;
  if (errors !== undefined || error !== undefined || error_code !== undefined) return true;
  return typeof status === "string" && status.startsWith("OVER_");
}

/**
 * Returns the most specific of several refusals, because a wrapping error often knows less than the error inside it.
 */
function mostSpecific(refusals: readonly Interpretation[]): Interpretation | undefined {
  const isFinal = ({ answer }: Interpretation): boolean => !answer.retry;
  const isStated = ({ answer }: Interpretation): boolean => answer.stated;
  return refusals.find(isFinal) ?? refusals.find(isStated) ?? refusals[0];
}

/** The status, headers and quotas that were read from one layer, before they are interpreted. */
interface Evidence {
  readonly status: number | undefined;
  readonly headers: ReadonlyMap<string, string>;
  readonly facts: BodyFacts;
  readonly usedUp: readonly UsedUp[];
  readonly wallNowMs: number;
}

function interpretLayer(layer: Layer, wallNowMs: number, bodies: ReadBodies): Interpretation {
  const { headers: source } = layer;
  const isFailed = layer.isError || (layer.status ?? 0) >= 400;
  const facts = noFacts();
  if (isFailed) readFailure(layer, facts, { wallNowMs, bodies });
  else readSuccess(layer, facts, { wallNowMs, bodies });
  const status = layer.status ?? statusFor(layer, facts);
  const mayRefuse = isFailed || facts.meanings.size > 0 || (status ?? 0) >= 300;
  if (!mayRefuse) {
    return { answer: status === undefined ? NOTHING : { ...NOTHING, status }, headers: source };
  }
  const headers = listHeaders(source);
  const usedUp = readUsedUp(headers, wallNowMs);
  return { answer: conclude({ status, headers, facts, usedUp, wallNowMs }), headers: source };
}

interface ReadWith {
  readonly wallNowMs: number;
  readonly bodies: ReadBodies;
}

function readFailure(layer: Layer, facts: BodyFacts, { wallNowMs, bodies }: ReadWith): void {
  const how = { isResult: false, wallNowMs };
  if (layer.isError) {
    for (const meaning of codesOf(layer).map(meaningOf))
      if (meaning !== undefined) facts.meanings.add(meaning);
    facts.waitMs ??= ownWaitOf(layer.source, wallNowMs);
    const throttling = readProperty(readProperty(layer.source, "$retryable"), "throttling");
    if (throttling === true || isAwsLimit(layer.source)) facts.meanings.add("rate");
  }
  const grpcCode = layer.isError ? grpcCodeOf(layer.source) : undefined;
  if (grpcCode === RESOURCE_EXHAUSTED || grpcCode === UNAVAILABLE) {
    for (const detail of readGrpcDetails(layer.source)) readBody(detail, facts, how);
  }
  for (const part of layer.parts) readBody(bodies.get(part), facts, how);
  for (const body of bodiesOf(layer)) readBody(body, facts, how);
  const message = readProperty(layer.source, "message");
  if (typeof message === "string") facts.text += message.slice(0, 4_000);
  if (grpcCode === RESOURCE_EXHAUSTED && !saysTooLong(facts.text)) facts.meanings.add("rate");
  if (grpcCode === UNAVAILABLE) readUnavailable(layer, facts, wallNowMs);
  if (layer.isError && saysTooManyMails(layer.source, facts.text)) facts.meanings.add("rate");
}

/**
 * Interprets gRPC's code UNAVAILABLE. A server that is unreachable refuses nothing. If the error names a retry time or
 * reports an overload, the server was reached and has refused the call.
 */
function readUnavailable({ headers }: Layer, facts: BodyFacts, wallNowMs: number): void {
  const askedMs = readRetryAfter(listHeaders(headers), wallNowMs) ?? facts.waitMs;
  if (saysOverloaded(facts.text)) facts.meanings.add("overloaded");
  else if (askedMs !== undefined) facts.meanings.add("rate");
}

/**
 * Reads the body of a success, because GraphQL refuses with a 200. Clients return the body itself, or keep it in `data`
 * or `body`.
 */
function readSuccess(
  { source, parts }: Layer,
  facts: BodyFacts,
  { wallNowMs, bodies }: ReadWith,
): void {
  const how = { isResult: true, wallNowMs };
  for (const part of parts) {
    for (const body of [
      bodies.get(part),
      part,
      isResponse(part) ? readOwnProperty(part, "data") : readProperty(part, "data"),
      readProperty(part, "body"),
    ]) {
      readBody(body, facts, how);
    }
  }
  // Slack refuses in the form { ok: false, error: "ratelimited" }.
  const [isOk, error] = [readProperty(source, "ok"), readProperty(source, "error")];
  const meaning = isOk === false ? meaningInResult(error) : undefined;
  if (meaning !== undefined) facts.meanings.add(meaning);
}

/** True for the `LimitExceededException` of AWS, which means throttling. Others use this name for permanent limits. */
function isAwsLimit(source: object): boolean {
  const isAws = typeof readProperty(source, "$metadata") === "object";
  return isAws && readProperty(source, "name") === "LimitExceededException";
}

/** Returns the status of a response if its client does not keep the status. */
function statusFor(
  { source, isError }: Layer,
  { meanings, status }: BodyFacts,
): number | undefined {
  if (isError && readProperty(source, "type") === "StripeRateLimitError") return 429;
  return status ?? (meanings.size > 0 && isGraphql(source) ? 200 : undefined);
}

function isGraphql(source: object): boolean {
  return [source, readProperty(source, "body"), readProperty(source, "data")].some(
    (part) => typeof readProperty(part, "errors") === "object",
  );
}

function conclude(evidence: Evidence): Answer {
  const { status, headers, facts, wallNowMs } = evidence;
  const meaning = meaningOfRefusal(evidence);
  const shouldRetry = readShouldRetry(headers);
  if (meaning === undefined) {
    // Without a refusal, `Retry-After` may still name a time. For example, a 202 says when to fetch the outcome.
    const afterMs = readRetryAfter(headers, wallNowMs);
    const until = afterMs === undefined ? undefined : wallNowMs + afterMs;
    const stated = afterMs !== undefined;
    const isFailed = (status ?? 0) >= 400;
    return { ...NOTHING, status, afterMs, until, stated, retry: isFailed && shouldRetry === true };
  }
  const overloaded = meaning === "overloaded";
  if (meaning === "spent" || meaning === "large") {
    return { ...NOTHING, status, refused: true, lasts: meaning === "spent", unit: facts.unit };
  }
  const quota = quotaOf(evidence, meaning);
  const { waitMs, period, unit } = quota;
  const afterMs = waitMs ?? (saysSecondaryLimit(facts.text) ? SECONDARY_MS : USUAL_MS);
  const isLongPeriod = period === "hour" || period === "day" || period === "month";
  const isLongReset = quota.isReset && afterMs > LASTING_MS && afterMs <= LONGEST_RESET_MS;
  const lasts = isLongReset || ((meaning === "quota" || isLongPeriod) && afterMs > SHORT_MS);
  return {
    status,
    refused: true,
    afterMs,
    until: Math.min(wallNowMs + afterMs, Number.MAX_SAFE_INTEGER),
    stated: waitMs !== undefined,
    scope: period,
    unit,
    lasts,
    overloaded,
    retry: shouldRetry !== false,
  };
}

/**
 * Returns the meaning of a refusal. Undefined if nothing was refused. A 403 alone is not enough, because GitHub sends
 * it both for limited calls and for missing permissions.
 */
function meaningOfRefusal({
  status,
  headers,
  facts,
  usedUp,
  wallNowMs,
}: Evidence): Meaning | "large" | undefined {
  const named = strongest(facts.meanings);
  const isOfLimit = status === 429 || named === "rate" || named === "quota";
  if (isOfLimit && saysTooLarge(facts.text)) return "large";
  if (isOfLimit && saysSpent(facts.text)) return "spent";
  if (status === 403 && saysTooMuchExists(facts.text)) return undefined;
  const isOverloaded = status === OVERLOADED || (status !== 429 && saysOverloaded(facts.text));
  if (named === "spent" || named === "quota") return named;
  if (named !== undefined) return isOverloaded ? "overloaded" : named;
  const isFailed = status === undefined || status >= 400;
  if (status !== undefined && REFUSALS.has(status)) return isOverloaded ? "overloaded" : "rate";
  if (isFailed && status !== undefined && status >= 500 && isOverloaded) return "overloaded";
  if (status === undefined) return undefined;
  if (BY_SENTENCE.has(status) && saysUsedUp(facts.text)) return "quota";
  if (BY_SENTENCE.has(status) && saysTooMany(facts.text)) return "rate";
  // express-slow-down sends a quota of 0 and a `Retry-After` with every response, so also with a missing permission.
  if (hasOnlyEmptyQuotas(headers, wallNowMs)) return undefined;
  const isMarked = usedUp.length > 0 || readRetryAfter(headers, wallNowMs) !== undefined;
  return BY_HEADER.has(status) && (isMarked || isUsedUp(headers)) ? "rate" : undefined;
}

function isUsedUp(headers: ReadonlyMap<string, string>): boolean {
  return headers.get("x-ratelimit-remaining")?.trim() === "0";
}

/** The quota that a refused call exceeded, and the wait that the downstream asks for. */
interface HitQuota {
  readonly waitMs: number | undefined;
  readonly period: QuotaPeriod | undefined;
  readonly unit: string | undefined;
  /** True if the reset time of the quota is known. False if only a retry time is known. */
  readonly isReset: boolean;
}

function quotaOf(evidence: Evidence, meaning: Meaning): HitQuota {
  const { headers, facts, usedUp, wallNowMs } = evidence;
  const longest = longestReset(usedUp);
  const usedUpMs = longest?.resetAfterMs || facts.resetMs || undefined;
  const sentence = periodIn(facts.text);
  const period =
    facts.period ??
    longest?.period ??
    readNamedPeriod(headers) ??
    sentence ??
    (meaning === "quota" && facts.isOfDay ? "day" : undefined);
  const unit =
    longest?.unit ?? facts.unit ?? (sentence === undefined ? undefined : unitOf(facts.text));
  const isReset = usedUpMs !== undefined;
  const isDaily = period === "day" || period === "month";
  if (isDaily && facts.isGoogle) {
    // Ignores Google's `RetryInfo`, which names some seconds even if a daily quota is used up.
    return { waitMs: untilMidnight("America/Los_Angeles", evidence), period, unit, isReset: true };
  }
  const retryAfterMs = readRetryAfter(headers, wallNowMs);
  const askedMs = retryAfterMs || readRegainMs(headers) || facts.waitMs || retryAfterMs;
  const statedMs = isDaily
    ? longestOf(askedMs, usedUpMs)
    : latestOf(askedMs, usedUp, facts.resetMs);
  // GitHub's GraphQL API names the reset time of its points, but may omit the remaining points.
  const isGraphql = evidence.status === 200;
  // A `Retry-After` of 0 is usually rounded down, so any other time in the response is better.
  const waitMs =
    (statedMs || undefined) ??
    readWaitInText(facts.text, wallNowMs) ??
    readNextReset(headers, wallNowMs, isGraphql) ??
    statedMs;
  if (waitMs === undefined && isDaily) {
    return { waitMs: untilMidnight("UTC", evidence), period, unit, isReset: true };
  }
  return { waitMs, period, unit, isReset };
}

function untilMidnight(timeZone: string, { headers, wallNowMs }: Evidence): number {
  const nowMs = readServerTimeMs(headers, wallNowMs);
  const resets = resetsAround(nowMs * 1_000, { at: "00:00", timeZone });
  return Math.ceil(resets.find((atUs) => atUs > nowMs * 1_000)! / 1_000 - nowMs);
}

/** The bounds for reading a body: the most bytes, and the longest time in ms. */
const MOST_BODY_BYTES = 65_536;
const LONGEST_READ_MS = 1_000;

/** An interpretation, with the text of the body if the body had to be read. */
export interface InterpretationWithBody extends Interpretation {
  readonly body: string | undefined;
}

const NOTHING_READ: InterpretationWithBody = Object.freeze({ ...NO_ANSWER, body: undefined });

/**
 * Interprets the result or error of a call: does the downstream refuse calls, for how long, and is a retry useful?
 * `readAnswer` knows the clients and downstreams in `docs/reference/refusals.md`. It recognizes others by the shape of
 * their results. A bucket interprets its calls in the same way.
 *
 * Always await the return value. It is a promise if a failed `Response` has an unread body, on its own or inside an
 * error. A clone of this body is then read: at most 64 KiB, in at most one second. Never throws or rejects.
 */
export function readAnswer(response: Response): Promise<Answer>;
export function readAnswer(resultOrError: unknown): Answer | Promise<Answer>;
export function readAnswer(resultOrError: unknown): Answer | Promise<Answer> {
  const heard = interpretWithBody(resultOrError);
  if (heard instanceof Promise) return heard.then(({ answer }) => answer);
  return isResponse(resultOrError) ? Promise.resolve(heard.answer) : heard.answer;
}

/**
 * Works like `readAnswer`, but also returns the headers and the body. Returns a promise only if a body must be read.
 */
export function interpretWithBody(
  resultOrError: unknown,
): InterpretationWithBody | Promise<InterpretationWithBody> {
  if (typeof resultOrError !== "object" || resultOrError === null) return NOTHING_READ;
  const response = unreadResponse(resultOrError);
  if (response === undefined) return { body: undefined, ...interpret(resultOrError, Date.now()) };
  return readBodyAndInterpret(resultOrError, response);
}

async function readBodyAndInterpret(
  resultOrError: unknown,
  response: Response,
): Promise<InterpretationWithBody> {
  const body = await readClone(response);
  const bodies: ReadBodies = new Map(body === undefined ? [] : [[response, body]]);
  return { ...interpret(resultOrError, Date.now(), bodies), body };
}

/** Returns the response whose unread body may explain more than its status. Undefined if there is none. */
function unreadResponse(resultOrError: unknown): Response | undefined {
  if (typeof resultOrError !== "object" || resultOrError === null) return undefined;
  if (isResponse(resultOrError)) return hasUsefulBody(resultOrError) ? resultOrError : undefined;
  if (!isErrorLike(resultOrError)) return undefined;
  return layersOf(resultOrError)
    .flatMap(({ parts }) => parts)
    .find((part): part is Response => isResponse(part) && hasUsefulBody(part));
}

/**
 * True if the body of a response should be read. It should if the response is a failure, or comes from GraphQL, which
 * refuses with a 200.
 */
function hasUsefulBody(response: Response): boolean {
  try {
    return mayExplain(response) && isReadable(response);
  } catch {
    return false;
  }
}

function mayExplain({ status, headers, url }: Response): boolean {
  const type = headerOf(headers, "content-type") ?? "";
  if (status >= 400) return /json|xml|text|^$/i.test(type);
  const isGraphql = /graphql/i.test(type) || /\/graphql(?:\.json)?(?:[?#]|$)/.test(url);
  // Refusals are short, so a long response is not read, to avoid a delay.
  const isShort = !(Number(headerOf(headers, "content-length")) > MOST_BODY_BYTES);
  return isGraphql && isShort && /json/i.test(type);
}

/**
 * True if a clone of the body can be read. Checked last, because access to `body` may start the stream. The body of
 * node-fetch is excluded, because its clone would block the original until both are read.
 */
function isReadable({ body, bodyUsed }: Response): boolean {
  return typeof body?.getReader === "function" && !bodyUsed && !body.locked;
}

/** Reads the beginning of a body from a clone. Resolves to undefined if the body did not arrive in time. */
async function readClone(response: Response): Promise<string | undefined> {
  let timer: NodeJS.Timeout | undefined;
  const reader = await bodyReader(response);
  if (reader === undefined) return undefined;
  try {
    const late = new Promise<undefined>((resolve) => {
      timer = setTimeout(() => resolve(undefined), LONGEST_READ_MS);
    });
    return await Promise.race([readText(reader), late]);
  } catch {
    // The connection broke. The caller gets the same error when it reads the response.
    return undefined;
  } finally {
    clearTimeout(timer);
    reader.cancel().catch(() => {});
  }
}

async function bodyReader(
  response: Response,
): Promise<ReadableStreamDefaultReader<Uint8Array> | undefined> {
  try {
    return response.clone().body?.getReader();
  } catch {
    return undefined;
  }
}

async function readText(reader: ReadableStreamDefaultReader<Uint8Array>): Promise<string> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  while (size < MOST_BODY_BYTES) {
    const { done, value } = await reader.read();
    if (done) break;
    chunks.push(value);
    size += value.byteLength;
  }
  return Buffer.concat(chunks).subarray(0, MOST_BODY_BYTES).toString();
}
