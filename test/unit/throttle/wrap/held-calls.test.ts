import { describe, expect, it } from "vitest";
import { fakeTimers } from "../../../support/async/fake-timers.ts";
import { createTestBucket } from "../../../support/draws/test-bucket.ts";

const advance = fakeTimers();

/** Ends what waits for ever. */
function patience(): { readonly signal: AbortSignal; readonly end: () => void } {
  const ending = new AbortController();
  return { signal: ending.signal, end: () => ending.abort(new Error("the test is over")) };
}

describe("a call that waits for the call in which it was made", () => {
  it("is said once after ten seconds, with the limit and the outer call", async () => {
    const { bucket, warnings } = createTestBucket({ concurrency: 1 });
    const { signal, end } = patience();
    const inner = bucket.throttled(async () => "never", { signal });
    const outer = bucket.throttled(async function sendInvoice() {
      await Promise.allSettled([inner(), inner()]);
    });

    const calling = outer();
    await advance(9_900);
    expect(warnings).toHaveLength(0);
    await advance(200);
    expect(warnings).toHaveLength(1);
    await advance(60_000);

    expect(warnings).toHaveLength(1);
    expect(warnings[0]!.message).toContain('"1 at once"');
    expect(warnings[0]!.message).toContain('"sendInvoice"');
    expect(warnings[0]!.facts).toEqual({
      bucket: "test",
      limitedBy: "1 at once",
      outer: "sendInvoice",
    });
    end();
    await calling;
    await bucket.close();
  });

  it.each<
    [
      string,
      (
        bucket: ReturnType<typeof createTestBucket>["bucket"],
        signal: AbortSignal,
      ) => Promise<unknown>,
    ]
  >([
    ["draw()", (bucket, signal) => bucket.draw({ signal })],
    ["run()", (bucket, signal) => bucket.run(() => 1, { signal })],
    ["fetch", (bucket, signal) => bucket.fetch("http://127.0.0.1:1/", { signal })],
  ])("is noticed whatever the inner call is: %s", async (_name, call) => {
    const { bucket, warnings } = createTestBucket({ rate: "100/s", concurrency: 1 });
    const { signal, end } = patience();

    const calling = bucket.run(() => Promise.allSettled([call(bucket, signal)]));
    await advance(10_100);

    expect(warnings).toHaveLength(1);
    expect(warnings[0]!.message).toContain("a function without a name");
    end();
    await calling;
    await bucket.close();
  });

  it("is noticed at any depth, and per key", async () => {
    const { bucket, warnings } = createTestBucket({ perKey: { concurrency: 1 } });
    const { signal, end } = patience();
    const inner = bucket.throttled(async () => 1, { key: "acme", signal });
    const other = bucket.throttled(() => Promise.allSettled([inner()]), { key: "other" });
    const outer = bucket.throttled(() => other(), { key: "acme" });

    const calling = outer();
    await advance(10_100);

    expect(warnings).toHaveLength(1);
    end();
    await calling;
    await bucket.close();
  });

  it("is noticed under the bound of one function in this process", async () => {
    const { bucket, warnings } = createTestBucket({ rate: "1000/s" });
    const { signal, end } = patience();
    const again: (depth: number) => Promise<unknown> = bucket.throttled(
      async function walk(depth: number): Promise<unknown> {
        return depth === 0 ? 0 : Promise.allSettled([again(depth - 1)]);
      },
      { concurrency: 1, signal },
    );

    const calling = again(1);
    await advance(10_100);

    expect(warnings).toHaveLength(1);
    expect(warnings[0]!.message).toContain("concurrency 1 of this process");
    expect(warnings[0]!.message).toContain('"walk"');
    end();
    await calling;
    await bucket.close();
  });
});

describe("a call that waits for something else", () => {
  it("is not said to wait for itself: others hold the places, or the rate is slow", async () => {
    const { bucket, warnings } = createTestBucket({ concurrency: 2, rate: "1/min" });
    const inner = bucket.throttled(async () => "done");
    const outer = bucket.throttled(() => inner());

    const calling = outer();
    await advance(61_000);

    expect(await calling).toBe("done");
    expect(warnings).toHaveLength(0);
    await bucket.close();
  });

  it("is not said to wait for itself where it was made outside of the call that runs", async () => {
    const { bucket, warnings } = createTestBucket({ concurrency: 1 });
    const first = bucket.run(() => new Promise((resolve) => void setTimeout(resolve, 30_000)));
    const second = bucket.run(() => 2);

    await advance(31_000);

    await first;
    expect(await second).toBe(2);
    expect(warnings).toHaveLength(0);
    await bucket.close();
  });

  it("is not said to wait for itself once the outer call has ended", async () => {
    const { bucket, warnings } = createTestBucket({ concurrency: 1 });
    let later: Promise<unknown> = Promise.resolve();
    await bucket.run(() => {
      later = bucket.run(() => "later");
    });

    await advance(20_000);

    expect(await later).toBe("later");
    expect(warnings).toHaveLength(0);
    await bucket.close();
  });
});
