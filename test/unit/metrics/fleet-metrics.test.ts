import { beforeEach, describe, expect, it, onTestFinished, vi } from "vitest";
import type { ListedQueue, Unreachable } from "../../../src/insight/overview.ts";
import { openFleetMetrics, type FleetParts } from "../../../src/insight/metrics/fleet-metrics.ts";
import type { QueueStatus } from "../../../src/queue/forecast/status.ts";
import type { BucketBrief } from "../../../src/throttle/bucket/facts/status.ts";
import { linesOf, valueOf } from "../../support/metrics/exposition.ts";

beforeEach(() => {
  vi.useFakeTimers();
  onTestFinished(() => void vi.useRealTimers());
});

interface Fleet {
  readonly buckets?: number;
  readonly queues?: number;
  readonly unreachable?: readonly Unreachable[];
  /** The queues of these numbers cannot be looked at. */
  readonly broken?: (at: number) => boolean;
}

/** A fleet of numbered buckets and queues, in pages. Bucket 7 has 7 callers. */
function openFleet({ buckets = 0, queues = 0, unreachable = [], broken = () => false }: Fleet) {
  const warnings: string[] = [];
  const bucketOf = (at: number): BucketBrief => ({
    ...({} as BucketBrief),
    name: nameOf(at),
    policy: "100/s",
    source: "code",
    generation: 1,
    coolingForMs: 0,
    shadows: [],
    waiting: { total: at, oldestMs: 0, byPriority: { critical: 0, high: 0, normal: at, low: 0 } },
  });
  const queueOf = (at: number) => ({ name: nameOf(at) }) as ListedQueue;
  const parts: FleetParts = {
    async overview({ after = "", afterQueue = "", limit }) {
      const page = pageOf(buckets, after, limit);
      const queuePage = pageOf(queues, afterQueue, limit);
      const others = { replicas: [], workers: [], outboxes: [], unreachable };
      const next = { next: page.next, nextQueue: queuePage.next };
      const found = { buckets: page.of.map(bucketOf), queues: queuePage.of.map(queueOf) };
      return { ...found, ...next, ...others };
    },
    bucketStatus: async () => undefined,
    async queueStatus(name) {
      if (broken(Number(name.slice(1)))) throw new Error("it is on fire");
      const jobs = { waiting: 1 } as QueueStatus["jobs"];
      return { ...({} as QueueStatus), name, jobs, unexplainedMs: 0, workersWanted: 1 };
    },
    logger: { warn: (_facts, message) => void warnings.push(message), error() {} },
    sluice: {},
  };
  const metrics = openFleetMetrics(parts);
  onTestFinished(() => metrics.close());
  return { metrics, warnings };
}

function nameOf(at: number): string {
  return `n${String(at).padStart(5, "0")}`;
}

function pageOf(count: number, after: string, limit: number) {
  const from = after === "" ? 0 : Number(after.slice(1)) + 1;
  const of = Array.from({ length: Math.min(limit, count - from) }, (_, at) => from + at);
  return { of, next: from + limit < count ? nameOf(of.at(-1)!) : undefined };
}

describe("the metrics of a large fleet", () => {
  it("show the thousand buckets with the most pending callers, and the callers of all others together", async () => {
    const { metrics } = openFleet({ buckets: 1_003 });
    const text = await metrics.text();
    const waitingIn = (bucket: string) =>
      valueOf(text, "sluice_bucket_waiting", { bucket, priority: "normal" });
    expect(linesOf(text, "sluice_config_info")).toHaveLength(1_000);
    expect(waitingIn(nameOf(1_002))).toBe(1_002);
    expect(waitingIn("other")).toBe(0 + 1 + 2);
  });

  it("have the first thousand queues, of however many pages", async () => {
    const { metrics } = openFleet({ buckets: 1, queues: 2_100 });
    const text = await metrics.text();
    const lines = linesOf(text, "sluice_queue_workers_wanted");
    expect(lines).toHaveLength(1_000);
    expect(lines.at(-1)).toContain(nameOf(999));
    expect(linesOf(text, "sluice_config_info")).toHaveLength(1);
  });

  it("have all buckets of more pages than one, also where there are fewer queues", async () => {
    const { metrics } = openFleet({ buckets: 2_100, queues: 3 });
    const text = await metrics.text();
    const others = Array.from({ length: 1_100 }, (_, at) => at);
    expect(valueOf(text, "sluice_bucket_waiting", { bucket: "other", priority: "normal" })).toBe(
      others.reduce((sum, each) => sum + each, 0),
    );
    expect(linesOf(text, "sluice_queue_workers_wanted")).toHaveLength(3);
  });
});

describe("a fleet that can only be read in part", () => {
  it("is exported as far as it could be read, and the error is logged", async () => {
    const { metrics, warnings } = openFleet({ queues: 3, broken: (at) => at === 1 });
    expect(linesOf(await metrics.text(), "sluice_queue_workers_wanted")).toHaveLength(2);
    expect(warnings).toEqual([expect.stringMatching(/lack .* queue "n00001": .*it is on fire$/)]);
  });

  it("does not log the error again every five seconds", async () => {
    const unreachable = [{ bucket: "api", reason: "its server is away" }];
    const { metrics, warnings } = openFleet({ unreachable });
    await metrics.text();
    expect(warnings).toEqual([expect.stringContaining('bucket "api": its server is away')]);
    await vi.advanceTimersByTimeAsync(9_000);
    expect(warnings).toHaveLength(1);
    await vi.advanceTimersByTimeAsync(6_000);
    expect(warnings).toHaveLength(2);
  });
});
