import { expect, it } from "vitest";
import type { WakeResult } from "../../../src/stores/redis/scripts/queue/jobs.ts";
import { createWakeWatch } from "../../../src/queue/enqueue/storing.ts";
import { fakeTimers } from "../../support/async/fake-timers.ts";

const pass = fakeTimers({ leavesNone: true });

/** `heard` answers for each job; what was asked, and when. */
function setUp(heard: (id: string) => WakeResult) {
  const looks: [id: string, atMs: number][] = [];
  const from = performance.now();
  const watch = createWakeWatch(async (id) => {
    looks.push([id, Math.round(performance.now() - from)]);
    return heard(id);
  });
  return { watch, looks };
}

it("looks once after a worker has taken a job, for all jobs that were enqueued together", async () => {
  const { watch, looks } = setUp(() => "taken");

  watch.watch("1");
  await pass(1_000);
  for (let id = 2; id <= 100; id++) watch.watch(String(id));
  await pass(10_000);
  watch.close();

  expect(looks).toEqual([
    ["1", 250],
    ["2", 1_250],
    ["100", 1_500],
  ]);
});

it("wakes other workers until one takes the job, for at most the time that each would wait by itself", async () => {
  let takenAfter = 3;
  const { watch, looks } = setUp(() => (takenAfter-- > 0 ? "woken" : "taken"));

  watch.watch("1");
  await pass(20_000);
  const first = looks.splice(0);
  takenAfter = Infinity;
  watch.watch("2");
  await pass(20_000);
  watch.close();

  expect(first.map(([, atMs]) => atMs)).toEqual([250, 750, 1_750, 3_750]);
  expect(looks.length).toBeLessThanOrEqual(5);
});

it("looks rarely while jobs wait for their turn, and soon again once one is taken", async () => {
  let heard: WakeResult = "waiting";
  const { watch, looks } = setUp(() => heard);

  for (let second = 0; second < 60; second++) {
    watch.watch(String(second));
    await pass(1_000);
  }
  const looksWhileWaiting = looks.length;
  heard = "taken";
  await pass(10_000);
  watch.watch("next");
  await pass(250);
  const last = looks.at(-1);
  watch.close();

  expect(looksWhileWaiting).toBeLessThanOrEqual(20);
  expect(last?.[0]).toBe("next");
});

it("looks for a job with a short delay once it is due, and not for later ones", async () => {
  const { watch, looks } = setUp(() => "taken");

  watch.watch("soon", 2_000);
  watch.watch("later", 60_000);
  await pass(120_000);
  watch.close();

  expect(looks).toEqual([["soon", 2_250]]);
});

it("ends with its queue, and leaves nothing behind", async () => {
  const { watch, looks } = setUp(() => "woken");

  watch.watch("1");
  watch.watch("2", 1_000);
  watch.close();
  await pass(10_000);

  expect(looks).toEqual([]);
});
