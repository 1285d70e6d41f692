import { describe, expect, it, vi } from "vitest";
import { deferred } from "../../../support/async/deferred.ts";
import { createRetention } from "../../../../src/queue/worker/retention.ts";
import { fakeTimers } from "../../../support/async/fake-timers.ts";

const pass = fakeTimers();

function setUp(forMs?: number) {
  const looked = { times: 0, answer: (): Promise<void> => Promise.resolve() };
  const errors: string[] = [];
  const retention = createRetention(
    async () => {
      looked.times += 1;
      await looked.answer();
    },
    ({ message }) => void errors.push(message),
    forMs === undefined ? undefined : () => forMs,
  );
  const done = (jobs: number): void => {
    for (let job = 0; job < jobs; job++) retention.note();
  };
  return { looked, errors, retention, done };
}

/** It has looked as it started. */
async function setUpAtWork(forMs?: number) {
  const parts = setUp(forMs);
  await pass(0);
  parts.looked.times = 0;
  return parts;
}

describe("a worker looks for done jobs that are no longer kept", () => {
  it("when it starts, for those of workers that are gone", () => {
    const { looked } = setUp();

    expect(looked.times).toBe(1);
  });

  it("each minute, even if no job ends", async () => {
    const { looked } = await setUpAtWork();
    await pass(59_999);
    expect(looked.times).toBe(0);

    await pass(120_001);
    expect(looked.times).toBe(3);
  });

  it("again once the latest done jobs are too old, and then each minute as before", async () => {
    const { looked, done } = await setUpAtWork(3_000);
    await pass(30_000);
    done(1);
    await pass(1_000);
    looked.times = 0;
    await pass(2_000);
    expect(looked.times).toBe(1);

    await pass(3_000);
    expect(looked.times).toBe(2);

    await pass(59_999);
    expect(looked.times).toBe(2);

    await pass(1);
    expect(looked.times).toBe(3);
  });

  it("a second after a job was done, and not immediately again", async () => {
    const { looked, done } = await setUpAtWork();
    done(1);
    await pass(999);
    expect(looked.times).toBe(0);

    await pass(1);
    expect(looked.times).toBe(1);

    await pass(50_000);
    expect(looked.times).toBe(1);
  });

  it("once for every 64, when they come faster than that", async () => {
    const { looked, done } = await setUpAtWork();
    for (let batch = 0; batch < 10; batch++) {
      done(64);
      await pass(1);
    }
    expect(looked.times).toBe(10);

    await pass(50_000);
    expect(looked.times).toBe(10);
  });

  it("one look at a time, and once more for jobs that were done during a look", async () => {
    const { looked, done } = await setUpAtWork();
    const answer = deferred();
    looked.answer = () => answer.promise;
    done(64);
    done(1_000);
    await pass(10_000);
    expect(looked.times).toBe(1);

    answer.resolve();
    await pass(1_000);
    expect(looked.times).toBe(2);
  });

  it("again a second after a failed look, which it logs, until one succeeds", async () => {
    const { looked, errors, done } = await setUpAtWork();
    looked.answer = () => Promise.reject(new Error("NOPERM"));
    done(1);
    await pass(1_000);
    expect(errors).toEqual(["NOPERM"]);
    await pass(1_000);
    expect(errors).toEqual(["NOPERM", "NOPERM"]);

    looked.answer = () => Promise.resolve();
    looked.times = 0;
    await pass(50_000);
    expect(looked.times).toBe(1);
  });

  it("no more once it is closed, even if its last look fails", async () => {
    const { looked, retention, done } = await setUpAtWork();
    looked.answer = () => Promise.reject(new Error("away"));
    done(1);

    await retention.close();

    expect(looked.times).toBe(1);
    expect(vi.getTimerCount()).toBe(0);
  });

  it("when it closes, for the jobs that it has not looked for yet, and leaves no timer behind", async () => {
    const { looked, retention, done } = await setUpAtWork();
    done(3);

    await retention.close();

    expect(looked.times).toBe(1);
    expect(vi.getTimerCount()).toBe(0);
    await retention.close();
    expect(looked.times).toBe(1);
  });
});
