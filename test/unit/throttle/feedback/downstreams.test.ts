import { describe, expect, it } from "vitest";
import type { Answer } from "../../../../src/core/answer.ts";
import { interpret } from "../../../../src/throttle/feedback/answer.ts";

const nowMs = Date.UTC(2026, 10, 21, 12, 0, 0);
const nowSeconds = nowMs / 1_000;
const TO_MIDNIGHT_IN_CALIFORNIA = 20 * 3_600_000;
const TO_MIDNIGHT_UTC = 12 * 3_600_000;

function thrown(properties: object, message = "the call failed"): Error {
  return Object.assign(new Error(message), properties);
}

/** What is read of a refusal in the form that axios gives it. */
function heardOf(status: number, headers: object, data: unknown = ""): Answer {
  return interpret(thrown({ response: { status, headers, data } }), nowMs).answer;
}

type Row = readonly [symptom: string, given: unknown, expected: Partial<Answer>];

const withBodies: readonly Row[] = [
  [
    "Gemini's RetryInfo",
    heardOf(429, {}, gemini("GenerateRequestsPerMinutePerProjectPerModel", "12.345678901s")),
    { afterMs: 12_346, scope: "minute", unit: "calls", lasts: false, retry: true },
  ],
  [
    "Gemini's quota of a day, whatever its RetryInfo says",
    heardOf(429, {}, gemini("GenerateRequestsPerDayPerProjectPerModel-FreeTier", "12s")),
    { afterMs: TO_MIDNIGHT_IN_CALIFORNIA, scope: "day", lasts: true },
  ],
  [
    "a quota of a day in the text of a body",
    heardOf(429, {}, JSON.stringify(gemini("TokensPerDay", "12s"))),
    { afterMs: TO_MIDNIGHT_IN_CALIFORNIA, unit: "tokens" },
  ],
  ["rateLimitExceeded of Google", googleError("rateLimitExceeded"), { afterMs: 1_000 }],
  ["userRateLimitExceeded of Google", googleError("userRateLimitExceeded"), { lasts: false }],
  [
    "quotaExceeded of Google",
    googleError("quotaExceeded"),
    { afterMs: TO_MIDNIGHT_IN_CALIFORNIA, lasts: true },
  ],
  [
    "dailyLimitExceeded of Google",
    googleError("dailyLimitExceeded"),
    { scope: "day", lasts: true },
  ],
  [
    "GitHub's secondary limit",
    heardOf(
      403,
      { "x-ratelimit-remaining": "4987", "x-ratelimit-reset": String(nowSeconds + 1_800) },
      { message: "You have exceeded a secondary rate limit. Please wait a few minutes." },
    ),
    { afterMs: 60_000, stated: false },
  ],
  [
    "Shopify's cost",
    interpret(shopify(752, 2, 100), nowMs).answer,
    { afterMs: 7_500, unit: "points", status: 200 },
  ],
  [
    "GitHub's GraphQL",
    interpret(
      thrown({
        name: "GraphqlResponseError",
        headers: { "x-ratelimit-reset": String(nowSeconds + 30) },
        errors: [{ type: "RATE_LIMIT", message: "API rate limit exceeded" }],
        response: { data: null, errors: [{ type: "RATE_LIMIT" }] },
      }),
      nowMs,
    ).answer,
    { afterMs: 30_000, status: 200 },
  ],
  [
    "Linear's GraphQL with a 400",
    heardOf(400, {}, { errors: [{ extensions: { code: "RATELIMITED" } }] }),
    { afterMs: 1_000 },
  ],
  ["an overload of Anthropic", heardOf(529, {}), { afterMs: 1_000, overloaded: true }],
  [
    "an overload in the middle of a stream",
    interpret(thrown({ error: { type: "error", error: { type: "overloaded_error" } } }), nowMs)
      .answer,
    { afterMs: 1_000, overloaded: true, lasts: false },
  ],
  [
    "an overload of Gemini",
    heardOf(503, {}, { error: { message: "The model is overloaded.", status: "UNAVAILABLE" } }),
    { overloaded: true },
  ],
  [
    "insufficient_quota of OpenAI",
    interpret(
      thrown({ status: 429, headers: new Headers(), code: "insufficient_quota", error: {} }),
      nowMs,
    ).answer,
    { afterMs: undefined, retry: false, lasts: true },
  ],
  [
    "a wait in a message of OpenAI",
    heardOf(
      429,
      {},
      {
        error: { message: "Limit 200, Used 200 on requests per day (RPD). Try again in 7m12s." },
      },
    ),
    { afterMs: 432_000, scope: "day", unit: "calls", stated: true },
  ],
  ["a wait in a body", heardOf(429, {}, { retry_after: 1.5 }), { afterMs: 1_500, stated: true }],
  ["a wait in ms in a body", heardOf(429, {}, { retryAfterMs: 1_500 }), { afterMs: 1_500 }],
  [
    "Telegram's parameters",
    heardOf(429, {}, { ok: false, error_code: 429, parameters: { retry_after: 14 } }),
    { afterMs: 14_000 },
  ],
  [
    "a quota of a day without a time",
    heardOf(429, {}, { errorType: "RATE_LIMIT", policyName: "DAILY" }),
    { afterMs: TO_MIDNIGHT_UTC, scope: "day", lasts: true },
  ],
  [
    "a body that was cut off",
    heardOf(429, {}, JSON.stringify(gemini("TokensPerMinute", "12s")).slice(0, -4)),
    { afterMs: 12_000, scope: "minute", unit: "tokens" },
  ],
  ["S3's XML", heardOf(503, {}, "<Error><Code>SlowDown</Code></Error>"), { afterMs: 1_000 }],
  [
    "an answer not to retry",
    heardOf(429, { "x-should-retry": "false", "retry-after": "5" }),
    { afterMs: 5_000, retry: false },
  ],
  [
    "Stripe's answer not to retry",
    heardOf(429, { "Stripe-Should-Retry": "false" }),
    { retry: false },
  ],
];

const ofClients: readonly Row[] = [
  [
    "AWS",
    thrown({
      name: "ProvisionedThroughputExceededException",
      $metadata: { httpStatusCode: 400, attempts: 1 },
      $response: { statusCode: 400, headers: { "retry-after": "7" } },
    }),
    { afterMs: 7_000, status: 400 },
  ],
  [
    "AWS, by a namespaced type",
    thrown({
      $metadata: { httpStatusCode: 400 },
      response: { status: 400, data: { __type: "com.amazon.coral#ThrottlingException" } },
    }),
    { afterMs: 1_000 },
  ],
  [
    "AWS, by a name that means more elsewhere",
    thrown({ name: "LimitExceededException", $metadata: { httpStatusCode: 400 } }),
    { afterMs: 1_000 },
  ],
  [
    "Telegram, whose response is the body",
    thrown({ response: { ok: false, error_code: 429, parameters: { retry_after: 14 } } }),
    { afterMs: 14_000, status: 429 },
  ],
  [
    "Slack",
    thrown({ code: "slack_webapi_rate_limited_error", retryAfter: 30 }),
    { afterMs: 30_000, status: undefined },
  ],
  [
    "Vercel",
    thrown({
      name: "AI_APICallError",
      statusCode: 429,
      responseHeaders: { "retry-after": "30" },
      responseBody: "{}",
      isRetryable: true,
    }),
    { afterMs: 30_000, status: 429 },
  ],
  [
    "Vercel, after its own retries",
    thrown({
      name: "AI_RetryError",
      reason: "maxRetriesExceeded",
      errors: [thrown({ statusCode: 500 })],
      lastError: thrown({ statusCode: 429, responseHeaders: { "retry-after": "30" } }),
    }),
    { afterMs: 30_000 },
  ],
  [
    "the second of several errors",
    new AggregateError([thrown({ status: 429, headers: { "retry-after": "30" } }), new Error("x")]),
    { afterMs: 30_000 },
  ],
  [
    "several, of which one went well",
    new AggregateError([
      thrown({ status: 429, headers: { "retry-after": "30" } }),
      { status: 200 },
    ]),
    { afterMs: 30_000 },
  ],
  [
    "gRPC",
    thrown({
      code: 8,
      details: "Quota exceeded",
      metadata: {
        get: (name: string) => (name === "grpc-status-details-bin" ? [retryInfo()] : []),
      },
    }),
    { afterMs: 7_500 },
  ],
  [
    "gax, which decodes the details",
    thrown({
      code: 8,
      details: "Quota exceeded",
      statusDetails: [{ retryDelay: { seconds: "7", nanos: 500_000_000 } }],
    }),
    { afterMs: 7_500 },
  ],
  [
    "discord.js",
    thrown({ name: "RateLimitError[/channels]", timeToReset: 1_500, retryAfter: 1_500 }),
    { afterMs: 1_500 },
  ],
  [
    "Google's client, which keeps the body in the message",
    thrown({ name: "ApiError", status: 429 }, JSON.stringify(gemini("PerMinute", "12s"))),
    { afterMs: 12_000 },
  ],
  [
    "a wrapper that knows less than its cause",
    thrown({
      name: "RateLimitError",
      cause: thrown({ status: 429, headers: new Map([["Retry-After", "30"]]) }),
    }),
    { afterMs: 30_000 },
  ],
  ["undici, whose cause is the true reason", undiciFailure(), { afterMs: 30_000 }],
];

function gemini(quotaId: string, retryDelay: string): object {
  const type = "type.googleapis.com/google.rpc";
  const details = [
    { "@type": `${type}.QuotaFailure`, violations: [{ quotaMetric: "m", quotaId }] },
    { "@type": `${type}.RetryInfo`, retryDelay },
  ];
  return { error: { code: 429, message: "Quota.", status: "RESOURCE_EXHAUSTED", details } };
}

function googleError(reason: string): Answer {
  const errors = [{ message: "m", domain: "usageLimits", reason }];
  return heardOf(403, {}, { error: { errors, code: 403, message: "m" } });
}

function shopify(requestedQueryCost: number, currentlyAvailable: number, restoreRate: number) {
  const throttleStatus = { maximumAvailable: 1_000, currentlyAvailable, restoreRate };
  return {
    errors: [{ message: "Throttled", extensions: { code: "THROTTLED" } }],
    extensions: { cost: { requestedQueryCost, actualQueryCost: null, throttleStatus } },
  };
}

/** `google.rpc.Status` with a RetryInfo of 7.5 s. */
function retryInfo(): Buffer {
  const field = (number: number, bytes: Buffer): Buffer =>
    Buffer.concat([Buffer.from([number * 8 + 2, bytes.length]), bytes]);
  // 500,000,000 in base 128.
  const duration = Buffer.from([8, 7, 16, 0x80, 0xca, 0xb5, 0xee, 0x01]);
  const type = Buffer.from("type.googleapis.com/google.rpc.RetryInfo");
  return field(3, Buffer.concat([field(1, type), field(2, field(1, duration))]));
}

function undiciFailure(): Error {
  const cause = thrown({ statusCode: 429, headers: ["Retry-After", "30"] });
  return new TypeError("fetch failed", { cause });
}

describe("a refusal in a body", () => {
  it.each(withBodies)("is read from %s", (_symptom, answer, expected) => {
    expect(answer).toMatchObject({ refused: true, ...expected });
  });
});

describe("a refusal in an error", () => {
  it.each(ofClients)("is read from that of %s", (_symptom, error, expected) => {
    expect(interpret(error, nowMs).answer).toMatchObject({ refused: true, ...expected });
  });

  it.each(ofClients)("is read two wrappers below, from that of %s", (_symptom, error, expected) => {
    const wrapped = thrown({ originalError: thrown({ lastError: error }) });

    expect(interpret(wrapped, nowMs).answer).toMatchObject({ refused: true, ...expected });
  });
});

describe("what is no refusal", () => {
  it.each<[string, unknown]>([
    ["a 403 for want of rights", thrown({ status: 403, response: { data: { message: "no" } } })],
    ["a 400 that names a field", thrown({ status: 400, error: { param: "rate_limit" } })],
    ["a 404", thrown({ status: 404, headers: { "x-ratelimit-remaining": "0" } })],
    ["a 500 that says when to come back", thrown({ status: 500, headers: { "retry-after": "5" } })],
    ["a success whose data tells of refusals", { status: 200, data: { lastError: { code: 429 } } }],
    ["a result that looks like an error of gRPC", { code: 8, details: "eight" }],
    ["a result with a list of failures", { lastError: { status: 429 }, failures: [429] }],
    ["a process that ended with a code", thrown({ code: 143 })],
    ["a lost connection", thrown({ code: "ECONNRESET" })],
    ["a validation error", thrown({ errors: [{ code: "too_small", path: ["limit"] }] })],
  ])("is %s", (_what, given) => {
    expect(interpret(given, nowMs).answer).toMatchObject({ refused: false });
  });
});
