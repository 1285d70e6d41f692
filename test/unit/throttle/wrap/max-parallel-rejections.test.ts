import { describe, expect, it } from "vitest";
import type { BucketOptions } from "../../../../src/throttle/bucket/bucket-options.ts";
import { fakeTimers } from "../../../support/async/fake-timers.ts";
import { atOnce, MINUTE_MS, refusalOf, told } from "../../../support/async/refusals.ts";
import { rejectionOf } from "../../../support/async/rejection.ts";
import { createTestBucket } from "../../../support/draws/test-bucket.ts";

const advance = fakeTimers();

describe("a call that waits for its place in a throttled function", () => {
  /** One call of the function runs. */
  async function running(options: BucketOptions = { rate: "100/s" }) {
    const { bucket } = createTestBucket(options);
    let end = (): void => {};
    const call = bucket.throttled(async () => new Promise<void>((resolve) => (end = resolve)), {
      concurrency: 1,
    });
    const first = call.with({ key: "k" })();
    await advance(1_000);
    const close = async (): Promise<void> => {
      end();
      await first;
      await bucket.close();
    };
    return { bucket, call, close };
  }

  it.each([
    ["the bucket", { rate: "100/s" }, {}],
    ["its key", { rate: "100/s", perKey: { rate: "10/s" } }, { key: "k" }],
  ])("is refused at once if %s was paused since the last call", async (_, options, of) => {
    const { bucket, call, close } = await running(options);
    await bucket.pause({ ...of, forMs: MINUTE_MS });

    const refusal = await refusalOf(() => call.with({ key: "k", maxWaitMs: 1_000 })());

    expect(told(refusal, MINUTE_MS)).toEqual(atOnce("a pause"));
    await close();
  });

  it.each([
    ["the bucket", { rate: "100/s" }, {}],
    ["its key", { rate: "100/s", perKey: { rate: "10/s" } }, { key: "k" }],
  ])("is refused soon after %s is paused", async (_, options, of) => {
    const { bucket, call, close } = await running(options);
    let isRefused = false;
    const refused = rejectionOf(call.with({ key: "k", maxWaitMs: 10_000 })()).finally(
      () => (isRefused = true),
    );
    await advance(500);
    expect(isRefused).toBe(false);

    await bucket.pause({ ...of, forMs: MINUTE_MS });
    await advance(10);

    expect(isRefused).toBe(true);
    expect(await refused).toMatchObject({ limitedBy: "a pause" });
    await close();
  });

  it("goes on waiting where nothing holds it back", async () => {
    const { call, close, bucket } = await running();
    const second = rejectionOf(call.with({ maxWaitMs: 1_000 })());
    await advance(990);
    await bucket.pause({ forMs: 5 });
    await advance(20);

    expect(await second).toMatchObject({ limitedBy: "concurrency 1 of this process" });
    await close();
  });
});
