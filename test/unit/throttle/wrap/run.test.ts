import { describe, expect, it, vi } from "vitest";
import {
  InvalidOptionError,
  LeaseLostError,
  WaitTooLongError,
} from "../../../../src/core/errors.ts";
import { rejectionOf } from "../../../support/async/rejection.ts";
import { fakeTimers } from "../../../support/async/fake-timers.ts";
import { createTestBucket } from "../../../support/draws/test-bucket.ts";

const advance = fakeTimers({ leavesNone: true });

describe("run", () => {
  it("makes a call in its slot, and resolves with its result", async () => {
    const { bucket } = createTestBucket({ rate: "100/s" });
    const startedAtMs: number[] = [];
    const call = (): number => startedAtMs.push(Math.round(performance.now()));

    const running = Promise.all([bucket.run(call), bucket.run(async () => call())]);
    await advance(100);

    await expect(running).resolves.toEqual([1, 2]);
    expect(startedAtMs[1]! - startedAtMs[0]!).toBe(10);
    await bucket.close();
  });

  it("calls with neither this nor arguments", async () => {
    const { bucket } = createTestBucket({ rate: "100/s" });

    const given = await bucket.run(function (this: unknown, ...args: unknown[]) {
      return [this, args];
    });

    expect(given).toEqual([undefined, []]);
  });

  it("rejects with what the call throws, at once or later, and gives its lease back", async () => {
    const { bucket } = createTestBucket({ concurrency: 1 });
    const atOnce = (): never => {
      throw new RangeError("at once");
    };

    await expect(bucket.run(atOnce)).rejects.toThrow("at once");
    await expect(bucket.run(() => Promise.reject(new Error("later")))).rejects.toThrow("later");
    await expect(bucket.run(() => "next")).resolves.toBe("next");
    await bucket.close();
  });

  it("draws with key, cost, priority, maxWaitMs and signal", async () => {
    const { bucket } = createTestBucket({ rate: "1/min", perKey: { rate: "1/h" } });
    await bucket.run(() => {}, { key: "acme" });
    const leaving = new AbortController();

    const late = rejectionOf(bucket.run(() => {}, { key: "acme", maxWaitMs: 50 }));
    const left = rejectionOf(bucket.run(() => {}, { signal: leaving.signal }));
    leaving.abort(new Error("no need"));
    await advance(60);

    expect(await late).toBeInstanceOf(WaitTooLongError);
    expect(await late).toMatchObject({ key: "acme" });
    expect(await left).toMatchObject({ message: "no need" });
    await bucket.close();
  });

  it("applies a refusal, also one from the call's own feedback function", async () => {
    const { bucket } = createTestBucket({ rate: "100/s" });
    const feedback = (result: unknown) => (result === "busy" ? { coolMs: 5_000 } : undefined);

    await bucket.run(() => "busy", { feedback });

    expect((await bucket.peek()).coolingForMs).toBe(5_000);
    await bucket.close();
  });

  it("settles the cost in its result", async () => {
    const { bucket } = createTestBucket({ rate: "100/h", burst: 100 });
    const settle = (result: { readonly used: number }) => ({ calls: result.used });

    await bucket.run(() => ({ used: 7 }), { cost: 50, settle });
    await advance(1);

    expect((await bucket.peek()).limits[0]).toMatchObject({ level: 7 });
    await bucket.close();
  });

  it("rejects when its lease is lost, while the call goes on", async () => {
    const { bucket } = createTestBucket({ concurrency: 1 });
    const lost = new AbortController();
    const drawn = await bucket.draw();
    drawn.release();
    vi.spyOn(bucket, "drawByHand").mockResolvedValue({
      ...drawn,
      encodedKey: undefined,
      hasLease: true,
      signal: lost.signal,
      settle: async () => {},
      release: () => {},
      [Symbol.dispose]: () => {},
      [Symbol.asyncDispose]: async () => {},
    });

    const running = rejectionOf(bucket.run(() => new Promise(() => {})));
    await advance(1);
    lost.abort(new LeaseLostError("test"));

    expect(await running).toBeInstanceOf(LeaseLostError);
    await bucket.close();
  });

  it.each([
    ["fn", "hello", {}, "give the function that makes the call"],
    ["concurrency", () => {}, { concurrency: 5 }, "there is no such option"],
    ["kay", () => {}, { kay: "a" }, "did you mean key?"],
    ["key", () => {}, { key: () => "acme" }, "give a string"],
    ["onSlot", () => {}, { onSlot: 5 }, "give a function"],
  ])("refuses a wrong %s by name, and starts nothing", async (option, fn, options, remedy) => {
    const { bucket } = createTestBucket({ rate: "1/h" });

    const refused = await rejectionOf(bucket.run(fn as () => void, options as object));

    expect(refused).toBeInstanceOf(InvalidOptionError);
    expect(refused).toMatchObject({ option, message: expect.stringContaining(remedy) as string });
    expect((await bucket.peek()).limits[0]).toMatchObject({ level: 0 });
  });
});

describe("onSlot", () => {
  it("gets the wait, key and limit of each call before it starts", async () => {
    const { bucket } = createTestBucket({ rate: "100/s" });
    const told: unknown[] = [];
    const call = bucket.throttled((name: string) => told.push(name), {
      key: (name) => name,
      onSlot: ({ key, waitedMs, limitedBy }) => told.push({ key, waitedMs, limitedBy }),
    });

    const calls = Promise.all([call("a"), call.with({ priority: "low" })("b")]);
    await advance(100);
    await calls;

    expect(told).toEqual([
      { key: "a", waitedMs: expect.closeTo(0, 1) as number, limitedBy: undefined },
      "a",
      { key: "b", waitedMs: expect.closeTo(10, 1) as number, limitedBy: "100/s" },
      "b",
    ]);
    await bucket.close();
  });

  it.each([
    ["throws", broken],
    ["rejects", () => Promise.reject(new Error("broken"))],
  ])("that %s stops no call, and is logged once", async (_how, onSlot) => {
    const { bucket, warnings } = createTestBucket({ rate: "1000/s", burst: 10 });

    const results = await Promise.all([1, 2, 3].map((each) => bucket.run(() => each, { onSlot })));
    await advance(1);

    expect(results).toEqual([1, 2, 3]);
    expect(warnings).toEqual([
      {
        facts: expect.anything() as object,
        message: 'onSlot of bucket "test" failed: Error: broken',
      },
    ]);
    await bucket.close();
  });
});

describe("a slot", () => {
  it("is released at the end of its block", async () => {
    const { bucket } = createTestBucket({ concurrency: 1 });
    {
      using slot = await bucket.draw();
      expect(slot.hasLease).toBe(true);
    }
    {
      await using slot = await bucket.draw();
      expect(slot.hasLease).toBe(true);
    }

    const { allowed, slot } = await bucket.tryDraw();

    expect(allowed).toBe(true);
    slot!.release();
    await bucket.close();
  });
});

function broken(): never {
  throw new Error("broken");
}
