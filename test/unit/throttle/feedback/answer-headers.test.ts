import { describe, expect, it } from "vitest";
import type { Answer } from "../../../../src/core/answer.ts";
import { hear } from "../../../../src/throttle/feedback/answer.ts";

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

describe("a refusal in headers", () => {
  it.each(inHeaders)("is read from %s", (_symptom, headers, expected) => {
    const { answer } = hear({ status: 429, headers }, nowMs);

    expect(answer).toMatchObject({ refused: true, ...expected });
    expect(answer.until).toBe(nowMs + answer.afterMs!);
  });
});
