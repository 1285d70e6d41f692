import { describe, expect, it } from "vitest";
import { createSluice, leakyBucket, tokenBucket, type Limit } from "sluice";
import { formatLimit, partOfLimit } from "../../../src/core/limits/registry.ts";
import { isLimit } from "../../../src/core/policy/limit-makers.ts";

describe("the name of a limit", () => {
  it.each<[Limit, string]>([
    [
      leakyBucket("90000/min", { unit: "tokens", burst: 4_000 }),
      "90000/min with a burst of 4000 tokens",
    ],
    [leakyBucket("60/min"), "60/min"],
    [leakyBucket("60/ 1 minute"), "60/min"],
    [leakyBucket("3600/h"), "3600/h"],
    [leakyBucket("86400/days"), "86400/d"],
    [leakyBucket("10/2s"), "10/2s"],
    [leakyBucket("100/second"), "100/s"],
    [leakyBucket("1/2s"), "1/2s"],
    [leakyBucket({ calls: 3, per: "2s" }), "90/min"],
    [
      tokenBucket({ capacity: 10, refill: "60/min", unit: "tokens" }),
      "up to 10, refilled at 60/min tokens",
    ],
  ])("shows the rate as declared: %o", (limit, words) => {
    expect(formatLimit(limit)).toBe(words);
    expect(isLimit(JSON.parse(JSON.stringify(limit)))).toBe(true);
  });

  it("shows the actual numbers for a part of a limit", () => {
    expect(formatLimit(partOfLimit(leakyBucket("60/min"), 0.5)!)).toBe("30/min");
  });

  it("allows a later declaration in other numbers", async () => {
    await using sluice = createSluice({ logger: { warn() {}, error() {} } });
    const bucket = sluice.bucket("a", { rate: "60/min", perKey: { rate: "1/s" } });

    expect(sluice.bucket("a", { rate: "1/s", perKey: { rate: "60/min" } })).toBe(bucket);
    expect(() => sluice.bucket("a", { rate: "61/min" })).toThrow("60/min");
    expect((await bucket.peek()).policy).toBe("60/min; per key 1/s");
  });
});
