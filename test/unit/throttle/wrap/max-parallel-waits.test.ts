import { describe, expect, it, vi } from "vitest";
import { ClosedError } from "../../../../src/core/errors.ts";
import { heapUsed } from "../../../support/heap-used.ts";
import { rejectionOf } from "../../../support/async/rejection.ts";
import { createTestBucket } from "../../../support/draws/test-bucket.ts";
import { fakeTimers } from "../../../support/async/fake-timers.ts";

fakeTimers({ leavesNone: true });

/** Counts the entries that searches through lists look at. */
function countSearched(): () => number {
  const { findIndex } = Array.prototype;
  let searched = 0;
  vi.spyOn(Array.prototype, "findIndex").mockImplementation(function (this: unknown[], matches) {
    return findIndex.call(this, (...entry) => {
      searched += 1;
      return matches(...entry);
    });
  });
  return () => {
    vi.mocked(Array.prototype.findIndex).mockRestore();
    return searched;
  };
}

describe("calls that wait for a place among those of a throttled function", () => {
  /** One call runs until it is told to end, and the others wait. */
  async function crowd(count: number) {
    const { bucket } = createTestBucket({ rate: "1000/s" });
    let end = (): void => {};
    const started: string[] = [];
    const call = bucket.throttled(
      async (name: string) => {
        started.push(name);
        if (name === "first") await new Promise<void>((resolve) => (end = resolve));
      },
      { concurrency: 1 },
    );
    const first = call("first");
    await vi.advanceTimersByTimeAsync(10);
    const controllers = Array.from({ length: count }, () => new AbortController());
    const waiting = controllers.map(({ signal }, index) => call.with({ signal })(`${index}`));
    return { call, started, first, waiting, controllers, end: () => end() };
  }

  it("are refused immediately when the bucket is closed, whichever calls still run", async () => {
    const { bucket } = createTestBucket({ rate: "1000/s" });
    let end = (): void => {};
    const run = (): Promise<void> => new Promise((resolve) => (end = resolve));
    const call = bucket.throttled(run, { concurrency: 1 });
    const first = call();
    await vi.advanceTimersByTimeAsync(10);
    await bucket.close();

    const late = await rejectionOf(call());

    expect(late).toBeInstanceOf(ClosedError);
    end();
    await first;
  });

  it("leave it without a search through all the others", async () => {
    const { waiting, controllers, first, end } = await crowd(1_000);
    const rejections = waiting.map(rejectionOf);
    const searched = countSearched();

    for (const controller of controllers.toReversed()) controller.abort("gone");

    expect(searched()).toBeLessThan(10_000);
    expect(new Set(await Promise.all(rejections))).toEqual(new Set(["gone"]));
    end();
    await first;
  });

  it("come to their turn also when some before and behind them have left", async () => {
    const { call, waiting, controllers, first, started, end } = await crowd(5);
    const urgent = call.with({ priority: "critical" })("urgent");
    const left = [0, 2, 4].map((index) => rejectionOf(waiting[index]!));
    for (const index of [0, 2, 4]) controllers[index]!.abort("gone");

    end();
    await vi.advanceTimersByTimeAsync(100);

    await Promise.all([first, urgent, waiting[1], waiting[3], ...left]);
    expect(started).toEqual(["first", "urgent", "1", "3"]);
  });
});

it("a bucket holds nothing of the functions that were wrapped for one use", async () => {
  const { bucket } = createTestBucket({ rate: "1000/s" });
  const wrapOnce = () => bucket.throttled(async () => "done", { concurrency: 5 });
  const used = wrapOnce();
  const calls = [used(), used()];
  await vi.advanceTimersByTimeAsync(10);
  await Promise.all(calls);
  const before = heapUsed();

  for (let request = 0; request < 10_000; request++) wrapOnce();

  expect(heapUsed() - before).toBeLessThan(3_000_000);
  await bucket.close();
});
