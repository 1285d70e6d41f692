import {
  AggregationTemporality,
  DataPointType,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
  type HistogramMetricData,
  type MetricData,
} from "@opentelemetry/sdk-metrics";
import { Registry } from "prom-client";
import { afterEach, describe, expect, it } from "vitest";
import { budget, concurrency, leakyBucket } from "sluice";
import { fleetMetrics } from "sluice/metrics";
import { createMetricProducer, instrument } from "sluice/opentelemetry";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { linesOf, valueOf } from "../../support/metrics/exposition.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const opened: MeterProvider[] = [];
afterEach(() => Promise.all(opened.splice(0).map((provider) => provider.shutdown())));

/** A producer, and what a reader of the SDK exports that has it. */
function readProducer(temporality = AggregationTemporality.CUMULATIVE) {
  const metricProducer = createMetricProducer();
  const exporter = new InMemoryMetricExporter(temporality);
  const reader = new PeriodicExportingMetricReader({
    exporter,
    exportIntervalMillis: 3_600_000,
    metricProducers: [metricProducer],
  });
  const provider = new MeterProvider({ readers: [reader] });
  opened.push(provider);
  const read = async () => {
    exporter.reset();
    await provider.forceFlush();
    const [exported] = exporter.getMetrics();
    const metrics = (exported?.scopeMetrics ?? []).flatMap((one) => one.metrics);
    return { resource: exported?.resource, metrics };
  };
  return { metricProducer, read };
}

const find = (metrics: readonly MetricData[], name: string) =>
  metrics.find(({ descriptor }) => descriptor.name === name)!;

/** All points of a histogram, as Prometheus writes them: labels, sums of parts, sum and count. */
function expectAsInText(
  text: string,
  metric: string,
  { dataPoints }: HistogramMetricData,
  labels: Readonly<Record<string, string>>,
): void {
  expect(linesOf(text, `${metric}_count`)).toHaveLength(dataPoints.length);
  for (const { attributes, value } of dataPoints) {
    const ofText = Object.fromEntries(
      Object.entries(labels).map(([label, name]) => [label, String(attributes[name])]),
    );
    expect(valueOf(text, `${metric}_count`, ofText)).toBe(value.count);
    expect(valueOf(text, `${metric}_sum`, ofText)).toBe(value.sum);
    let upTo = 0;
    value.buckets.boundaries.forEach((bound, part) => {
      upTo += value.buckets.counts[part]!;
      expect(valueOf(text, `${metric}_bucket`, { ...ofText, le: String(bound) })).toBe(upTo);
    });
    expect(upTo + value.buckets.counts.at(-1)!).toBe(value.count);
  }
}

describe("createMetricProducer()", () => {
  it("returns the same metrics as Prometheus' text for two sluices, one of them closed", async () => {
    const { metricProducer, read } = readProducer();
    const [one, other] = [sluices.open(), sluices.open()];
    const register = new Registry();
    await one.metrics({ register });
    for (const sluice of [one, other]) instrument(sluice, { metricProducer });
    await other.metrics({ register });
    for (const sluice of [one, other]) {
      const bucket = sluice.bucket("api", { rate: "100/s", burst: 3, maxWaiting: 5 });
      await Promise.all([bucket.draw(), bucket.draw({ priority: "high" }), bucket.draw()]);
      await rejectionOf(bucket.draw({ cost: 7 }));
    }
    await one.close();

    const whileOpen = { text: await register.metrics(), ...(await read()) };
    await other.close();
    const closed = { text: await register.metrics(), ...(await read()) };

    const slots = find(closed.metrics, "sluice.bucket.slots");
    expect(find(whileOpen.metrics, "sluice.bucket.slots").dataPoints).toMatchObject(
      slots.dataPoints.map(({ attributes, value }) => ({ attributes, value })),
    );
    for (const { attributes, value } of slots.dataPoints) {
      const outcome = String(attributes["sluice.outcome"]);
      const labels = { bucket: "api", outcome };
      expect(valueOf(closed.text, "sluice_bucket_slots_total", labels)).toBe(value);
    }
    const refused = { "sluice.bucket": "api", "sluice.outcome": "refused" };
    expect(slots.dataPoints).toContainEqual(
      expect.objectContaining({ attributes: refused, value: 2 }),
    );
    const waits = (metrics: readonly MetricData[]) =>
      find(metrics, "sluice.bucket.wait") as HistogramMetricData;
    const asks = find(closed.metrics, "sluice.store.duration") as HistogramMetricData;
    const ofWaits = { bucket: "sluice.bucket", priority: "sluice.priority" };
    for (const { text: ofText, metrics } of [whileOpen, closed]) {
      expectAsInText(ofText, "sluice_bucket_wait_seconds", waits(metrics), ofWaits);
    }
    expect(waits(closed.metrics).dataPoints.map(({ value }) => value.count)).toEqual([2, 4]);
    const ofAsks = { command: "sluice.command" };
    expectAsInText(closed.text, "sluice_store_duration_seconds", asks, ofAsks);
    expect(closed.resource?.attributes).toHaveProperty("service.name");
  });

  it("returns cumulative values since its creation, also to a reader that asks for deltas", async () => {
    const beforeMs = Date.now();
    const { metricProducer, read } = readProducer(AggregationTemporality.DELTA);
    const sluice = sluices.open();
    instrument(sluice, { metricProducer });
    const bucket = sluice.bucket("api", { rate: "100/s", burst: 5 });

    const nothing = await read();
    await bucket.tryDraw();
    const first = await read();
    await bucket.tryDraw();
    const second = await read();

    expect(nothing.metrics).toEqual([]);
    const points = [first, second].map(({ metrics }) => {
      const slots = find(metrics, "sluice.bucket.slots");
      expect(slots.aggregationTemporality).toBe(AggregationTemporality.CUMULATIVE);
      expect(slots.dataPointType).toBe(DataPointType.SUM);
      return slots.dataPoints[0]!;
    });
    expect(points.map(({ value }) => value)).toEqual([1, 2]);
    const msOf = ([seconds, nanoseconds]: readonly [number, number]) =>
      seconds * 1_000 + nanoseconds / 1_000_000;
    expect(points[0]!.startTime).toEqual(points[1]!.startTime);
    const times = [beforeMs, ...points.flatMap(({ startTime }) => msOf(startTime))];
    expect(times).toEqual(times.toSorted((a, b) => a - b));
    expect(msOf(points[1]!.endTime)).toBeGreaterThanOrEqual(msOf(points[0]!.endTime));
  });

  it("returns the same gauges of the fleet as Prometheus' text, if it is asked for them", async () => {
    const { metricProducer, read } = readProducer();
    const [service, operator] = [sluices.open(), sluices.open()];
    const limits = [
      budget({ unit: "usd", amount: 10, per: "year" }),
      concurrency("auto", { initial: 4, max: 9 }),
    ];
    await service.bucket("llm", { limits }).run(() => {}, { cost: { usd: 2 } });
    const pool = service.pool("gpt", {
      members: { east: { limits: [leakyBucket("1/h", { burst: 4 })] }, west: { rate: "1/h" } },
    });
    await pool.draw();
    await pool.drainMember("west");
    await waitUntil(
      async () => (await operator.overview({ brief: true })).buckets.length === 2,
      "both buckets are reported",
    );
    const fleet = fleetMetrics(operator);
    instrument(operator, { metricProducer, fleet: true });

    const { metrics } = await read();
    const text = await fleet.text();

    const gauges = metrics.filter(({ dataPointType }) => dataPointType === DataPointType.GAUGE);
    const values = Object.fromEntries(
      gauges.flatMap(({ descriptor, dataPoints }) =>
        dataPoints.map(({ attributes, value }) => {
          const own = Object.values(attributes).join(" ");
          return [`${descriptor.name} ${own}`, value];
        }),
      ),
    );
    expect(values).toMatchObject({
      "sluice.budget.amount llm 10/year usd": 10,
      "sluice.budget.spent llm 10/year usd": 2,
      "sluice.budget.reserved llm 10/year usd": 0,
      "sluice.pool.member.state gpt east open": 1,
      "sluice.pool.member.state gpt west drained": 1,
      "sluice.pool.member.room gpt east": 0.75,
      "sluice.adaptive.limit llm 1 to 9 at once": 4,
      "sluice.adaptive.computed_limit llm 1 to 9 at once": 4,
    });
    const ofLimit = { bucket: "llm", limit: "1 to 9 at once" };
    expect(valueOf(text, "sluice_adaptive_limit", ofLimit)).toBe(4);
    const inText = [
      "sluice_budget_amount",
      "sluice_budget_spent",
      "sluice_budget_reserved",
      "sluice_budget_granted",
      "sluice_budget_reset_seconds",
      "sluice_pool_member_state",
      "sluice_pool_member_room_ratio",
      "sluice_adaptive_limit",
      "sluice_adaptive_computed_limit",
    ];
    const count = inText.flatMap((name) => linesOf(text, name)).length;
    expect(Object.keys(values)).toHaveLength(count);
  });

  it("is refused without a valid sluice, and for a sluice that already has one", () => {
    const sluice = sluices.open();
    const refused = (option: string) =>
      expect.objectContaining({ code: "ERR_INVALID_OPTION", option });
    const metricProducer = createMetricProducer();

    for (const wrong of [{ ...metricProducer }, "producer", null]) {
      const options = { metricProducer: wrong } as never;
      expect(() => instrument(sluice, options)).toThrow(refused("metricProducer"));
    }
    expect(() => instrument(sluice, { metricProducers: [metricProducer] } as never)).toThrow(
      refused("metricProducers"),
    );
    instrument(sluice, { metricProducer });
    instrument(sluice, { metricProducer });
    instrument(sluice);
    const another = { metricProducer: createMetricProducer() };
    expect(() => instrument(sluice, another)).toThrow(refused("metricProducer"));
  });
});
