import { describe, expect, it, vi } from "vitest";
import { createMemoryStore } from "../../../../src/stores/memory/memory-store.ts";
import type { OwnedBucket } from "../../../../src/throttle/bucket.ts";
import type { BucketOptions } from "../../../../src/throttle/bucket/bucket-options.ts";
import { fakeTimers } from "../../../support/async/fake-timers.ts";
import { createTestBucket } from "../../../support/draws/test-bucket.ts";

const advance = fakeTimers({ leavesNone: true });

function tooMany(headers: object = { "retry-after": "2" }): Error {
  return Object.assign(new Error("too many"), { status: 429, headers });
}

/** How a bucket stands once a call has failed so. */
async function standsAfter(
  options: BucketOptions,
  error: Error,
): Promise<Awaited<ReturnType<OwnedBucket["peek"]>>> {
  const { bucket } = createTestBucket(options);
  const calling = bucket
    .throttled(() => Promise.reject(error))()
    .catch(() => undefined);
  await advance(0);
  await calling;
  await bucket.outcomesReported();
  const state = await bucket.peek();
  await bucket.close();
  return state;
}

describe("a feedback function that gets the bucket's own reading", () => {
  type Read = Exclude<NonNullable<BucketOptions["feedback"]>, false>;

  /** What becomes of a bucket, and what is said, when a call is refused for 2 s and this function hears of it. */
  async function refusedOnce(
    feedback: Read,
  ): Promise<{ readonly coolingForMs: number; readonly messages: readonly string[] }> {
    const { bucket, warnings } = createTestBucket({ rate: "100/s", burst: 2, feedback });
    const call = bucket.throttled(() => Promise.reject(tooMany()), { key: "k" });
    const calls = Promise.allSettled([call(), call()]);
    await advance(1_200);
    await calls;
    await bucket.outcomesReported();
    const { coolingForMs } = await bucket.peek();
    await bucket.close();
    return { coolingForMs, messages: warnings.map(({ message }) => message) };
  }

  it("gets the answer, the key and the bucket", async () => {
    const feedback = vi.fn<Read>(() => undefined);

    const { coolingForMs } = await refusedOnce(feedback);

    const answer: unknown = expect.objectContaining({ refused: true, afterMs: 2_000, retry: true });
    expect(feedback.mock.calls[0]![1]).toMatchObject({
      answer,
      heard: answer,
      key: "k",
      bucket: "test",
    });
    expect(coolingForMs).toBe(0);
  });

  it.each<[string, Read, number]>([
    ["as it is", (_result, { answer }) => answer, 2_000],
    ["changed", (_result, { answer }) => ({ ...answer, afterMs: 5_000 }), 5_000],
    ["as none", (_result, { answer }) => ({ ...answer, refused: false }), 0],
    ["with a unit", (_result, { answer }) => ({ ...answer, unit: "tokens" }), 2_000],
    ["as a cooldown with a unit", () => ({ coolMs: 5_000, unit: "tokens" }), 5_000],
    ["of the bucket", (_result, { answer }) => ({ ...answer, scope: "bucket" }), 2_000],
    ["in a while", async (_result, { answer }) => ({ ...answer, afterMs: 5_000 }), 5_000],
    ["in a while as a cooldown", async () => ({ coolMs: 5_000 }), 5_000],
  ])("may return it %s", async (_how, feedback, coolMs) => {
    const { coolingForMs, messages } = await refusedOnce(feedback);

    expect(coolingForMs).toBeGreaterThanOrEqual(Math.max(0, coolMs - 1_300));
    expect(coolingForMs).toBeLessThanOrEqual(coolMs);
    expect(messages).toEqual([]);
  });

  it("may call a refusal what the bucket took for none", async () => {
    const feedback: Read = (_result, { answer }) => ({ ...answer, refused: true });

    const state = await standsAfter({ rate: "100/s", feedback }, new Error("an own protocol"));

    expect(state.coolingForMs).toBe(1_000);
  });

  it.each<[string, Read, string]>([
    [
      "throws",
      () => {
        throw new Error("boom");
      },
      "feedback() failed (Error: boom)",
    ],
    ["rejects", () => Promise.reject(new Error("boom")), "feedback() failed (Error: boom)"],
    ["never answers", () => new Promise(() => {}), "feedback() failed (Error: it took longer"],
  ])("leaves it to the bucket when it %s, which is said once", async (_how, feedback, said) => {
    const { coolingForMs, messages } = await refusedOnce(feedback);

    expect(coolingForMs).toBeGreaterThan(700);
    expect(messages).toEqual([expect.stringContaining(said)]);
  });

  it.each([
    [{ refused: "yes" }, "a refused of"],
    [{ refused: true, afterMs: -1 }, "an afterMs of -1"],
    [{ refused: true, afterMs: "5" }, 'an afterMs of "5"'],
    [{ refused: true, scope: "year" }, 'a scope of "year"'],
    [{ coolMs: 5, unit: 7 }, "a unit of 7"],
  ])("is rejected once with a warning about %j", async (answer, what) => {
    const { coolingForMs, messages } = await refusedOnce(() => answer as never);

    expect(coolingForMs).toBe(0);
    expect(messages).toEqual([expect.stringContaining(`feedback() returned ${what}`)]);
  });
});

describe("a quota that is used up for hours", () => {
  const inTenHours = { "x-ratelimit-remaining-requests-day": "0", "retry-after": "36000" };

  it("cools until it is reset", async () => {
    const state = await standsAfter({ rate: "100/s" }, tooMany(inTenHours));

    expect(state.coolingForMs).toBe(36_000_000);
  });

  it("cools no longer than maxCooldownMs", async () => {
    const options = { rate: "100/s", maxCooldownMs: 60_000 };

    const state = await standsAfter(options, tooMany(inTenHours));

    expect(state.coolingForMs).toBe(60_000);
  });

  it("leaves the rate as it is, when that is adaptive", async () => {
    const adaptive = { floor: 0.1, recoverMs: 60_000 };

    const state = await standsAfter({ rate: "100/s", adaptive }, tooMany(inTenHours));

    expect(state).toMatchObject({ rateFactor: 1, coolingForMs: 36_000_000 });
  });
});

describe("an answer that its downstream is overloaded", () => {
  const overloaded = Object.assign(new Error("Overloaded"), { status: 529 });

  it("cools for a second", async () => {
    const state = await standsAfter({ rate: "100/s" }, overloaded);

    expect(state.coolingForMs).toBe(1_000);
  });

  it("cuts no rate that is adaptive", async () => {
    const adaptive = { floor: 0.1, recoverMs: 60_000 };

    const state = await standsAfter({ rate: "100/s", adaptive }, overloaded);

    expect(state).toMatchObject({ rateFactor: 1, coolingForMs: 1_000 });
  });
});

describe("refusals that name no time", () => {
  it("cool twice as long each time that they repeat, and begin anew after a success", async () => {
    const store = createMemoryStore();
    const steered = vi.spyOn(store, "steer");
    const { bucket } = createTestBucket({ rate: "1000/s" }, { store });
    const statuses = [429, 429, 429, 200, 429];
    const call = bucket.throttled(async () => ({ status: statuses.shift() }));

    for (let index = 0; index < 5; index++) {
      const calling = call();
      await advance(4_100);
      await calling;
    }
    await bucket.close();

    const cooledUs = steered.mock.calls.map(
      ([{ change }]) => change.do === "cool" && change.durationUs,
    );
    expect(cooledUs).toEqual([1_000_000, 2_000_000, 4_000_000, 1_000_000]);
  });
});
