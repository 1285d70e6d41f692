/**
 * Reads what a result or an error of a downstream means for its callers. `layers.ts` finds the
 * response in it, `headers.ts` and `remaining.ts` read headers, and `body.ts` reads bodies.
 * `dialects.ts` lists the words of the APIs.
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
  isResponse,
  layersOf,
  ownWaitOf,
  type Layer,
} from "./layers.ts";
import {
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

/** An answer, and the headers that it came with as the client keeps them. */
export interface Heard {
  readonly answer: Answer;
  readonly headers: unknown;
}

/** The bodies of responses that have been read beforehand. */
export type ReadBodies = ReadonlyMap<object, string>;

/** How long to wait after a refusal that names no time. */
export const USUAL_MS = 1_000;
/** The same of GitHub's limit on calls that come too fast. */
const SECONDARY_MS = 60_000;
/** A wait that is shorter is worth it, whatever the quota. */
const SHORT_MS = 60_000;
/** A quota whose reset is further away lasts. */
const LASTING_MS = 900_000;

/** Statuses that say "too many" or "no room": RFC 6585, RFC 9110, and those of vendors. */
const REFUSALS: ReadonlySet<number> = new Set([429, 503, 509, 529]);
const OVERLOADED = 529;
/** Statuses that say so with a sentence, and those for which a header suffices: GitHub's, and Binance's for a ban. */
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
export const NOTHING_HEARD: Heard = Object.freeze({ answer: NOTHING, headers: undefined });

/**
 * Reads a call's result, or the error that it threw, and the errors within it. Reads no body that has yet to be read,
 * but those in `bodies`. Never throws, whatever comes in.
 */
export function hear(
  resultOrError: unknown,
  wallNowMs: number,
  bodies: ReadBodies = NO_BODIES,
): Heard {
  if (typeof resultOrError !== "object" || resultOrError === null) return NOTHING_HEARD;
  const glanced = bodies.size === 0 ? glanceAt(resultOrError) : undefined;
  if (glanced !== undefined) return glanced;
  let outermost: Heard | undefined;
  const refusals: Heard[] = [];
  for (const [depth, layer] of layersOf(resultOrError).entries()) {
    const heard = hearLayer(layer, wallNowMs, bodies);
    if (heard.answer.refused) refusals.push(heard);
    else if (heard.answer.status !== undefined) {
      outermost ??= heard;
      // What a success is made of is data.
      if (depth === 0 && heard.answer.status < 300 && !layer.isError) break;
    }
  }
  // An app may answer its provider's 429 with a 502; the 429 in its cause is what counts.
  return mostTelling(refusals) ?? outermost ?? NOTHING_HEARD;
}

/** What an object must have to be anything but data, or a success without a word on errors. */
const TELLING = [
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

/** Most results are plain data or plain successes: to read those in full would take longer than to draw. */
function glanceAt(source: object): Heard | undefined {
  if (types.isNativeError(source)) return undefined;
  const found = source as Readonly<Record<string, unknown>>;
  try {
    if (found["response"] !== undefined || found["errors"] !== undefined) return undefined;
    const status = found["status"] ?? found["statusCode"];
    if (status === undefined) {
      return TELLING.some((name) => found[name] !== undefined) ? undefined : NOTHING_HEARD;
    }
    const isSuccess = typeof status === "number" && status >= 200 && status < 300;
    if (!isSuccess || !Number.isInteger(status) || found["error"] !== undefined) return undefined;
    // Gaxios adds its data to a response; that of node-fetch's class warns of its use, and a body of the class is a stream.
    const isClonable = typeof found["clone"] === "function";
    const partOf = (name: string): unknown =>
      isClonable && !Object.hasOwn(found, name) ? undefined : found[name];
    if (mayTellErrors(partOf("data")) || mayTellErrors(partOf("body"))) return undefined;
    const { headers } = found;
    return typeof headers === "object" && headers !== null
      ? { answer: { ...NOTHING, status }, headers }
      : undefined;
  } catch {
    // A getter or a Proxy that throws.
    return undefined;
  }
}

/** A body as text may have to be parsed. */
function mayTellErrors(body: unknown): boolean {
  if (typeof body === "string") return body.includes('"error');
  if (typeof body !== "object" || body === null) return false;
  const { errors, error, error_code, status } = body as Readonly<Record<string, unknown>>;
  if (errors !== undefined || error !== undefined || error_code !== undefined) return true;
  return typeof status === "string" && status.startsWith("OVER_");
}

/** A wrapper often knows less than the error within it. */
function mostTelling(refusals: readonly Heard[]): Heard | undefined {
  const isFinal = ({ answer }: Heard): boolean => !answer.retry;
  const isStated = ({ answer }: Heard): boolean => answer.stated;
  return refusals.find(isFinal) ?? refusals.find(isStated) ?? refusals[0];
}

/** What one layer says, before it is known what that comes to. */
interface Evidence {
  readonly status: number | undefined;
  readonly headers: ReadonlyMap<string, string>;
  readonly facts: BodyFacts;
  readonly usedUp: readonly UsedUp[];
  readonly wallNowMs: number;
}

function hearLayer(layer: Layer, wallNowMs: number, bodies: ReadBodies): Heard {
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

/** A server that cannot be reached asks for nothing; one that names a time, or is overloaded, was reached. */
function readUnavailable({ headers }: Layer, facts: BodyFacts, wallNowMs: number): void {
  const askedMs = readRetryAfter(listHeaders(headers), wallNowMs) ?? facts.waitMs;
  if (saysOverloaded(facts.text)) facts.meanings.add("overloaded");
  else if (askedMs !== undefined) facts.meanings.add("rate");
}

/** GraphQL refuses with a 200; clients give its body itself, or keep it in `data` or `body`. */
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
  // Slack's way: { ok: false, error: "ratelimited" }.
  const [isOk, error] = [readProperty(source, "ok"), readProperty(source, "error")];
  const meaning = isOk === false ? meaningInResult(error) : undefined;
  if (meaning !== undefined) facts.meanings.add(meaning);
}

/** AWS counts this one among its throttling errors; others use the name for lasting limits. */
function isAwsLimit(source: object): boolean {
  const isAws = typeof readProperty(source, "$metadata") === "object";
  return isAws && readProperty(source, "name") === "LimitExceededException";
}

/** The status of an answer whose client does not keep it. */
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
    // A 202 may carry a Retry-After too, which says when to ask for the outcome.
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

/** Undefined where nothing was refused. GitHub answers with a 403 both when calls are limited and when rights are missing. */
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

/** The quota that was hit, and how long the downstream says to wait. */
interface HitQuota {
  readonly waitMs: number | undefined;
  readonly period: QuotaPeriod | undefined;
  readonly unit: string | undefined;
  /** Whether it is known when the quota is reset, and not only when to come back. */
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
    // Its RetryInfo names some seconds also where the quota of a day is used up.
    return { waitMs: untilMidnight("America/Los_Angeles", evidence), period, unit, isReset: true };
  }
  const retryAfterMs = readRetryAfter(headers, wallNowMs);
  const askedMs = retryAfterMs || readRegainMs(headers) || facts.waitMs || retryAfterMs;
  const statedMs = isDaily
    ? longestOf(askedMs, usedUpMs)
    : latestOf(askedMs, usedUp, facts.resetMs);
  // GitHub's GraphQL says when its points are reset, but may leave out how many are left.
  const isGraphql = evidence.status === 200;
  // A Retry-After of 0 is what rounding leaves; any other time in the answer says more.
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
