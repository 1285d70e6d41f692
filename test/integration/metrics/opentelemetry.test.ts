import { context, metrics, ROOT_CONTEXT, trace, TraceFlags } from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import {
  AggregationTemporality,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
  type HistogramMetricData,
  type MetricData,
} from "@opentelemetry/sdk-metrics";
import {
  BasicTracerProvider,
  InMemorySpanExporter,
  SimpleSpanProcessor,
} from "@opentelemetry/sdk-trace-base";
import * as conventions from "@opentelemetry/semantic-conventions/incubating";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { budget } from "sluice";
import { instrument } from "sluice/opentelemetry";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const spans = new InMemorySpanExporter();
const exporter = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE);
const reader = new PeriodicExportingMetricReader({ exporter, exportIntervalMillis: 3_600_000 });
const meters = new MeterProvider({ readers: [reader] });
const tracers = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(spans)] });

beforeAll(() => {
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
  trace.setGlobalTracerProvider(tracers);
  metrics.setGlobalMeterProvider(meters);
});
afterEach(() => spans.reset());
afterAll(async () => {
  await meters.shutdown();
  await tracers.shutdown();
  for (const api of [context, trace, metrics]) api.disable();
});

async function measured(): Promise<readonly MetricData[]> {
  exporter.reset();
  await meters.forceFlush();
  return exporter
    .getMetrics()
    .flatMap(({ scopeMetrics }) => scopeMetrics.flatMap((scope) => scope.metrics));
}

const waits = () => spans.getFinishedSpans().filter(({ name }) => name === "sluice.wait");

describe("instrument()", () => {
  it("reports the balances of budgets until the sluice closes, then 0, if it is asked for the fleet", async () => {
    const sluice = sluices.open();
    const limits = [budget({ unit: "usd", amount: 10, per: "year" })];
    await sluice.bucket("llm", { limits }).draw({ cost: { usd: 2 } });
    await waitUntil(
      async () => (await sluice.overview({ brief: true })).buckets.length === 1,
      "the bucket is reported",
    );
    instrument(sluice, { fleet: true });
    const spent = async () =>
      (await measured()).find(({ descriptor }) => descriptor.name === "sluice.budget.spent");

    const open = await spent();
    await sluice.close();
    const closed = await spent();

    const attributes = { "sluice.bucket": "llm", "sluice.limit": "10/year usd" };
    expect(open?.dataPoints).toMatchObject([{ value: 2, attributes }]);
    expect(closed?.dataPoints).toMatchObject([{ value: 0, attributes }]);
  });

  it("makes a span of each wait that a limit caused, in its caller's trace", async () => {
    const sluice = sluices.open();
    instrument(sluice);
    const bucket = sluice.bucket("api", { rate: "10/s", burst: 2 });
    await bucket.draw();
    await bucket.draw();
    spans.reset();
    const request = trace.getTracer("test").startSpan("request");

    await context.with(trace.setSpan(ROOT_CONTEXT, request), () => bucket.draw());

    const [wait, ...others] = waits();
    expect(others).toEqual([]);
    expect(wait!.attributes).toMatchObject({
      "sluice.bucket": "api",
      "sluice.limit": "10/s with a burst of 2",
      "sluice.priority": "normal",
    });
    expect(wait!.spanContext().traceId).toBe(request.spanContext().traceId);
    expect(wait!.parentSpanContext?.spanId).toBe(request.spanContext().spanId);
    expect(wait!.duration[0] + wait!.duration[1] / 1e9).toBeGreaterThan(0.01);
    request.end();
  });

  it("states in the span why a call was rejected", async () => {
    const sluice = sluices.open();
    instrument(sluice);
    const bucket = sluice.bucket("api", { rate: "1/h", burst: 2 });
    await bucket.pause();
    const request = trace.getTracer("test").startSpan("request");

    await context.with(trace.setSpan(ROOT_CONTEXT, request), () =>
      rejectionOf(bucket.draw({ maxWaitMs: 20 })),
    );

    const [wait] = waits();
    expect(wait!.attributes).toMatchObject({
      "sluice.bucket": "api",
      "error.type": "ERR_WAIT_TOO_LONG",
    });
    expect(wait!.status.code).toBe(2);
    request.end();
    await bucket.resume();
  });

  it("traces no wait outside of a recorded trace", async () => {
    const sluice = sluices.open();
    instrument(sluice);
    const bucket = sluice.bucket("api", { rate: "100/s", burst: 2 });
    const jobs = sluice.queue<string>("mail", { bucket });
    const dropped = trace.setSpanContext(ROOT_CONTEXT, {
      traceId: "1".repeat(32),
      spanId: "2".repeat(16),
      traceFlags: TraceFlags.NONE,
    });

    await Promise.all([1, 2, 3].map(() => bucket.draw()));
    await context.with(dropped, async () => {
      await Promise.all([1, 2, 3].map(() => bucket.draw()));
      await jobs.enqueueMany(["a", "b", "c"], (key) => ({ key }));
    });
    const done: string[] = [];
    sluice.worker(jobs, async ({ data }) => void done.push(data));

    await waitUntil(() => done.length === 3, "all are done");
    expect(waits()).toEqual([]);
  });

  it("links the wait of a job to its producer, also in another process", async () => {
    const [producer, consumer] = [sluices.open(), sluices.open()];
    for (const sluice of [producer, consumer]) instrument(sluice);
    const open = (sluice: typeof producer) => {
      const bucket = sluice.bucket("mail", { rate: "10/s" });
      return sluice.queue<string>("mail", { bucket });
    };
    const jobs = open(producer);
    const request = trace.getTracer("test").startSpan("request");
    await context.with(trace.setSpan(ROOT_CONTEXT, request), () =>
      jobs.enqueueMany(["a", "b", "c"], (key) => ({ key })),
    );
    await jobs.enqueue("untraced");
    const done: string[] = [];

    consumer.worker(open(consumer), async ({ data }) => void done.push(data));

    await waitUntil(() => done.length === 4, "all are done");
    const linked = waits().filter(({ links }) => links.length > 0);
    expect(linked.length).toBeGreaterThan(1);
    for (const { links } of linked) {
      const { traceId, spanId } = request.spanContext();
      expect(links).toMatchObject([{ context: { traceId, spanId, isRemote: true } }]);
    }
    request.end();
  });

  it("measures jobs with the names and bounds of the conventions", async () => {
    const sluice = sluices.open();
    instrument(sluice);
    const bucket = sluice.bucket("sent", { rate: "1000/s" });
    const queue = sluice.queue<number>("sent", { bucket, defaults: { attempts: 1 } });
    await queue.enqueueMany([1, 2, 3]);
    const ended: number[] = [];
    const worker = sluice.worker(queue, async ({ data }) => {
      if (data === 2) throw new TypeError("no");
    });
    worker.on("done", ({ job }) => ended.push(job.data));
    worker.on("dead", ({ job }) => ended.push(job.data));
    await waitUntil(() => ended.length === 3, "all have ended");

    const found = await measured();

    const of = (name: string) =>
      found
        .find(({ descriptor }) => descriptor.name === name)!
        .dataPoints.filter(
          ({ attributes }) => attributes[conventions.ATTR_MESSAGING_DESTINATION_NAME] === "sent",
        );
    const common = {
      [conventions.ATTR_MESSAGING_SYSTEM]: "sluice",
      [conventions.ATTR_MESSAGING_DESTINATION_NAME]: "sent",
    };
    const process = { ...common, [conventions.ATTR_MESSAGING_OPERATION_NAME]: "process" };
    const enqueue = { ...common, [conventions.ATTR_MESSAGING_OPERATION_NAME]: "enqueue" };
    expect(of(conventions.METRIC_MESSAGING_CLIENT_SENT_MESSAGES)).toMatchObject([
      { attributes: enqueue, value: 3 },
    ]);
    expect(of(conventions.METRIC_MESSAGING_CLIENT_CONSUMED_MESSAGES)).toMatchObject([
      { attributes: process, value: 3 },
    ]);
    expect(of(conventions.METRIC_MESSAGING_CLIENT_OPERATION_DURATION)).toMatchObject([
      {
        attributes: {
          ...enqueue,
          [conventions.ATTR_MESSAGING_OPERATION_TYPE]:
            conventions.MESSAGING_OPERATION_TYPE_VALUE_SEND,
        },
        value: { count: 1 },
      },
    ]);
    const handled = of(conventions.METRIC_MESSAGING_PROCESS_DURATION);
    const failed = { ...process, [conventions.ATTR_ERROR_TYPE]: "TypeError" };
    expect(handled.map(({ attributes }) => attributes)).toEqual(
      expect.arrayContaining([process, failed]),
    );
    expect(handled).toHaveLength(2);
    const { value } = (handled as HistogramMetricData["dataPoints"])[0]!;
    expect(value.buckets.boundaries).toEqual([
      0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10,
    ]);
  });

  it("counts calls once beside the metrics of Prometheus", async () => {
    const sluice = sluices.open();
    const text = await sluice.metrics();
    instrument(sluice);
    instrument(sluice);
    const bucket = sluice.bucket("both", { rate: "100/s", burst: 5 });
    await bucket.draw({ priority: "high" });
    await bucket.tryDraw();

    const found = await measured();

    const slots = found.find(({ descriptor }) => descriptor.name === "sluice.bucket.slots")!;
    expect(slots.dataPoints).toContainEqual(
      expect.objectContaining({
        attributes: { "sluice.bucket": "both", "sluice.outcome": "granted" },
        value: 2,
      }),
    );
    const units = found.map(({ descriptor }) => descriptor.unit);
    expect(units).not.toContain("ms");
    expect(await text.text()).toContain(
      'sluice_bucket_slots_total{bucket="both",outcome="granted"} 2',
    );
  });

  it("refuses a value that is not a sluice", () => {
    expect(() => instrument({} as never)).toThrow(
      expect.objectContaining({ code: "ERR_INVALID_OPTION", option: "sluice" }),
    );
  });
});
