import { describe, expectTypeOf, it } from "vitest";
import {
  contract,
  createSluice,
  fixedWindow,
  leakyBucket,
  slidingLog,
  slidingWindow,
  throttled,
  tokenBucket,
  type Bucket,
  type BucketOptions,
  type Limit,
} from "sluice";

const sluice = createSluice();

describe("the types of a rate", () => {
  it("take every form of a rate that is written out", () => {
    for (const limit of [
      leakyBucket("100/s"),
      leakyBucket("60/minute"),
      leakyBucket("5000/ hour"),
      leakyBucket("3 / 500 ms"),
      leakyBucket("1/2 days"),
      leakyBucket("10/15min", { burst: 2 }),
      leakyBucket({ calls: 100, per: "1s" }),
      tokenBucket({ capacity: 5, refill: "2/s" }),
      tokenBucket({ capacity: 5, refill: { calls: 2, per: "5 minutes" } }),
      slidingLog(5, "1 minute"),
      slidingWindow(5, "5min"),
      fixedWindow(5, "1d", { align: "epoch" }),
    ]) {
      expectTypeOf(limit).toEqualTypeOf<Limit>();
    }
    expectTypeOf(sluice.bucket("a", { rate: "1/second" })).toEqualTypeOf<Bucket>();
    sluice.bucket("a", { rate: "1/s", perKey: { rate: "5/h" } });
    sluice.bucket("a", {
      rate: { calls: 1, per: "1s" },
      perKey: (key) => ({ rate: `${key.length}/s` }),
    });
    sluice.bucket("a", {
      perKey: {
        tiers: { free: { rate: "1/s" }, paid: { rate: "50/s", concurrency: 5 } },
        tierOf: (key) => (key === "acme" ? "paid" : "free"),
      },
    });
    sluice.bucket("a", { ...contract(20, "1s"), perKey: contract(5, "1 second") });
    sluice.bucket("a", { concurrency: 5 });
  });

  it("take any string, and options of any origin", () => {
    expectTypeOf<{ rate: string }>().toExtend<BucketOptions>();
    const [rate, calls] = ["1/s" as string, 5 as number];
    const options: BucketOptions = { rate, perKey: { rate } };

    sluice.bucket("a", options);
    sluice.bucket("a", { rate, burst: 5 });
    sluice.bucket("a", { rate: `${calls}/s` });
    sluice.bucket("a", { rate: { calls, per: rate } });
    leakyBucket(rate);
    leakyBucket(`${calls}/s`);
    slidingLog(5, rate);
    contract(5, rate);
    void sluice.bucket("a", options).configure({ rate });
  });

  it("refuse a rate or time that is written out and cannot be read", () => {
    expectTypeOf(leakyBucket<"1/s">)
      .parameter(0)
      .toEqualTypeOf<"1/s">();
    // @ts-expect-error: there is no such unit
    leakyBucket("100/fortnight");
    // @ts-expect-error: no calls
    leakyBucket("0/s");
    // @ts-expect-error: no time
    leakyBucket("100");
    // @ts-expect-error: no whole number
    leakyBucket("1.5/s");
    // @ts-expect-error: there is no such unit
    leakyBucket({ calls: 5, per: "1 week" });
    // @ts-expect-error: there is no such unit
    tokenBucket({ capacity: 5, refill: "2/x" });
    // @ts-expect-error: no unit
    slidingLog(5, "60");
    // @ts-expect-error: there is no such unit
    slidingWindow(5, "2 weeks");
    // @ts-expect-error: there is no such unit
    fixedWindow(5, "1 month");
    // @ts-expect-error: there is no such unit
    contract(5, "soon");
    // @ts-expect-error: there is no such unit
    sluice.bucket("a", { rate: "100/x" });
    // @ts-expect-error: there is no such unit
    sluice.bucket("a", { rate: "1/s", perKey: { rate: "100/x" } });
    // @ts-expect-error: there is no such unit
    sluice.bucket("a", { perKey: () => ({ rate: "100/x" }) });
    // @ts-expect-error: there is no such unit
    sluice.bucket("a", { perKey: { tiers: { free: { rate: "100/x" } }, tierOf: () => "free" } });
    // @ts-expect-error: there is no such unit
    void sluice.bucket("a", { rate: "1/s" }).configure({ rate: "5/x" });
    // @ts-expect-error: there is no such unit
    throttled(async () => 1, { bucket: "a", rate: "5/x" });
  });

  it("refuse options that do not exist", () => {
    expectTypeOf<{ maxWait: number }>().not.toExtend<BucketOptions>();
    // @ts-expect-error: there is no such option
    sluice.bucket("a", { rate: "1/s", maxWait: 5 });
    // @ts-expect-error: there is no such option
    sluice.bucket("a", { rate: "1/s", perKey: { rate: "1/s", bursts: 5 } });
    // @ts-expect-error: there is no such option
    tokenBucket({ capacity: 5, refill: "2/s", burst: 5 });
  });
});
