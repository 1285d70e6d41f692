import { beforeEach, describe, expect, it, onTestFinished, vi } from "vitest";
import type { ListedQueue, Unreachable } from "../../../src/insight/overview.ts";
import type { FleetParts } from "../../../src/insight/metrics/fleet-facts.ts";
import { openFleetMetrics } from "../../../src/insight/metrics/fleet-metrics.ts";
import type { QueueStatus } from "../../../src/queue/forecast/status.ts";
import type { LimitState } from "../../../src/throttle/bucket/bucket-state.ts";
import type { BucketBrief, BucketStatus } from "../../../src/throttle/bucket/facts/status.ts";
import { linesOf, valueOf } from "../../support/metrics/exposition.ts";

beforeEach(() => {
  vi.useFakeTimers();
  onTestFinished(() => void vi.useRealTimers());
});

interface Fleet {
  readonly buckets?: number;
  readonly queues?: number;
  readonly unreachable?: readonly Unreachable[];
  /** The state of each bucket with more than brief facts. */
  readonly status?: Partial<BucketStatus>;
  /** The queues of these numbers cannot be looked at. */
  readonly broken?: (at: number) => boolean;
}

/** A fleet of numbered buckets and queues, in pages. Bucket 7 has 7 callers. */
function openFleet(fleet: Fleet) {
  const { buckets = 0, queues = 0, unreachable = [], status, broken = () => false } = fleet;
  const warnings: string[] = [];
  const bucketOf = (at: number): BucketBrief => ({
    ...({} as BucketBrief),
    name: nameOf(at),
    policy: "100/s",
    source: "code",
    generation: 1,
    coolingForMs: 0,
    shadows: [],
    ...status,
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
    bucketStatus: async (name) => status && ({ ...status, name } as BucketStatus),
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

describe("the metrics of limits that adapt to latency", () => {
  const adaptive = {
    atOnce: 30,
    value: 23.5,
    min: 1,
    max: 30,
    shadow: true,
    baselineMs: 40,
    recentMs: 50,
    gradient: 0.8,
    reason: "raised",
  } as const;
  const limit = { name: "1 to 30 at once", adaptive } as LimitState;

  it("show the limit in force, the computed one, and the latencies, also of members", async () => {
    const members = [{ name: "east", limits: [limit] }] as unknown as BucketStatus["members"];
    const status = { isAdaptive: true, limits: [limit], members };
    const { metrics } = openFleet({ buckets: 1, status });

    const text = await metrics.text();

    for (const labels of [{}, { member: "east" }]) {
      const of = (name: string) =>
        valueOf(text, `sluice_adaptive_${name}`, {
          bucket: nameOf(0),
          ...labels,
          limit: "1 to 30 at once",
        });
      const values = ["limit", "computed_limit", "baseline_seconds", "latency_seconds"].map(of);
      expect(values).toEqual([30, 23.5, 0.04, 0.05]);
    }
  });

  it("omit latencies that are not measured yet", async () => {
    const calibrating = { ...limit, adaptive: { ...adaptive, baselineMs: 0, recentMs: 0 } };
    const { metrics } = openFleet({
      buckets: 1,
      status: { isAdaptive: true, limits: [calibrating] },
    });

    const text = await metrics.text();

    expect(linesOf(text, "sluice_adaptive_limit")).toHaveLength(1);
    expect(linesOf(text, "sluice_adaptive_baseline_seconds")).toEqual([]);
    expect(linesOf(text, "sluice_adaptive_latency_seconds")).toEqual([]);
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
