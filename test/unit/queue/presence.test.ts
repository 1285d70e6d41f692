import { expect, it } from "vitest";
import type { Ended } from "../../../src/stores/redis/scripts/queue/steering.ts";
import { createPresence } from "../../../src/queue/worker/report.ts";
import { createTally } from "../../../src/queue/worker/report.ts";
import { fakeTimers } from "../../support/async/fake-timers.ts";

const pass = fakeTimers({ leavesNone: true });

function setUp() {
  const setup = {
    isIdle: false,
    told: [] as number[],
    ended: [] as Ended[],
    tally: createTally(),
    answer: (): Promise<void> => Promise.resolve(),
    /** Until when the worker counts as alive. */
    untilMs: -Infinity,
    async noteWorker({
      forMs,
      ended,
    }: {
      readonly forMs: number;
      readonly ended?: Ended | undefined;
    }): Promise<void> {
      setup.told.push(forMs);
      setup.ended.push(ended!);
      await setup.answer();
      setup.untilMs = performance.now() + forMs;
    },
  };
  const presence = createPresence({
    lanes: setup,
    queue: "jobs",
    workerId: "w",
    concurrency: 50,
    isIdle: () => setup.isIdle,
    tally: setup.tally,
  });
  return Object.assign(setup, { close: () => presence.close() });
}

/** Whether the worker counted as alive at each tenth of a second. */
async function isSeenFor(ms: number, setup: ReturnType<typeof setUp>): Promise<boolean> {
  let isSeen = true;
  for (let passedMs = 0; passedMs < ms; passedMs += 100) {
    await pass(100);
    isSeen &&= performance.now() < setup.untilMs;
  }
  return isSeen;
}

it("a worker counts as alive all the time, also when it becomes idle and starts again", async () => {
  const setup = setUp();

  const seen = [await isSeenFor(1_500, setup)];
  setup.isIdle = true;
  seen.push(await isSeenFor(25_000, setup));
  setup.isIdle = false;
  seen.push(await isSeenFor(5_000, setup));
  await setup.close();

  expect(seen).toEqual([true, true, true]);
  expect(setup.told.at(-1)).toBe(0);
});

it("an idle worker reports every ten seconds, and again immediately if a report was lost", async () => {
  const setup = setUp();
  setup.isIdle = true;
  await pass(30_500);
  const told = setup.told.length;
  setup.answer = () => Promise.reject(new Error("Redis is away"));
  await pass(12_000);
  setup.answer = () => Promise.resolve();
  await pass(1_000);
  const isSeen = performance.now() < setup.untilMs;
  await setup.close();

  expect(told).toBeLessThanOrEqual(5);
  expect(isSeen).toBe(true);
});

it("a worker reports the results of its attempts once, and again if the report was lost", async () => {
  const setup = setUp();
  const [one, other] = [{}, {}];
  setup.tally.started(one);
  setup.tally.started(other);
  await pass(500);
  setup.tally.ended(one, "done");
  setup.answer = () => Promise.reject(new Error("Redis is away"));
  await pass(500);
  setup.answer = () => Promise.resolve();
  setup.tally.ended(other, "failed");
  setup.tally.ended({}, "failed");
  await pass(1_000);
  await pass(1_000);
  await setup.close();

  const nothing = { done: 0, failed: 0, busyMs: 0 };
  expect(setup.ended).toEqual([
    nothing,
    { done: 1, failed: 0, busyMs: 500 },
    { done: 1, failed: 2, busyMs: 1_500 },
    nothing,
    nothing,
  ]);
});
