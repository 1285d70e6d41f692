import { describe } from "vitest";
import { HEARD_AT_MS, google, itReads, refusal } from "../../../support/servers/refusals.ts";

const nowMs = HEARD_AT_MS;
const nowSeconds = nowMs / 1_000;
const TO_MIDNIGHT_UTC = 12 * 3_600_000;

describe("the time that a sentence names", () => {
  const says = (message: string): Error => refusal(429, {}, { message });
  itReads([
    [
      "no status that follows on the next line",
      refusal(429, {}, "Too many requests, please try again later"),
      { afterMs: 1_000, stated: false },
    ],
    [
      "no number of a request",
      says("Please wait before retrying (request id 12345)"),
      { stated: false },
    ],
    ["no size", says("Please retry with fewer than 100 requests"), { stated: false }],
    ["no number of tries", says("You may retry up to 3 times."), { stated: false }],
    [
      "no period of a quota",
      says("Limited to 100 requests over a 24 hour period (50 available every 12 hours)."),
      { stated: false },
    ],
    [
      "no use of a quota",
      says("Your limit resets daily; you used 1000 of 1000 calls"),
      { afterMs: TO_MIDNIGHT_UTC, scope: "day" },
    ],
    ["no time of day", says("Try again at 12:30"), { stated: false }],
    ["a bare number at its end", says("Too Many Requests: retry after 14"), { afterMs: 14_000 }],
    ["a bare number in a code", says("FLOOD_WAIT_37"), { afterMs: 37_000 }],
    ["several units", says("Try again in 2 minutes and 5 seconds."), { afterMs: 125_000 }],
    [
      "Supabase's",
      says("For security purposes, you can only request this after 53 seconds."),
      { afterMs: 53_000 },
    ],
    [
      "Gmail's moment",
      google(429, { message: "User-rate limit exceeded.  Retry after 2026-11-21T12:14:56.789Z" }),
      { afterMs: 896_789, stated: true },
    ],
    ["no moment that has passed", says("Retry after 2026-11-21T11:00:00Z"), { stated: false }],
  ]);
});

describe("a Retry-After", () => {
  itReads([
    [
      "that has passed as if there were none",
      refusal(429, { "retry-after": "Sat, 21 Nov 2026 11:00:00 GMT" }),
      { afterMs: 1_000, stated: false },
    ],
    [
      "that has passed as an epoch as if there were none",
      refusal(429, { "retry-after": String(nowSeconds - 100) }),
      { afterMs: 1_000, stated: false },
    ],
    ["of 0 as a delay", refusal(429, { "retry-after": "0" }), { afterMs: 0, stated: true }],
    [
      "with a word for its unit",
      refusal(429, { "retry-after": "30 seconds" }),
      { afterMs: 30_000 },
    ],
    [
      "of Facebook, in minutes",
      refusal(
        400,
        {
          "x-business-use-case-usage":
            '{"1":[{"call_count":100,"estimated_time_to_regain_access":19}]}',
        },
        { error: { message: "(#80004) There have been too many calls to this ad-account." } },
      ),
      { afterMs: 19 * 60_000, stated: true },
    ],
  ]);
});

describe("a reset", () => {
  itReads([
    [
      "in Yelp's spelling",
      refusal(429, {
        "ratelimit-dailylimit": "500",
        "ratelimit-remaining": "0",
        "ratelimit-resettime": "2026-11-22T00:00:00+00:00",
      }),
      { afterMs: TO_MIDNIGHT_UTC, lasts: true },
    ],
    [
      "that is common to a vendor's quotas",
      refusal(429, {
        "x-contentful-ratelimit-hour-remaining": "35883",
        "x-contentful-ratelimit-second-remaining": "0",
        "x-contentful-ratelimit-reset": "3",
      }),
      { afterMs: 3_000, scope: "second", stated: true },
    ],
    [
      "in a body, in seconds",
      refusal(429, {}, { error: { type: "usage_limit_reached", resets_in_seconds: 5_000 } }),
      { afterMs: 5_000_000, lasts: true },
    ],
    [
      "in a body that repeats headers",
      refusal(
        429,
        {},
        {
          error: { code: 429, metadata: { headers: { "X-RateLimit-Reset": `${nowMs + 33_000}` } } },
        },
      ),
      { afterMs: 33_000 },
    ],
    [
      "in a body, in epoch ms",
      refusal(429, {}, { error: { limit: { remaining: 0, resetMs: nowMs + 33_000 } } }),
      { afterMs: 33_000 },
    ],
    ["as a model that loads", refusal(503, {}, { estimated_time: 20 }), { afterMs: 20_000 }],
  ]);
});
