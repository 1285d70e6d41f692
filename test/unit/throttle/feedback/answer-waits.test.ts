import { describe, expect, it } from "vitest";
import { interpret } from "../../../../src/throttle/feedback/answer.ts";

const nowMs = Date.UTC(2026, 10, 21, 12, 0, 0);
const resetAt = String(nowMs / 1_000 + 90);

describe("an answer that limits", () => {
  it.each([
    [{ "retry-after-ms": "1250.5", "retry-after": "9" }, 1_251],
    [{ "retry-after-ms": "soon", "retry-after": "9" }, 9_000],
    [{ "retry-after": "Sat, 21 Nov 2026 12:00:05 GMT" }, 5_000],
    [{ "retry-after": "9", "x-ratelimit-remaining": "0", "x-ratelimit-reset": resetAt }, 90_000],
    [{ "x-ratelimit-remaining": "0", "x-ratelimit-reset": resetAt }, 90_000],
    [{ "x-ratelimit-remaining": "3", "x-ratelimit-reset": resetAt }, 1_000],
    [{ "x-ratelimit-remaining": "0", "x-ratelimit-reset": resetAt, age: "5" }, 1_000],
    [
      {
        "x-ratelimit-limit": "0",
        "x-ratelimit-remaining": "0",
        "x-ratelimit-reset": resetAt,
      },
      1_000,
    ],
    [{ "x-ratelimit-remaining": "0", "x-ratelimit-reset-after": "30" }, 30_000],
    [{ "x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1m0s" }, 60_000],
    [
      {
        "anthropic-ratelimit-tokens-remaining": "0",
        "anthropic-ratelimit-tokens-reset": "2026-11-21T12:00:07Z",
        "anthropic-ratelimit-requests-remaining": "5",
        "anthropic-ratelimit-requests-reset": "2026-11-21T12:00:50Z",
      },
      7_000,
    ],
    [{ ratelimit: '"d";r=0;t=60' }, 60_000],
    [{ ratelimit: '"a";r=0;t=5, "b";r=0;t=60, "c";r=1;t=900' }, 60_000],
    [{ "retry-after": "9", ratelimit: '"d";r=0;t=60' }, 9_000],
    [{ "x-shopify-shop-api-call-limit": "40/40" }, 1_000],
    [{}, 1_000],
  ])("asks with %j for a wait of %d ms", (headers, expected) => {
    expect(interpret({ status: 429, headers }, nowMs).answer.afterMs).toBe(expected);
  });

  it.each([-3_600_000, 0, 3_600_000])(
    "asks for the wait that its server meant, with a clock of ours that is %i ms ahead",
    (aheadMs) => {
      const date = "Sat, 21 Nov 2026 12:00:00 GMT";
      const asked = [
        { date, "retry-after": "Sat, 21 Nov 2026 12:00:20 GMT" },
        { date, "x-ratelimit-remaining": "0", "x-ratelimit-reset": String(nowMs / 1_000 + 20) },
        {
          date,
          "anthropic-ratelimit-requests-remaining": "0",
          "anthropic-ratelimit-requests-reset": "2026-11-21T12:00:20Z",
        },
        {
          date: "Sat, 21 Nov 2026 11:59:50 GMT",
          age: "10",
          "retry-after": "Sat, 21 Nov 2026 12:00:20 GMT",
        },
      ];

      const lastByteMs = asked.map(
        (headers) => interpret({ status: 429, headers }, nowMs + aheadMs).answer.afterMs,
      );

      expect(lastByteMs).toEqual([20_000, 20_000, 20_000, 20_000]);
    },
  );

  it.each(["now", "2026-11-21T13:00:00Z", "", "Sat, 41 Nov 2026 12:00:00 GMT"])(
    "is timed by our clock when its Date is %j",
    (date) => {
      const headers = { date, "retry-after": "Sat, 21 Nov 2026 12:00:20 GMT" };

      expect(interpret({ status: 429, headers }, nowMs).answer.afterMs).toBe(20_000);
    },
  );
});
