import { describe, expect, it, vi } from "vitest";
import { InvalidOptionError } from "../../../../src/core/errors.ts";
import { leakyBucket, tokenBucket } from "../../../../src/core/policy/limit-makers.ts";
import { createTestBucket } from "../../../support/draws/test-bucket.ts";
import { fakeTimers } from "../../../support/async/fake-timers.ts";

fakeTimers({ leavesNone: true });

const thousandTokens = {
  limits: [
    leakyBucket("100/s", { burst: 10 }),
    tokenBucket({ capacity: 1_000, refill: "1/h", unit: "tokens" }),
  ],
};

function open() {
  const { bucket, warnings } = createTestBucket(thousandTokens);
  const left = async (): Promise<number> => (await bucket.peek()).limits[1]!.remaining;
  return { bucket, left, warnings };
}

describe("settle", () => {
  it("books the difference above the estimate, and frees the difference below it", async () => {
    const { bucket, left } = open();
    const low = await bucket.draw({ cost: { tokens: 100 } });
    const high = await bucket.draw({ cost: { tokens: 100 } });

    await low.settle({ tokens: 150 });
    await high.settle({ tokens: 20 });

    expect(await left()).toBe(1_000 - 150 - 20);
    await bucket.close();
  });

  it("counts once, however often it is called", async () => {
    const { bucket, left } = open();
    const slot = await bucket.draw({ cost: { tokens: 100 } });

    await Promise.all([slot.settle({ tokens: 300 }), slot.settle({ tokens: 300 })]);
    await slot.settle({ tokens: 500 });

    expect(await left()).toBe(700);
    await bucket.close();
  });

  it("waits for a call with a cost", async () => {
    const { bucket, left } = open();
    const slot = await bucket.draw({ cost: { tokens: 100 } });

    await slot.settle({ tokens: undefined });
    await slot.settle({ tokens: null });
    await slot.settle({ tokens: 900 });

    expect(await left()).toBe(100);
    await bucket.close();
  });

  it.each([
    ["a promise", Promise.resolve({ tokens: 3 })],
    ["a list", []],
  ])("refuses %s, which names no unit", async (_name, cost) => {
    const { bucket, left } = open();
    const slot = await bucket.draw({ cost: { tokens: 100 } });

    const refusal = await slot.settle(cost as never).catch((error: unknown) => error);

    expect(refusal).toBeInstanceOf(InvalidOptionError);
    await slot.settle({ tokens: 3 });
    expect(await left()).toBe(997);
    await bucket.close();
  });

  it("takes a right number after one that can never be a cost", async () => {
    const { bucket, left } = open();
    const slot = await bucket.draw({ cost: { tokens: 100 } });

    await expect(slot.settle({ tokens: -1 })).rejects.toBeInstanceOf(InvalidOptionError);
    await slot.settle({ tokens: 40 });

    expect(await left()).toBe(1_000 - 40);
    await bucket.close();
  });

  it("books nothing when other limits are in force by then", async () => {
    const { bucket } = open();
    const slot = await bucket.draw({ cost: { tokens: 100 } });
    const limits = [tokenBucket({ capacity: 500, refill: "1/h" }), leakyBucket("100/s")];
    await bucket.configure({ limits });
    await bucket.tryDraw();
    const before = (await bucket.peek()).limits;

    await slot.settle({ tokens: 400 });

    expect((await bucket.peek()).limits).toEqual(before);
    await bucket.close();
  });

  it("goes into debt, which later calls wait for", async () => {
    const { bucket, left } = open();
    const slot = await bucket.draw({ cost: { tokens: 100 } });

    await slot.settle({ tokens: 5_000 });

    expect(await left()).toBe(0);
    expect((await bucket.tryDraw({ cost: { tokens: 1 } })).retryAfterMs).toBe(2 ** 31 - 1);
    await bucket.close();
  });

  it("is refused by no limit in shadow, and books under the limits that hold", async () => {
    const tooSlow = leakyBucket("1/d", { burst: 100, unit: "tokens", shadow: true });
    const { bucket } = createTestBucket({ limits: [...thousandTokens.limits, tooSlow] });
    const slot = await bucket.draw({ cost: { tokens: 5 } });

    await slot.settle({ tokens: 900 });

    expect((await bucket.peek()).limits[1]!.remaining).toBe(100);
    await bucket.close();
  });

  it("takes nothing from the line of a shadow that the call could never pass", async () => {
    const small = tokenBucket({ capacity: 300, refill: "10/min", unit: "tokens", shadow: true });
    const { bucket } = createTestBucket({ limits: [leakyBucket("100/s", { burst: 10 }), small] });
    await bucket.draw({ cost: { tokens: 300 } });
    const slot = await bucket.draw({ cost: { tokens: 600 } });

    await slot.settle({ tokens: 200 });
    await bucket.draw({ cost: { tokens: 300 } });

    const [shadow] = (await bucket.status()).shadows;
    expect(shadow).toMatchObject({ calls: 3, wouldHaveWaited: 1, wouldHaveBeenRefused: 1 });
    await bucket.close();
  });

  it.each([
    ["nothing", () => undefined],
    ["null", () => null],
    ["a unit that is undefined", () => ({ tokens: undefined })],
    ["no unit", () => ({})],
  ])("keeps the estimate when the result contains %s", async (_what, settle) => {
    const { bucket, left } = open();
    const call = bucket.throttled(async () => "done", { cost: { tokens: 400 }, settle });

    await call();
    await vi.advanceTimersByTimeAsync(10);

    expect(await left()).toBe(600);
    await bucket.close();
  });

  it("takes a cost of zero at its word", async () => {
    const { bucket, left } = open();
    const call = bucket.throttled(async () => ({ used: 0 }), {
      cost: { tokens: 400 },
      settle: ({ used }) => ({ tokens: used }),
    });

    await call();
    await vi.advanceTimersByTimeAsync(10);

    expect(await left()).toBe(1_000);
    await bucket.close();
  });

  it("fails no call that went well when its cost cannot be read", async () => {
    const { bucket, left, warnings } = open();
    const call = bucket.throttled(async () => ({}) as { usage: { total: number } }, {
      cost: { tokens: 400 },
      settle: ({ usage }) => ({ tokens: usage.total }),
    });

    await expect(call()).resolves.toEqual({});
    await vi.advanceTimersByTimeAsync(10);

    expect(await left()).toBe(600);
    expect(warnings).toMatchObject([
      { message: expect.stringContaining("the estimate of bucket") },
    ]);
    await bucket.close();
  });

  it.each([
    { tokens: -1 },
    { tokens: 1.5 },
    { tokens: Number.NaN },
    { tokens: 2 ** 53 },
    { token: 1 },
  ])("refuses %j and keeps the estimate", async (cost) => {
    const { bucket, left } = open();
    const slot = await bucket.draw({ cost: { tokens: 100 } });

    await expect(slot.settle(cost as never)).rejects.toBeInstanceOf(InvalidOptionError);

    expect(await left()).toBe(900);
    await bucket.close();
  });
});
