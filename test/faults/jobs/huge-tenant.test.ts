import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { startFakeDownstream, type FakeDownstream } from "sluice/testing";
import { children } from "../../support/children/child.ts";
import { jobCalls, startLaneWorkers, type JobCall } from "../../support/jobs/lane-workers.ts";
import { ownRedisServers } from "../../support/redis/own-redis.ts";
import { reportFigures } from "../../support/docs/report-figures.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const RATE = 20;
const WORKERS = 4;
const HUGE = 100_000;
const WEIGHTS = { A: 1, B: 1, C: 2 };
/** What workers hold and A had before: a quarter of a second's, one more for each by rounding, and two to spare; see the queue's fetcher. */
const HELD = Math.ceil(0.25 * RATE) + 2 + WORKERS;
/**
 * By so many calls all of C's ten, and B's ten, have left their lanes: of four
 * that leave, two are C's and one is B's, and when C has none left, one of two
 * is B's. One more is A's, whose turn had begun.
 */
const LEFT_LANE = { C: 20 + 1, B: 30 + 1 };
/**
 * In its process a job waits for those that were fetched before it, and for each of them the other processes start
 * one too. BullMQ gives what has left the lanes to whoever comes first: one process may hold all of it.
 */
const IN_PROCESS = (HELD + 1) * WORKERS;
const processes = children();
const servers = ownRedisServers();
let downstream: FakeDownstream;

beforeEach(async () => {
  downstream = await startFakeDownstream();
});
afterEach(async () => {
  await downstream.close();
});

/**
 * The calls of a tenant that came after more than `most` others. A process that is held up keeps what it
 * holds while the others go on: there, it is too late after more than its part of them.
 */
function outOfTurn(calls: readonly JobCall[], key: string, most: number): JobCall[] {
  const mostOfProcess = Math.ceil(most / WORKERS) + 1;
  return calls.filter((call, index) => {
    const ofProcess = calls.slice(0, index + 1).filter(({ pid }) => pid === call.pid).length;
    return call.key === key && index + 1 > most && ofProcess > mostOfProcess;
  });
}

describe("a tenant with 100,000 jobs", () => {
  it("delays no other tenant: weights of 1, 1 and 2 apply from the first job on", async () => {
    const redis = await servers.start();
    const sluice = redis.open();
    const bucket = sluice.bucket("downstream", { rate: `${RATE}/s` });
    const queue = sluice.queue<string>("jobs", { bucket, weights: WEIGHTS });
    const named = (key: string, count: number): string[] =>
      Array.from({ length: count }, (_, index) => `${key} ${index}`);
    const settings = { redis: redis.url, prefix: "sluice", url: downstream.url, weights: WEIGHTS };
    const workers = startLaneWorkers(processes, WORKERS, {
      ...settings,
      policy: { rate: `${RATE}/s` },
      lockMs: 30_000,
    });
    await queue.enqueueMany(named("A", HUGE), { key: "A" });
    const areReady = (): boolean => workers.every(({ messages }) => messages.includes("ready"));
    await waitUntil(areReady, "the workers are ready");
    await waitUntil(() => downstream.arrivals.length >= 2 * RATE, "A is served");

    await Promise.all(["B", "C"].map((key) => queue.enqueueMany(named(key, 10), { key })));
    const before = downstream.arrivals.length;
    const calls = (): JobCall[] => jobCalls(downstream.arrivals.slice(before));
    const countOf = (key: string): number => calls().filter((each) => each.key === key).length;
    await waitUntil(() => countOf("B") === 10 && countOf("C") === 10, "B and C are done");

    const lastOf = (key: string): number => calls().findLastIndex((each) => each.key === key) + 1;
    reportFigures("a tenant brings 100,000 jobs", {
      "last call of C, ideally 20": lastOf("C"),
      "last call of B, ideally 30": lastOf("B"),
    });
    expect(outOfTurn(calls(), "C", LEFT_LANE.C + HELD + IN_PROCESS)).toEqual([]);
    expect(outOfTurn(calls(), "B", LEFT_LANE.B + HELD + IN_PROCESS)).toEqual([]);
    expect(await queue.counts()).toMatchObject({ failed: 0 });
  }, 300_000);
});
