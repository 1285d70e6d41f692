import { headerOf, readProperty, readServerTimeMs } from "./headers.ts";
import { readUsedUpMs } from "./remaining.ts";
import { readDelayMs, readRetryAfterMs } from "./retry-after.ts";

/** The HTTP answer behind a result or an error. */
export interface Answer {
  /** The status code: `429`. Of a GraphQL result that names none, `200`. */
  readonly status: number;
  /** Whether the downstream asks for fewer calls. */
  readonly isLimited: boolean;
  /** How long it asks to wait, in whole ms, not capped: `1500`. Undefined when it does not say. */
  readonly retryAfterMs: number | undefined;
  /** The headers as the client keeps them, for `headerOf`; undefined when there are none. */
  readonly headers: unknown;
}

/** How far an error's `cause` is followed: wrapped once by a client and once by its user. */
const MOST_CAUSES = 2;

/** How many errors of a GraphQL answer are read. */
const MOST_ERRORS = 100;

/**
 * Reads the HTTP answer behind a call's result, or behind the error that it threw.
 * Knows fetch, undici, Axios, Got, ky, OpenAI, Anthropic, Stripe, Octokit,
 * Shopify's GraphQL, and errors whose `cause` is one of theirs. Undefined when
 * there is none; never throws, whatever comes in.
 */
export function readAnswer(resultOrError: unknown, wallNowMs: number): Answer | undefined {
  let outermost: Answer | undefined;
  let source = resultOrError;
  for (let depth = 0; depth <= MOST_CAUSES; depth++) {
    if (typeof source !== "object" || source === null) break;
    const answer = answerOf(source, wallNowMs);
    // An app may answer its provider's 429 with a 502; the 429 in its cause is what counts.
    if (answer !== undefined && (answer.isLimited || answer.status < 300)) return answer;
    outermost ??= answer;
    source = readProperty(source, "cause");
  }
  return outermost;
}

function answerOf(source: object, wallNowMs: number): Answer | undefined {
  const response = readProperty(source, "response");
  const raw = readProperty(source, "raw");
  const parts = [response, source, raw];
  const isThrottled = [source, response].some(isThrottledBody);
  const status =
    firstOf(parts, statusOf) ?? statusOfType(source) ?? (isThrottled ? 200 : undefined);
  if (status === undefined) return undefined;
  const headers = firstOf(parts, headersOf);
  const isLimited = isThrottled || isLimitedBy(status, headers);
  // A 202 may carry a Retry-After too, which says when to ask for the outcome.
  const retryAfterMs =
    isLimited || status >= 300 ? retryAfterOf(headers, { isLimited, wallNowMs }) : undefined;
  return { status, isLimited, retryAfterMs, headers };
}

function statusOf(part: unknown): number | undefined {
  return [readProperty(part, "status"), readProperty(part, "statusCode")].find(isStatus);
}

function isStatus(value: unknown): value is number {
  return Number.isInteger(value) && (value as number) >= 100 && (value as number) <= 599;
}

function statusOfType(source: object): number | undefined {
  return readProperty(source, "type") === "StripeRateLimitError" ? 429 : undefined;
}

function headersOf(part: unknown): object | undefined {
  const headers = readProperty(part, "headers");
  return typeof headers === "object" && headers !== null ? headers : undefined;
}

function firstOf<Found>(
  parts: readonly unknown[],
  read: (part: unknown) => Found | undefined,
): Found | undefined {
  for (const part of parts) {
    const found = read(part);
    if (found !== undefined) return found;
  }
  return undefined;
}

/** GitHub answers with a 403 both when calls are limited and when rights are missing; these headers mark the former. */
function isLimitedBy(status: number, headers: unknown): boolean {
  if (status === 429 || status === 503) return true;
  if (status !== 403) return false;
  return isUsedUp(headers) || headerOf(headers, "retry-after") !== undefined;
}

function isUsedUp(headers: unknown): boolean {
  return headerOf(headers, "x-ratelimit-remaining")?.trim() === "0";
}

function retryAfterOf(
  headers: unknown,
  { isLimited, wallNowMs }: { isLimited: boolean; wallNowMs: number },
): number | undefined {
  const askedMs =
    readDelayMs(headerOf(headers, "retry-after-ms"), 1) ??
    readRetryAfterMs(headerOf(headers, "retry-after"), readServerTimeMs(headers, wallNowMs));
  return askedMs ?? (isLimited ? readUsedUpMs(headers, wallNowMs) : undefined);
}

/** Shopify's GraphQL refuses with a 200; clients give its body itself, or keep it in `data` or `body`. */
function isThrottledBody(part: unknown): boolean {
  return [part, readProperty(part, "data"), readProperty(part, "body")].some((body) => {
    const errors = readProperty(body, "errors");
    return isThrottledList(errors) || isThrottledList(readProperty(errors, "graphQLErrors"));
  });
}

function isThrottledList(errors: unknown): boolean {
  const count = readProperty(errors, "length");
  if (typeof count !== "number") return false;
  for (let index = 0; index < Math.min(count, MOST_ERRORS); index++) {
    const extensions = readProperty(readProperty(errors, String(index)), "extensions");
    if (readProperty(extensions, "code") === "THROTTLED") return true;
  }
  return false;
}
