import { beforeEach, describe, expect, it } from "vitest";
import type { Key, Queue, QueuedJob } from "sluice";
import { etaOf, forecastOf, pretendWorker } from "../../../support/jobs/outlook.ts";
import { openLanes, upTo } from "../../../support/jobs/open-lanes.ts";
import { useDownstream } from "../../../support/servers/use-downstream.ts";
import { waitUntil } from "../../../support/async/wait-until.ts";

const lanes = openLanes();
const downstream = useDownstream();
beforeEach(() => pretendWorker(lanes.prefix, "jobs"));

/** 100 a second in all, 20 for a customer, 5 for an endpoint. */
const POLICY = { rate: "100/s", perKey: [{ rate: "20/s" }, { rate: "5/s" }] };

/** Whom the customer's limit holds back, whom the endpoint's, and who has room by both. */
async function fill(queue: Queue<number>): Promise<Record<string, QueuedJob<number>>> {
  const last = async (key: Key, count: number): Promise<QueuedJob<number>> =>
    (await queue.enqueueMany(upTo(count), { key })).at(-1)!;
  const ofAcme = await Promise.all(upTo(10).map((at) => last(["acme", `e${at}`], 10)));
  return {
    manyEndpoints: ofAcme.at(-1)!,
    oneEndpoint: await last(["bolt", "e0"], 20),
    ownName: await last("cargo", 20),
    other: await last(["delta", "e0"], 1),
  };
}

describe("the forecast for customers and their endpoints", () => {
  it("uses the narrowest limit of each level", async () => {
    const { queue } = lanes.open(POLICY);
    const jobs = await fill(queue);
    const startOf = async (name: string): Promise<number> => (await etaOf(jobs[name]!)).startsInMs;
    const goneOf = async (key: Key): Promise<number> =>
      (await forecastOf(queue, { key })).emptyInMs;

    const near = (ms: number): readonly [number, number] => [ms * 0.9 - 60, ms * 1.1 + 60];
    const expectNear = (ms: number, wanted: number): void => {
      const [least, most] = near(wanted);
      expect(ms).toBeGreaterThanOrEqual(least);
      expect(ms).toBeLessThanOrEqual(most);
    };
    // A hundred jobs at 20 a second, whatever the number of endpoints.
    expectNear(await startOf("manyEndpoints"), 4_900);
    expectNear(await goneOf("acme"), 4_950);
    expectNear(await goneOf(["acme", "e3"]), 4_900);
    // Twenty at 5 a second, since they are of one endpoint; and at 20, since they are of none.
    expectNear(await startOf("oneEndpoint"), 3_800);
    expectNear(await goneOf("bolt"), 3_800);
    expectNear(await startOf("ownName"), 950);
    expect(await startOf("other")).toBeLessThan(200);
    expectNear((await forecastOf(queue)).emptyInMs, 4_950);
  });

  it("applies a pause and a cooldown of each level to the keys below it", async () => {
    const { queue } = lanes.open(POLICY);
    const jobs = await fill(queue);
    await queue.bucket.pause({ key: "acme", forMs: 60_000 });
    await queue.pause({ key: ["bolt", "e0"], forMs: 90_000 });

    expect((await etaOf(jobs["manyEndpoints"]!)).startsInMs).toBeGreaterThan(55_000);
    expect((await etaOf(jobs["oneEndpoint"]!)).startsInMs).toBeGreaterThan(85_000);
    expect((await etaOf(jobs["ownName"]!)).startsInMs).toBeLessThan(1_200);
    expect((await forecastOf(queue, { key: "acme" })).emptyInMs).toBeGreaterThan(60_000);
    await queue.bucket.pause({ key: "acme" });
    const paused = { startsInMs: undefined, reason: "key paused" };
    expect(await jobs["manyEndpoints"]!.eta()).toMatchObject(paused);
  });

  it("is never later than the arrival at the downstream", async () => {
    const { sluice, queue } = lanes.open(POLICY);
    const jobs = await fill(queue);
    const etas = await Promise.all(Object.values(jobs).map(etaOf));

    sluice.worker(queue, async ({ id }, { slot }) => {
      const headers = { "x-job": id, "x-slot-ms": String(slot.atMs) };
      await (await fetch(downstream.url, { method: "POST", headers })).arrayBuffer();
    });
    await waitUntil(() => downstream.arrivals.length === 141, "all are done");

    const calls = downstream.arrivals
      .map(({ headers }) => ({ id: headers["x-job"], atMs: Number(headers["x-slot-ms"]) }))
      .toSorted((a, b) => a.atMs - b.atMs);
    const told = Object.values(jobs).map(({ id }, index) => ({
      ...etas[index]!,
      at: calls.findIndex((call) => call.id === id),
    }));
    for (const { at, startsInMs } of told) {
      // A job starts no sooner than is told; how much later is the machine's.
      expect(calls[at]!.atMs - calls[0]!.atMs).toBeGreaterThan(startsInMs * 0.85 - 100);
    }
  });
});
