import { describe, expect, it } from "vitest";
import type { Answer } from "../../../../src/core/answer.ts";
import { interpret } from "../../../../src/throttle/feedback/answer.ts";

const nowMs = Date.UTC(2026, 10, 21, 12, 0, 0);
const nowSeconds = nowMs / 1_000;

type Row = readonly [symptom: string, headers: object, expected: Partial<Answer>];

const inHeaders: readonly Row[] = [
  ["Retry-After as epoch seconds", { "retry-after": String(nowSeconds + 30) }, { afterMs: 30_000 }],
  ["Retry-After as epoch ms", { "Retry-After": String(nowMs + 30_000) }, { afterMs: 30_000 }],
  ["Retry-After as epoch µs", { "retry-after": `${nowMs + 30_000}000` }, { afterMs: 30_000 }],
  ["Retry-After as an ISO moment", { "retry-after": "2026-11-21T12:00:30Z" }, { afterMs: 30_000 }],
  [
    "Retry-After as an ISO moment with an offset",
    { "retry-after": "2026-11-21T13:00:30+01:00" },
    { afterMs: 30_000 },
  ],
  ["Retry-After as a duration of Go", { "retry-after": "1m30s" }, { afterMs: 90_000 }],
  ["Retry-After as a duration of ISO", { "retry-after": "PT30S" }, { afterMs: 30_000 }],
  ["Retry-After given twice", { "retry-after": ["5", "30"] }, { afterMs: 30_000 }],
  [
    "ms ahead of seconds",
    { "retry-after": "9", "retry-after-ms": "1250.5" },
    { afterMs: 1_251, stated: true },
  ],
  ["Azure's name for ms", { "x-ms-retry-after-ms": "1250" }, { afterMs: 1_250 }],
  ["a name of its own", { "x-rate-limit-retry-after-seconds": "7" }, { afterMs: 7_000 }],
  [
    "Okta's extra dash",
    { "X-Rate-Limit-Remaining": "0", "X-Rate-Limit-Reset": String(nowSeconds + 30) },
    { afterMs: 30_000, unit: "calls" },
  ],
  [
    "GitLab's names with an epoch",
    { "RateLimit-Remaining": "0", "RateLimit-Reset": String(nowSeconds + 30) },
    { afterMs: 30_000 },
  ],
  [
    "GitLab's names with a delay",
    { "RateLimit-Limit": "100, 100;w=60", "RateLimit-Remaining": "0", "RateLimit-Reset": "30" },
    { afterMs: 30_000 },
  ],
  [
    "the seventh draft's one field",
    { RateLimit: "limit=100, remaining=0, reset=30" },
    { afterMs: 30_000 },
  ],
  [
    "Reddit's decimals",
    { "x-ratelimit-remaining": "0.0", "x-ratelimit-reset": "30" },
    { afterMs: 30_000 },
  ],
  [
    "a quota of a day in a header's name",
    { "x-ratelimit-remaining-requests-day": "0", "x-ratelimit-reset-requests-day": "40000.5" },
    { afterMs: 40_000_500, scope: "day", lasts: true, unit: "calls" },
  ],
  [
    "a quota of a minute in a header's name",
    { "x-ratelimit-remaining-tokens-minute": "0", "x-ratelimit-reset-tokens-minute": "30.2" },
    { afterMs: 30_200, scope: "minute", lasts: false, unit: "tokens" },
  ],
  [
    "a vendor's name before it",
    { "X-Acme-RateLimit-Remaining": "0", "X-Acme-RateLimit-Reset-After": "30" },
    { afterMs: 30_000 },
  ],
  [
    "Azure's quota with a time span",
    { "x-ms-user-quota-remaining": "0", "x-ms-user-quota-resets-after": "00:00:30" },
    { afterMs: 30_000 },
  ],
  [
    "Anthropic's tokens",
    {
      "anthropic-ratelimit-requests-remaining": "49",
      "anthropic-ratelimit-requests-reset": "2026-11-21T12:00:01Z",
      "anthropic-ratelimit-input-tokens-remaining": "0",
      "anthropic-ratelimit-input-tokens-reset": "2026-11-21T12:00:30Z",
    },
    { afterMs: 30_000, unit: "input-tokens" },
  ],
  [
    "X's quota of a day",
    {
      "x-app-limit-24hour-remaining": "0",
      "x-app-limit-24hour-reset": String(nowSeconds + 40_000),
    },
    { afterMs: 40_000_000, scope: "day", lasts: true },
  ],
  [
    "Xero's problem",
    { "X-Rate-Limit-Problem": "day", "Retry-After": "20000" },
    { afterMs: 20_000_000, scope: "day", lasts: true },
  ],
  ["a reset without a count", { "x-ratelimit-reset": "30" }, { afterMs: 30_000 }],
  [
    "a window of a day in a policy",
    { "RateLimit-Policy": '"d";q=500;w=86400', RateLimit: '"d";r=0;t=7200' },
    { afterMs: 7_200_000, scope: "day", lasts: true },
  ],
];

const inSeveral: readonly Row[] = [
  ["AWS's retry time in ms", { "x-amz-retry-after": "700" }, { afterMs: 700, stated: true }],
  [
    "AWS's retry time in ms, by its other name",
    { "x-amzn-retry-after": "700" },
    { afterMs: 700, stated: true },
  ],
  [
    "AWS's beside one in seconds",
    { "x-amz-retry-after": "700", "retry-after": "1" },
    { afterMs: 700 },
  ],
  [
    "a Retry-After of 0 beside a window that ends later (koa-ratelimit)",
    {
      "retry-after": "0",
      "x-ratelimit-remaining": "0",
      "x-ratelimit-reset": String(nowSeconds + 3),
    },
    { afterMs: 3_000, stated: true },
  ],
  [
    "a Retry-After of 0 beside a reset without how much is left",
    { "retry-after": "0", "x-ratelimit-reset": String(nowSeconds + 20) },
    { afterMs: 20_000, stated: true },
  ],
  [
    "a Retry-After of 0 beside the fraction of a second that koa-ratelimit sends",
    {
      "retry-after": "0",
      "x-ratelimit-remaining": "0",
      "x-ratelimit-reset": `${nowSeconds}.635851`,
    },
    { afterMs: 636, stated: true },
  ],
  [
    "a Retry-After of 0 beside a window whose end was rounded down to now",
    { "retry-after": "0", "x-ratelimit-remaining": "0", "x-ratelimit-reset": String(nowSeconds) },
    { afterMs: 1_000, stated: false },
  ],
  [
    "a Retry-After that was rounded down",
    {
      "retry-after": "2",
      "x-ratelimit-remaining": "0",
      "x-ratelimit-reset": String(nowMs + 2_700),
    },
    { afterMs: 2_700 },
  ],
  [
    "a Retry-After that ends after the window",
    {
      "retry-after": "60",
      "x-ratelimit-remaining": "0",
      "x-ratelimit-reset": String(nowSeconds + 3),
    },
    { afterMs: 60_000 },
  ],
  [
    "a window of which something is left",
    {
      "retry-after": "5",
      "x-ratelimit-remaining": "7",
      "x-ratelimit-reset": String(nowSeconds + 30),
    },
    { afterMs: 5_000 },
  ],
  [
    "a window that ends in a year, which nobody believes",
    {
      "retry-after": "5",
      "x-ratelimit-remaining": "0",
      "x-ratelimit-reset": String(nowSeconds + 31_536_000),
    },
    { afterMs: 5_000 },
  ],
  [
    "a Retry-After of 0 beside the draft's advice",
    { "retry-after": "0", RateLimit: '"d";r=0;t=3' },
    { afterMs: 3_000 },
  ],
  [
    "OpenAI's tokens, which are whole again much later",
    {
      "retry-after": "2",
      "x-ratelimit-remaining-tokens": "0",
      "x-ratelimit-reset-tokens": "6m0s",
    },
    { afterMs: 2_000 },
  ],
  [
    "Anthropic's tokens, which are whole again much later",
    {
      "retry-after": "2",
      "anthropic-ratelimit-tokens-remaining": "0",
      "anthropic-ratelimit-tokens-reset": "2026-11-21T12:06:00Z",
    },
    { afterMs: 2_000 },
  ],
  ["the time of a named throttler of NestJS", { "retry-after-short": "40" }, { afterMs: 40_000 }],
  [
    "the times of two of them",
    { "retry-after-short": "40", "retry-after-long": "600" },
    { afterMs: 600_000 },
  ],
  [
    "the times of two limits, of which one has calls left",
    {
      "retry-after-short": "4",
      "x-ratelimit-remaining-short": "0",
      "retry-after-long": "600",
      "x-ratelimit-remaining-long": "55",
    },
    { afterMs: 4_000 },
  ],
  [
    "a named limit without a Retry-After",
    {
      "x-ratelimit-remaining-long": "0",
      "x-ratelimit-reset-long": "600",
      "x-ratelimit-remaining-short": "2",
      "x-ratelimit-reset-short": "9",
    },
    { afterMs: 600_000 },
  ],
  ["a named time in ms", { "retry-after-short-ms": "400" }, { afterMs: 400 }],
  [
    "a count of retries, which is no time",
    { "retry-after-count": "9" },
    { afterMs: 1_000, stated: false },
  ],
  [
    "names of one word, as hapi's plugin has them",
    { "x-ratelimit-userremaining": "0", "x-ratelimit-userreset": String(nowMs + 4_000) },
    { afterMs: 4_000 },
  ],
  [
    "a negative rest, which counts the refused calls",
    {
      "x-ratelimit-userlimit": "2",
      "x-ratelimit-userremaining": "-1",
      "x-ratelimit-userreset": String(nowMs + 4_000),
    },
    { afterMs: 4_000 },
  ],
  [
    "lists of a second and a month, of which the second is used up",
    {
      "x-ratelimit-limit": "1, 15000",
      "x-ratelimit-policy": "1;w=1, 15000;w=2592000",
      "x-ratelimit-remaining": "0, 1000",
      "x-ratelimit-reset": "2, 1419704",
    },
    { afterMs: 2_000 },
  ],
  [
    "lists of a second and a month, of which the month is used up",
    {
      "x-ratelimit-limit": "1, 15000",
      "x-ratelimit-remaining": "1, 0",
      "x-ratelimit-reset": "1, 40000",
    },
    { afterMs: 40_000_000 },
  ],
  [
    "the moment of the next call",
    { "x-ratelimit-remaining": "0", "x-ratelimit-next": "2026-11-21T12:00:20Z" },
    { afterMs: 20_000 },
  ],
  [
    "the length of a window in ms, where no header names its end",
    {
      "x-hubspot-ratelimit-interval-milliseconds": "10000",
      "x-hubspot-ratelimit-max": "100",
      "x-hubspot-ratelimit-remaining": "0",
      "x-hubspot-ratelimit-daily-remaining": "2000",
    },
    { afterMs: 10_000 },
  ],
  [
    "the length of the window of one of several limits",
    {
      "x-rate-limit-api-key-interval-ms": "10000",
      "x-rate-limit-api-key-remaining": "299",
      "x-rate-limit-api-token-interval-ms": "8000",
      "x-rate-limit-api-token-remaining": "0",
    },
    { afterMs: 8_000 },
  ],
  [
    "the end of a window rather than its length",
    {
      "x-rate-limit-interval": "60",
      "x-rate-limit-remaining": "0",
      "x-rate-limit-reset": String(nowMs / 1_000 + 7),
    },
    { afterMs: 7_000 },
  ],
];

const documented: readonly Row[] = [
  [
    "Zendesk, of one endpoint",
    {
      "x-rate-limit": "700",
      "x-rate-limit-remaining": "699",
      "ratelimit-limit": "700",
      "ratelimit-remaining": "699",
      "ratelimit-reset": "41",
      "zendesk-ratelimit-tickets-index": "total=100; remaining=0; resets=37",
    },
    { afterMs: 37_000, unit: "calls" },
  ],
  [
    "Etsy, of a second",
    {
      "x-limit-per-second": "150",
      "x-remaining-this-second": "0",
      "x-limit-per-day": "100000",
      "x-remaining-today": "99998",
    },
    { afterMs: 1_000, scope: "second", lasts: false },
  ],
  [
    "Etsy, of a day that slides in steps of two hours",
    {
      "x-limit-per-second": "150",
      "x-remaining-this-second": "149",
      "x-limit-per-day": "100000",
      "x-remaining-today": "0",
    },
    { afterMs: 7_200_000, scope: "day", lasts: true },
  ],
  [
    "Zuul, whose reset is in ms",
    {
      "x-ratelimit-quota-api_origin": "1000",
      "x-ratelimit-remaining-quota-api_origin": "900",
      "x-ratelimit-limit-api_origin": "10",
      "x-ratelimit-remaining-api_origin": "0",
      "x-ratelimit-reset-api_origin": "48621",
    },
    { afterMs: 48_621, unit: "calls", lasts: false },
  ],
  [
    "lemlist, a date as JavaScript prints it",
    {
      "x-ratelimit-limit": "20",
      "x-ratelimit-remaining": "0",
      "x-ratelimit-reset": "Sat Nov 21 2026 13:00:30 GMT+0100 (Central European Standard Time)",
    },
    { afterMs: 30_000 },
  ],
  [
    "WHOOP, a limit with its windows",
    {
      "x-ratelimit-limit": "100, 100;window=60, 10000;window=86400",
      "x-ratelimit-remaining": "0",
      "x-ratelimit-reset": "3",
    },
    { afterMs: 3_000 },
  ],
  [
    "Jira, a moment without seconds",
    {
      "x-ratelimit-limit": "100",
      "x-ratelimit-remaining": "0",
      "x-ratelimit-reset": "2026-11-21T12:05Z",
    },
    { afterMs: 300_000 },
  ],
  [
    "Brevo, a delay",
    {
      "x-sib-ratelimit-limit": "1000",
      "x-sib-ratelimit-remaining": "0",
      "x-sib-ratelimit-reset": "30",
    },
    { afterMs: 30_000 },
  ],
  [
    "BigCommerce, a delay in ms",
    {
      "x-rate-limit-requests-left": "0",
      "x-rate-limit-requests-quota": "25000",
      "x-rate-limit-time-reset-ms": "3000",
      "x-rate-limit-time-window-ms": "5000",
    },
    { afterMs: 3_000 },
  ],
  [
    "Intercom, an epoch",
    {
      "x-ratelimit-limit": "100",
      "x-ratelimit-remaining": "0",
      "x-ratelimit-reset": String(nowSeconds + 10),
    },
    { afterMs: 10_000 },
  ],
  [
    "HubSpot, of a second",
    {
      "x-hubspot-ratelimit-daily": "40000",
      "x-hubspot-ratelimit-daily-remaining": "123",
      "x-hubspot-ratelimit-secondly": "10",
      "x-hubspot-ratelimit-secondly-remaining": "0",
    },
    { afterMs: 1_000, scope: "second", lasts: false },
  ],
  [
    "Linear, an epoch in ms for each of two quotas",
    {
      "x-ratelimit-requests-limit": "5000",
      "x-ratelimit-requests-remaining": "0",
      "x-ratelimit-requests-reset": String(nowMs + 30_000),
      "x-ratelimit-complexity-limit": "250000",
      "x-ratelimit-complexity-remaining": "249990",
      "x-ratelimit-complexity-reset": String(nowMs + 3_600_000),
    },
    { afterMs: 30_000, unit: "calls" },
  ],
];

describe("the headers that an API documents", () => {
  it.each(documented)("are read for %s", (_api, headers, expected) => {
    const { answer } = interpret({ status: 429, headers }, nowMs);

    expect(answer).toMatchObject({ refused: true, ...expected });
  });
});

describe("the latest of several times in headers", () => {
  it.each(inSeveral)("is read from %s", (_symptom, headers, expected) => {
    const { answer } = interpret({ status: 429, headers }, nowMs);

    expect(answer).toMatchObject({ refused: true, ...expected });
  });
});

describe("a refusal in headers", () => {
  it.each(inHeaders)("is read from %s", (_symptom, headers, expected) => {
    const { answer } = interpret({ status: 429, headers }, nowMs);

    expect(answer).toMatchObject({ refused: true, ...expected });
    expect(answer.until).toBe(nowMs + answer.afterMs!);
  });
});
