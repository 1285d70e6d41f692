/**
 * Interprets a result or an error: whether the downstream refused the call, and for how long.
 *
 * - `layers.ts` finds the response in it.
 * - `headers.ts` and `remaining.ts` read headers.
 * - `body.ts` reads bodies.
 * - `dialects.ts` lists the words of the APIs.
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
  latestOf,
  LONGEST_RESET_MS,
  longestReset,
  readNamedPeriod,
  readNextReset,
  readUsedUp,
  type UsedUp,
} from "./remaining.ts";
import { readWaitInText } from "./retry-after.ts";

/** What a result or an error means, with the response headers as the client keeps them. */
export interface Interpretation {
  readonly answer: Answer;
  readonly headers: unknown;
}

/** The bodies of responses that were read before. */
export type ReadBodies = ReadonlyMap<object, string>;

/** How long to wait after a refusal without a time. */
export const USUAL_MS = 1_000;
/** How long to wait after a refusal by GitHub's secondary rate limit. */
const SECONDARY_MS = 60_000;
/** A shorter wait never counts as lasting. */
const SHORT_MS = 60_000;
/** A quota that resets later than this counts as lasting. */
const LASTING_MS = 900_000;

/** Statuses for "too many calls" or "no capacity": RFC 6585, RFC 9110, and vendors' own. */
const REFUSALS: ReadonlySet<number> = new Set([429, 503, 509, 529]);
const OVERLOADED = 529;
/**
 * Statuses that are refusals if their text says so, and those for which a header is enough: GitHub's, and Binance's for
 * a ban.
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
 * Interprets a call's result or error, and the errors within it. Reads no response bodies; those in `bodies` were read
 * before. Never throws, whatever comes in.
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
      // The parts of a successful result are data.
      if (depth === 0 && heard.answer.status < 300 && !layer.isError) break;
    }
  }
  // An app may wrap its provider's 429 in a 502; the 429 in the cause counts.
  return mostSpecific(refusals) ?? outermost ?? NO_ANSWER;
}

/** Properties that a plain success does not have. A result with one of them is read in full. */
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

/** A shortcut for plain data and plain successes: reading those in full would take longer than the draw. */
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
    // Gaxios adds `data` to a response, but node-fetch's class warns if `data` is read. A `body` of the class is a
    // stream.
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

/** A body as text may need to be parsed. */
function mayContainErrors(body: unknown): boolean {
  if (typeof body === "string") return body.includes('"error');
  if (typeof body !== "object" || body === null) return false;
  const { errors, error, error_code, status } = body as Readonly<Record<string, unknown>>;
  if (errors !== undefined || error !== undefined || error_code !== undefined) return true;
  return typeof status === "string" && status.startsWith("OVER_");
}

/** The most specific refusal: a wrapper often knows less than the error inside it. */
function mostSpecific(refusals: readonly Interpretation[]): Interpretation | undefined {
  const isFinal = ({ answer }: Interpretation): boolean => !answer.retry;
  const isStated = ({ answer }: Interpretation): boolean => answer.stated;
  return refusals.find(isFinal) ?? refusals.find(isStated) ?? refusals[0];
}

/** What was read from one layer, before it is interpreted. */
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
 * A server that cannot be reached refuses nothing. A server that names a time, or says that it is overloaded, was
 * reached.
 */
function readUnavailable({ headers }: Layer, facts: BodyFacts, wallNowMs: number): void {
  const askedMs = readRetryAfter(listHeaders(headers), wallNowMs) ?? facts.waitMs;
  if (saysOverloaded(facts.text)) facts.meanings.add("overloaded");
  else if (askedMs !== undefined) facts.meanings.add("rate");
}

/** GraphQL refuses with a 200. Clients return its body itself, or keep it in `data` or `body`. */
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
  // Slack's form: { ok: false, error: "ratelimited" }.
  const [isOk, error] = [readProperty(source, "ok"), readProperty(source, "error")];
  const meaning = isOk === false ? meaningInResult(error) : undefined;
  if (meaning !== undefined) facts.meanings.add(meaning);
}

/** AWS uses this name for throttling; others use it for permanent limits. */
function isAwsLimit(source: object): boolean {
  const isAws = typeof readProperty(source, "$metadata") === "object";
  return isAws && readProperty(source, "name") === "LimitExceededException";
}

/** The status of a response whose client does not keep it. */
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
    // A 202 may also have a `Retry-After`, for when to fetch the outcome.
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

/** Undefined if nothing was refused. GitHub responds with a 403 both to limited calls and to missing permissions. */
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
  const isMarked = usedUp.length > 0 || readRetryAfter(headers, wallNowMs) !== undefined;
  return BY_HEADER.has(status) && (isMarked || isUsedUp(headers)) ? "rate" : undefined;
}

function isUsedUp(headers: ReadonlyMap<string, string>): boolean {
  return headers.get("x-ratelimit-remaining")?.trim() === "0";
}

/** The quota that was exceeded, and how long the downstream asks to wait. */
interface HitQuota {
  readonly waitMs: number | undefined;
  readonly period: QuotaPeriod | undefined;
  readonly unit: string | undefined;
  /** True if the reset time of the quota is known, and not only a retry time. */
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
    // Google's `RetryInfo` names some seconds even if the quota of a day is used up.
    return { waitMs: untilMidnight("America/Los_Angeles", evidence), period, unit, isReset: true };
  }
  const retryAfterMs = readRetryAfter(headers, wallNowMs);
  const askedMs = retryAfterMs || readRegainMs(headers) || facts.waitMs || retryAfterMs;
  const statedMs = isDaily
    ? longestOf(askedMs, usedUpMs)
    : latestOf(askedMs, usedUp, facts.resetMs);
  // GitHub's GraphQL names the reset time of its points, but may leave out how many are left.
  const isGraphql = evidence.status === 200;
  // A `Retry-After` of 0 is a result of rounding, so any other time in the response is better.
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

/** How much of a body is read, and for how long. */
const MOST_BODY_BYTES = 65_536;
const LONGEST_READ_MS = 1_000;

/** An interpretation, with the body if it had to be read. */
export interface InterpretationWithBody extends Interpretation {
  readonly body: string | undefined;
}

const NOTHING_READ: InterpretationWithBody = Object.freeze({ ...NO_ANSWER, body: undefined });

/**
 * Reads what a call returned or threw: whether its downstream refuses calls, for how long, and whether a retry is
 * useful. It knows the clients and downstreams of `docs/reference/refusals.md`, and others by the shape of their
 * results. A bucket reads its calls the same way.
 *
 * Await the result. It is available at once, except for a failed `Response` whose body is unread, either on its own or
 * within an error. Then a clone of that body is read, at most 64 KiB in at most one second. Never throws or rejects.
 */
export function readAnswer(response: Response): Promise<Answer>;
export function readAnswer(resultOrError: unknown): Answer | Promise<Answer>;
export function readAnswer(resultOrError: unknown): Answer | Promise<Answer> {
  const heard = interpretWithBody(resultOrError);
  if (heard instanceof Promise) return heard.then(({ answer }) => answer);
  return isResponse(resultOrError) ? Promise.resolve(heard.answer) : heard.answer;
}

/** Like `readAnswer`, with headers and body. Returns a promise only if a body must be read. */
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

/** The response with an unread body that may explain more than its status. */
function unreadResponse(resultOrError: unknown): Response | undefined {
  if (typeof resultOrError !== "object" || resultOrError === null) return undefined;
  if (isResponse(resultOrError)) return hasUsefulBody(resultOrError) ? resultOrError : undefined;
  if (!isErrorLike(resultOrError)) return undefined;
  return layersOf(resultOrError)
    .flatMap(({ parts }) => parts)
    .find((part): part is Response => isResponse(part) && hasUsefulBody(part));
}

/** True if the body should be read: that of a failure, or of GraphQL, which refuses with a 200. */
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
  // Refusals are short; a long response must not be delayed.
  const isShort = !(Number(headerOf(headers, "content-length")) > MOST_BODY_BYTES);
  return isGraphql && isShort && /json/i.test(type);
}

/** Reading `body` may start it. With node-fetch, a clone would block the original until both are read. */
function isReadable({ body, bodyUsed }: Response): boolean {
  return typeof body?.getReader === "function" && !bodyUsed && !body.locked;
}

/** The beginning of a body, read from a clone; undefined if it did not arrive in time. */
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
    // The connection broke; the caller of the response will see that too.
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
