import { setImmediate as nextTurn } from "node:timers/promises";
import { describe, expect, it, onTestFinished } from "vitest";
import { startTimeLimit, withTimeout } from "../../../src/stores/redis/ioredis/time-limit.ts";
import { block } from "../../support/async/block.ts";
import { fakeTimers } from "../../support/async/fake-timers.ts";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

describe("a time limit", () => {
  const advance = fakeTimers({ leavesNone: true });

  it("ends after its time, and not before", async () => {
    let isOver = false;
    startTimeLimit(2_000, () => (isOver = true));

    await advance(1_999);
    expect(isOver).toBe(false);
    await advance(1);
    expect(isOver).toBe(true);
  });

  it("never ends once it was stopped", async () => {
    let isOver = false;
    const stop = startTimeLimit(2_000, () => (isOver = true));

    await advance(1_500);
    stop();
    await advance(10_000);

    expect(isOver).toBe(false);
  });

  it("leaves nothing behind when the work is done in time", async () => {
    const done = await withTimeout(2_000, Promise.resolve("done"), () => new Error("late"));

    expect(done).toBe("done");
  });

  it("makes late work reject with the given error", async () => {
    const endless = new Promise(() => {});
    const rejection = rejectionOf(withTimeout(2_000, endless, () => new Error("no answer")));

    await advance(2_000);

    expect(await rejection).toEqual(new Error("no answer"));
  });
});

it("does not advance while the process stands still", async () => {
  let isOver = false;
  onTestFinished(startTimeLimit(400, () => (isOver = true)));

  block(500);
  await nextTurn();

  expect(isOver).toBe(false);
  await waitUntil(() => isOver, "it runs out, with the process at work");
});
