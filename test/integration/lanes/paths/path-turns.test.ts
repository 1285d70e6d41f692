import { describe, expect, it } from "vitest";
import type { BucketOptions, Queue, QueueOptions } from "sluice";
import { children } from "../../../support/children/child.ts";
import { jobCalls, startLaneWorkers, type JobCall } from "../../../support/jobs/lane-workers.ts";
import { realSluices } from "../../../support/setup/real-sluice.ts";
import { useDownstream } from "../../../support/servers/use-downstream.ts";
import { waitUntil } from "../../../support/async/wait-until.ts";

const WORKERS = 4;
const processes = children();
const sluices = realSluices();
const downstream = useDownstream();

/** A queue of tenants and their endpoints, and four worker processes that wait for it to be resumed. */
async function setUp(
  policy: BucketOptions,
  weights?: QueueOptions["weights"],
): Promise<Queue<string>> {
  const sluice = sluices.open();
  const bucket = sluice.bucket("downstream", policy);
  const queue = sluice.queue<string>("jobs", { bucket, weights });
  await queue.pause();
  const settings = { prefix: sluices.prefix(), policy, url: downstream.url, weights };
  const workers = startLaneWorkers(processes, WORKERS, {
    ...settings,
    concurrency: 50,
    lockMs: 30_000,
  });
  const areReady = (): boolean => workers.every(({ messages }) => messages.includes("ready"));
  await waitUntil(areReady, "the workers are ready");
  return queue;
}

/** What the workers hold at a rate, while Redis answers within 10 ms; see the queue's fetcher. */
const heldAt = (perSecond: number): number => Math.ceil(0.25 * perSecond) + WORKERS;

const ENDPOINTS = Array.from({ length: 50 }, (_, number) => `e${number}`);
const numbers = (count: number): string[] => Array.from({ length: count }, (_, at) => String(at));

const calls = (): JobCall[] => jobCalls(downstream.arrivals);
const tenantOf = ({ key }: JobCall): string => key.split(",")[0]!;
const of = (tenant: string, all: readonly JobCall[]): number =>
  all.filter((call) => tenantOf(call) === tenant).length;

describe("tenants with endpoints that share one rate", () => {
  it.each<[what: string, policy: BucketOptions]>([
    ["", { rate: "60/s" }],
    [
      ", beside limits of their own",
      { rate: "60/s", perKey: [{ rate: "45/s" }, { rate: "45/s" }] },
    ],
  ])("have one share each, whether they have fifty endpoints or one%s", async (_what, policy) => {
    const queue = await setUp(policy);
    for (const endpoint of ENDPOINTS) {
      await queue.enqueueMany(numbers(10), { key: ["acme", endpoint] });
    }
    await queue.enqueueMany(numbers(500), { key: ["other", "e0"] });
    await queue.resume();
    await waitUntil(() => downstream.arrivals.length >= 340, "most are done");

    const seen = calls().slice(40, 340);
    const perEndpoint = ENDPOINTS.map(
      (endpoint) => seen.filter(({ key }) => key === `acme,${endpoint}`).length,
    );
    console.log(
      `acme ${of("acme", seen)}, other ${of("other", seen)}; of an endpoint ${Math.min(...perEndpoint)} to ${Math.max(...perEndpoint)}`,
    );
    expect(Math.abs(of("acme", seen) - 150)).toBeLessThanOrEqual(heldAt(60));
    expect(Math.max(...perEndpoint) - Math.min(...perEndpoint)).toBeLessThanOrEqual(4);
  });

  it("share it by weight, as do the endpoints inside a tenant", async () => {
    const queue = await setUp({ rate: "60/s" }, [{ gold: 3 }, { urgent: 2 }]);
    for (const endpoint of ["urgent", "bulk"]) {
      await queue.enqueueMany(numbers(300), { key: ["gold", endpoint] });
    }
    await queue.enqueueMany(numbers(300), { key: ["plain", "bulk"] });
    await queue.resume();
    await waitUntil(() => downstream.arrivals.length >= 340, "most are done");

    const seen = calls().slice(40, 340);
    const urgent = seen.filter(({ key }) => key === "gold,urgent").length;
    console.log(`gold ${of("gold", seen)} of 300, ${urgent} of them urgent`);
    expect(Math.abs(of("gold", seen) - 225)).toBeLessThanOrEqual(heldAt(60));
    expect(Math.abs(urgent - 150)).toBeLessThanOrEqual(heldAt(60));
  });

  it("wait for a tenant that is at its own limit no longer than for one without jobs", async () => {
    const queue = await setUp({ rate: "200/s", perKey: { rate: "20/s" } });
    for (const endpoint of ENDPOINTS) {
      await queue.enqueueMany(numbers(10), { key: ["acme", endpoint] });
    }
    for (const tenant of numbers(5)) {
      await queue.enqueueMany(numbers(60), { key: [`t${tenant}`, "e0"] });
    }
    await queue.resume();
    const others = (): JobCall[] => calls().filter((call) => tenantOf(call) !== "acme");
    await waitUntil(() => others().length === 300, "the others are done");

    const lastMs = Math.max(...others().map(({ atMs }) => atMs));
    const firstMs = Math.min(...calls().map(({ atMs }) => atMs));
    const meanwhile = of(
      "acme",
      calls().filter(({ atMs }) => atMs <= lastMs),
    );
    console.log(`${meanwhile} of acme's in ${((lastMs - firstMs) / 1_000).toFixed(1)} s`);
    // Its own rate, and one more call at its edge.
    expect(meanwhile).toBeLessThanOrEqual(((lastMs - firstMs) / 1_000) * 20 + 2);
    expect(new Set(calls().map(({ key }) => key)).size).toBeGreaterThan(20);
  });
});

describe("endpoints whose jobs wait in one worker process", () => {
  it("take turns: a newer endpoint goes before the remaining jobs of an older one", async () => {
    const sluice = sluices.open();
    const bucket = sluice.bucket("one process", { rate: "50/s" });
    const queue = sluice.queue<string>("jobs", { bucket });
    const started: string[] = [];
    sluice.worker(queue, async ({ key }) => void started.push(String(key)), {
      concurrency: 100,
    });
    await queue.enqueueMany(numbers(400), { key: ["acme", "e1"] });
    await waitUntil(() => started.length >= 60, "the worker holds what it starts soon");

    const behind: number[] = [];
    for (let time = 0; time < 5; time++) {
      const job = await queue.enqueue("", { key: ["acme", `later${time}`] });
      const before = started.length;
      await job.finished();
      behind.push(started.indexOf(`acme,later${time}`) - before);
    }

    console.log(`they started behind ${behind.join(", ")} others`);
    // Four hundred of the older endpoint are pending. The newer one waits for slots that were booked before it: those of
    // one horizon, which are 5, and one call of the older key. Another starts while the job gets to the worker.
    expect(behind.toSorted((a, b) => a - b)[2]).toBeLessThanOrEqual(7);
  });
});
