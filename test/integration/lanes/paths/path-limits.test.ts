import { describe, expect, it } from "vitest";
import type { BucketOptions, Queue, Sluice } from "sluice";
import { children } from "../../../support/children/child.ts";
import { jobCalls, startLaneWorkers, type JobCall } from "../../../support/jobs/lane-workers.ts";
import { realSluices } from "../../../support/setup/real-sluice.ts";
import { useDownstream } from "../../../support/servers/use-downstream.ts";
import { waitUntil } from "../../../support/async/wait-until.ts";

const WORKERS = 4;
const processes = children();
const sluices = realSluices();
const downstream = useDownstream();

const POLICY: BucketOptions = { rate: "100/s", perKey: [{ rate: "20/s" }, { rate: "4/s" }] };
const SETTINGS = { concurrency: 50, lockMs: 30_000 };

async function setUp(): Promise<{ sluice: Sluice; queue: Queue<string> }> {
  const sluice = sluices.open();
  const bucket = sluice.bucket("downstream", POLICY);
  const queue = sluice.queue<string>("jobs", { bucket });
  await queue.pause();
  const settings = { prefix: sluices.prefix(), policy: POLICY, url: downstream.url, ...SETTINGS };
  const workers = startLaneWorkers(processes, WORKERS, settings);
  const areReady = (): boolean => workers.every(({ messages }) => messages.includes("ready"));
  await waitUntil(areReady, "the workers are ready");
  return { sluice, queue };
}

const numbers = (count: number): string[] => Array.from({ length: count }, (_, at) => String(at));

/** The calls of a tenant, or of one endpoint of it. */
function callsOf(tenant: string, endpoint?: string): JobCall[] {
  return jobCalls(downstream.arrivals).filter(({ key }) =>
    endpoint === undefined ? key.split(",")[0] === tenant : key === `${tenant},${endpoint}`,
  );
}

/** How many calls more than a rate allows were within any time of them; arrivals may be 100 ms late, and so closer together. */
function excessOf(calls: readonly JobCall[], perSecond: number): number {
  const times = calls.map(({ atMs }) => atMs).toSorted((a, b) => a - b);
  let most = 0;
  for (const [from, fromMs] of times.entries()) {
    for (let to = from; to < times.length; to++) {
      const allowed = 1 + ((times[to]! - fromMs) / 1_000) * perSecond;
      most = Math.max(most, to - from + 1 - allowed);
    }
  }
  return most;
}

describe("tenants and endpoints with separate limits, over four processes", () => {
  it("keep their own limits, and others continue", async () => {
    const { queue } = await setUp();
    for (const endpoint of numbers(10)) {
      await queue.enqueueMany(numbers(30), { key: ["acme", endpoint] });
    }
    await queue.enqueueMany(numbers(20), { key: ["bolt", "0"] });
    await queue.resume();
    await waitUntil(() => callsOf("bolt").length === 20, "bolt's are done");
    await waitUntil(() => callsOf("acme").length >= 60, "some of acme's are done");

    const ofEndpoints = numbers(10).map((endpoint) => excessOf(callsOf("acme", endpoint), 4));
    console.log(
      `too many at once: of acme ${excessOf(callsOf("acme"), 20).toFixed(1)}, of an endpoint ${Math.max(...ofEndpoints).toFixed(1)}`,
    );
    // Late arrivals of four busy processes come closer together than they left.
    expect(excessOf(callsOf("acme"), 20)).toBeLessThanOrEqual(6);
    expect(Math.max(...ofEndpoints)).toBeLessThanOrEqual(3);
    expect(new Set(callsOf("acme").map(({ key }) => key)).size).toBe(10);
  });

  it("continue while one endpoint, or another tenant, may start nothing", async () => {
    const { sluice, queue } = await setUp();
    const bucket = sluice.bucket("downstream", POLICY);
    await bucket.pause({ key: ["acme", "0"] });
    await bucket.pause({ key: "stopped" });
    for (const endpoint of ["0", "1"]) {
      await queue.enqueueMany(numbers(10), { key: ["acme", endpoint] });
      await queue.enqueueMany(numbers(10), { key: ["stopped", endpoint] });
    }
    await queue.resume();
    await waitUntil(() => callsOf("acme", "1").length === 10, "acme's other endpoint is done");
    const before = jobCalls(downstream.arrivals).length;

    await bucket.resume({ key: ["acme", "0"] });
    await bucket.resume({ key: "stopped" });
    await waitUntil(() => jobCalls(downstream.arrivals).length === 40, "all are done");

    expect(before).toBe(10);
    expect(callsOf("stopped")).toHaveLength(20);
  });
});
