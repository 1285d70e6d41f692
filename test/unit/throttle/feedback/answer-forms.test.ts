import { describe, expect, it } from "vitest";
import { interpret } from "../../../../src/throttle/feedback/answer.ts";
import {
  HEARD_AT_MS,
  google,
  itReads,
  refusal,
  thrown,
} from "../../../support/servers/refusals.ts";

const nowMs = HEARD_AT_MS;
const TO_MIDNIGHT_IN_CALIFORNIA = 20 * 3_600_000;
const TO_MIDNIGHT_UTC = 12 * 3_600_000;

describe("a quota that is used up", () => {
  const fcm = [
    {
      "@type": "type.googleapis.com/google.firebase.fcm.v1.FcmError",
      errorCode: "QUOTA_EXCEEDED",
    },
  ];
  itReads([
    [
      "as a rate where nothing names a day, as of Amazon's sellers",
      refusal(
        429,
        {},
        { errors: [{ code: "QuotaExceeded", message: "You exceeded your quota." }] },
      ),
      { afterMs: 1_000, lasts: false, scope: undefined },
    ],
    [
      "as long as Firebase says, and not until midnight",
      refusal(429, { "retry-after": "60" }, { error: { code: 429, details: fcm } }),
      { afterMs: 60_000, lasts: false },
    ],
    ["with a namespace", thrown({ code: "messaging/quota-exceeded" }), { afterMs: 1_000 }],
    [
      "by the second, whatever Google's code says",
      google(403, {
        message: "Search Analytics QPS quota exceeded.",
        errors: [{ domain: "usageLimits", reason: "quotaExceeded" }],
      }),
      { afterMs: 1_000, scope: "second", lasts: false },
    ],
    [
      "by the day, of YouTube",
      google(403, { errors: [{ domain: "youtube.quota", reason: "quotaExceeded" }] }),
      { afterMs: TO_MIDNIGHT_IN_CALIFORNIA, lasts: true },
    ],
    [
      "until a time span, of Azure's API Management",
      refusal(
        403,
        {},
        { message: "Out of call volume quota. Quota will be replenished in 10:22:31." },
      ),
      { afterMs: 37_351_000, lasts: true },
    ],
    [
      "by the day, in LinkedIn's name for it",
      refusal(429, {}, { message: "Resource level throttle APPLICATION_DAY limit is reached." }),
      { afterMs: TO_MIDNIGHT_UTC, scope: "day", lasts: true },
    ],
  ]);

  it.each<[string, unknown]>([
    ["of a browser's storage", new DOMException("too much", "QuotaExceededError")],
    [
      "of machines",
      google(403, {
        message: "Quota 'CPUS' exceeded.  Limit: 24.0 in region us-central1.",
        errors: [{ domain: "usageLimits", reason: "quotaExceeded" }],
      }),
    ],
    ["of a disk", refusal(507, {}, { error: { code: "quotaLimitReached" } })],
  ])("is no refusal %s", (_what, given) => {
    expect(interpret(given, nowMs).answer).toMatchObject({ refused: false });
  });
});

describe("a call for which no wait helps", () => {
  itReads([
    [
      "that is larger than its limit",
      refusal(
        429,
        {},
        {
          error: {
            message:
              "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 45000.",
            code: "rate_limit_exceeded",
          },
        },
      ),
      { afterMs: undefined, retry: false, lasts: false },
    ],
    [
      "that is larger than its limit, with a 413",
      refusal(
        413,
        {},
        {
          error: { message: "Request too large for model `m`", code: "rate_limit_exceeded" },
        },
      ),
      { afterMs: undefined, retry: false },
    ],
    [
      "of an account without credits, in words",
      refusal(429, {}, { error: "Your team has used all available credits. Try again in 5s." }),
      { afterMs: undefined, retry: false, lasts: true },
    ],
  ]);
});

describe("an error of gRPC", () => {
  const metadata = (headers: Record<string, string> = {}): object => ({
    get: () => [],
    getMap: () => headers,
  });
  itReads([
    [
      "that is unavailable and says when to come back",
      thrown({ code: 14, metadata: metadata({ "grpc-retry-pushback-ms": "250" }) }),
      { afterMs: 250, stated: true },
    ],
    [
      "that is unavailable, by its details",
      thrown({ code: 14, metadata: metadata(), statusDetails: [{ retryDelay: { seconds: 3 } }] }),
      { afterMs: 3_000 },
    ],
    [
      "that is overloaded",
      thrown({ code: 14, details: "The model is overloaded." }, "The model is overloaded."),
      { afterMs: 1_000, overloaded: true },
    ],
    [
      "with the name of its limit",
      thrown({
        code: 8,
        metadata: metadata(),
        errorInfoMetadata: { quota_limit: "RequestsPerMinutePerProject" },
      }),
      { scope: "minute" },
    ],
  ]);

  it.each([
    "Received message larger than max (5000000 vs. 4194304)",
    "Attempted to send message with a size larger than 4194304",
  ])("is no refusal where a message is too long: %s", (details) => {
    const error = thrown({ code: 8, details, metadata: metadata() }, details);

    expect(interpret(error, nowMs).answer).toMatchObject({ refused: false });
  });

  it("is no refusal where nothing was reached", () => {
    const details = "No connection established. Last error: connect ECONNREFUSED 127.0.0.1:1";

    const { answer } = interpret(thrown({ code: 14, details, metadata: metadata() }), nowMs);

    expect(answer).toMatchObject({ refused: false });
  });
});

describe("a client's own form", () => {
  itReads([
    [
      "of grammY",
      thrown({ ok: false, error_code: 429, parameters: { retry_after: 14 } }),
      { status: 429, afterMs: 14_000 },
    ],
    [
      "of GramJS",
      thrown({ code: 420, seconds: 37 }, "A wait of 37 seconds is required"),
      { afterMs: 37_000 },
    ],
    [
      "of a cancelled transaction of DynamoDB",
      thrown({
        $metadata: { httpStatusCode: 400 },
        CancellationReasons: [{ Code: "ThrottlingError" }],
      }),
      { afterMs: 1_000 },
    ],
    [
      "of AWS's second SDK, whose retryDelay is its own and in ms",
      thrown({ code: "ThrottlingException", statusCode: 400, retryable: true, retryDelay: 37.16 }),
      { afterMs: 1_000, stated: false },
    ],
    ["of Cosmos DB", thrown({ code: 429, retryAfterInMilliseconds: 12 }), { afterMs: 12 }],
    [
      "of Cosmos DB as a MongoDB",
      thrown({ code: 16_500, codeName: "RequestRateTooLarge" }, "Error=16500, RetryAfterMs=34, …"),
      { afterMs: 34 },
    ],
    ["of discord.js", thrown({ status: 429, rawError: { retry_after: 3.5 } }), { afterMs: 3_500 }],
    [
      "of gaxios, which adds its data to a response",
      thrown({
        response: Object.assign(new Response(null, { status: 403 }), {
          data: { error: { errors: [{ reason: "rateLimitExceeded" }] } },
        }),
      }),
      { status: 403, afterMs: 1_000 },
    ],
    [
      "of hapi",
      thrown({ output: { statusCode: 429, headers: { "Retry-After": "5" } } }),
      { afterMs: 5_000 },
    ],
    [
      "of Supabase's functions",
      thrown({ context: new Response("", { status: 429, headers: { "retry-after": "4" } }) }),
      { afterMs: 4_000 },
    ],
    [
      "of Supabase, which throws nothing",
      { data: { user: null }, error: thrown({ status: 429, code: "over_request_rate_limit" }) },
      { status: 429 },
    ],
    [
      "of Resend, which throws nothing",
      { data: null, error: { statusCode: 429, message: "m" }, headers: { "retry-after": "4" } },
      { afterMs: 4_000 },
    ],
    [
      "of urql",
      thrown({
        graphQLErrors: [thrown({ extensions: { code: "THROTTLED" } })],
        response: { status: 200, headers: new Headers() },
      }),
      { afterMs: 1_000 },
    ],
    [
      "of graphql-request, with Shopify's cost",
      thrown({
        response: {
          status: 200,
          errors: [{ extensions: { code: "THROTTLED" } }],
          extensions: {
            cost: {
              requestedQueryCost: 752,
              throttleStatus: { currentlyAvailable: 2, restoreRate: 100 },
            },
          },
        },
      }),
      { afterMs: 7_500, unit: "points" },
    ],
    ["of viem", thrown({ name: "LimitExceededRpcError", code: -32_005 }), { afterMs: 1_000 }],
    [
      "of a ban by Binance",
      refusal(418, {}, { code: -1003, msg: "m", message: `IP banned until ${nowMs + 120_000}.` }),
      { afterMs: 120_000 },
    ],
    ["of a ban with a header", refusal(418, { "retry-after": "120" }), { afterMs: 120_000 }],
  ]);
});

describe("a mail server's reply", () => {
  const reply = (responseCode: number, response: string): Error =>
    thrown({ responseCode, response });
  itReads([
    [
      "of too much at once",
      reply(454, "454 Throttling failure: Maximum sending rate exceeded."),
      { afterMs: 1_000 },
    ],
    [
      "of too many connections",
      reply(421, "421 4.7.0 Too many concurrent SMTP connections"),
      { afterMs: 1_000 },
    ],
    [
      "of a day",
      thrown({ responseCode: 550 }, "550-5.4.5 Daily user sending limit exceeded."),
      { afterMs: TO_MIDNIGHT_UTC, scope: "day", lasts: true },
    ],
  ]);

  it.each([
    [550, "550 5.1.1 The email account that you tried to reach does not exist."],
    [452, "452 4.2.2 The recipient's inbox is out of storage space."],
    [452, "452 4.5.3 Too many recipients"],
  ])("of %i is no refusal: %s", (responseCode, response) => {
    expect(interpret(reply(responseCode, response), nowMs).answer.refused).toBe(false);
  });
});

describe("a success whose body refuses", () => {
  itReads([
    ["of Google's maps", { status: 200, headers: {}, data: { status: "OVER_QUERY_LIMIT" } }, {}],
    ["of Google's maps, parsed", { status: "OVER_QUERY_LIMIT", results: [] }, {}],
    [
      "of monday",
      {
        error_code: "ComplexityException",
        error_message: "Complexity budget exhausted, reset in 40 seconds",
        status_code: 200,
      },
      { afterMs: 40_000 },
    ],
    ["of Apollo's router", { errors: [{ extensions: { code: "REQUEST_RATE_LIMITED" } }] }, {}],
    ["of AppSync", { errors: [{ errorType: "ThrottlingException" }] }, {}],
    ["of JSON-RPC", { jsonrpc: "2.0", id: 1, error: { code: 429, message: "m" } }, {}],
    [
      "of JSON-RPC, for a day",
      { jsonrpc: "2.0", id: 1, error: { code: -32_005, message: "daily request count exceeded" } },
      { scope: "day", lasts: true },
    ],
    ["of OpenRouter", { error: { code: 429, message: "Provider returned error" } }, {}],
    ["of Kraken", { error: ["EAPI:Rate limit exceeded"] }, {}],
    [
      "of Marketo",
      { success: false, errors: [{ code: "606", message: "Max rate limit '100' exceeded" }] },
      {},
    ],
    [
      "of Wikipedia",
      { status: 200, headers: { "retry-after": "5" }, data: { error: { code: "maxlag" } } },
      { afterMs: 5_000, overloaded: true },
    ],
  ]);

  it.each<[string, unknown]>([
    ["a record with a status", { id: 7, status: "throttled", result: { code: "rate_limited" } }],
    ["a record with an error", { id: 7, status: "failed", error: { code: 429 } }],
    ["a list of answers", { items: [{ status: 429 }] }],
    ["another error of JSON-RPC", { jsonrpc: "2.0", id: 1, error: { code: -32_000 } }],
    ["another error of Marketo", { success: false, errors: [{ message: "Lead not found" }] }],
    ["an error of Resend's", { data: null, error: { statusCode: 422, message: "m" } }],
    ["no error of Supabase's", { data: [], error: null, status: 200 }],
  ])("is not %s", (_what, given) => {
    expect(interpret(given, nowMs).answer).toMatchObject({ refused: false });
  });
});

describe("a failure that speaks of limits", () => {
  it.each<[string, unknown]>([
    ["a parameter", refusal(400, {}, { message: "The request limit must not exceed 100" })],
    ["a value", refusal(400, {}, { error: { code: "InvalidRateLimit" } })],
    ["a policy", refusal(404, {}, { error: { code: "rate_limit_policy_not_found" } })],
    ["a policy that exists", refusal(409, {}, { code: "ThrottlingPolicyAlreadyExists" })],
    ["a status that an app made up", refusal(420, {}, "not yet")],
    ["a teapot", refusal(418, {}, "I'm a teapot")],
    ["a user who was banned", refusal(403, {}, { message: "User banned until 2027-01-01" })],
  ])("is no refusal for the number of calls, of %s", (_what, given) => {
    expect(interpret(given, nowMs).answer).toMatchObject({ refused: false });
  });
});
