import process from "node:process";
import { setTimeout as sleep } from "node:timers/promises";
import { context, metrics, ROOT_CONTEXT, trace } from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import {
  AggregationTemporality,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
} from "@opentelemetry/sdk-metrics";
import {
  AlwaysOffSampler,
  AlwaysOnSampler,
  BasicTracerProvider,
  type Sampler,
} from "@opentelemetry/sdk-trace-base";
import { Redis } from "ioredis";
import { createSluice, type Bucket, type Sluice } from "sluice";
import { fleetMetrics } from "sluice/metrics";
import { createMetricProducer, instrument } from "sluice/opentelemetry";
import type { Flags } from "../flags.ts";
import { median } from "../fleet/measure.ts";
import { redisCpuUs } from "../fleet/redis-cost.ts";
import type { Bench } from "../fleet/run-load.ts";
import { formatNumber } from "../promises.ts";
import type { Row, Table } from "../table.ts";

const OUT_OF_REACH = 10_000_000;
const CALLERS = 2_000;
const TURN_MS = 75;
const WARM_UP = 10;
const BUCKETS = 1_000;
const SCRAPES = 15;
const NEVER_MS = 3_600_000;
/** The draws of each bucket before its activity is reported, and again after that report. */
const DRAWS = 25;
const REST_MS = 11_500;
/** The promised minimum for the draws with metrics ÷ the draws without them. */
const LEAST = 0.99;

/** The draws of one turn, per second of time and per second of CPU. */
interface Turn {
  readonly perSecond: number;
  readonly perCpuSecond: number;
}

/** The figures of the turns with the feature ÷ those without it. */
interface Compared extends Turn {
  /** The additional CPU time per draw. */
  readonly addedUs: number;
}

/**
 * Measures the cost of counting the calls of a process, with the cap out of reach. Two sluices of one process take
 * turns, and each turn is compared with the turn next to it. The first sluice is counted in one half of the turns, and
 * the second in the other half, because the order of creation also has an effect. Then measures a scrape of the metrics.
 */
export async function measureMetrics({ redisUrl }: Bench, { effort }: Flags): Promise<Table[]> {
  const turns = 20 * effort.rounds;
  const compareOn = (enable: Enable, run?: Run): Promise<Compared> =>
    compare(redisUrl, turns, { enable, run });
  const metricProducer = createMetricProducer();
  const reader = new PeriodicExportingMetricReader({
    exporter: new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE),
    exportIntervalMillis: NEVER_MS,
    metricProducers: [metricProducer],
  });
  const meters = new MeterProvider({ readers: [reader] });
  metrics.setGlobalMeterProvider(meters);
  const counted = await compareOn((sluice) => sluice.metrics());
  const produced = await compareOn((sluice) => instrument(sluice, { metricProducer }));
  const all = await compareOn(async (sluice) => {
    await sluice.metrics();
    instrument(sluice, { metricProducer });
  });
  const instrumented = await compareOn((sluice) => instrument(sluice));
  await meters.shutdown();
  metrics.disable();
  const traced = (sampler: Sampler): Promise<Compared> =>
    inTrace(sampler, (run) => compareOn((sluice) => instrument(sluice, { metricProducer }), run));
  const dropped = await traced(new AlwaysOffSampler());
  const sampled = await traced(new AlwaysOnSampler());
  const row = (figure: string, value: number): Row => ({
    figure,
    values: { sluice: formatNumber(value, 3) },
  });
  const promised = (figure: string, { perCpuSecond }: Turn): Row => ({
    ...row(figure, perCpuSecond),
    promise: "≥ 0.990",
    isKept: perCpuSecond >= LEAST,
  });
  return [
    {
      title: `Metrics, with the cap out of reach: ${2 * turns} turns with and as many without`,
      rows: [
        promised("draws by second of CPU, with metrics() ÷ without", counted),
        row("draws by second of time", counted.perSecond),
        promised("by CPU, with OpenTelemetry and a producer of metrics", produced),
        promised("by CPU, with both", all),
        row("by CPU, with OpenTelemetry and instruments of its API", instrumented.perCpuSecond),
        row("what that adds to a draw, µs", instrumented.addedUs),
      ],
    },
    {
      title: "Traces, with a producer of metrics, in a trace of the caller",
      rows: [
        row("draws by second of CPU, in one that is not sampled", dropped.perCpuSecond),
        row("what that adds to a draw, µs", dropped.addedUs),
        row("in one that is sampled: a span of each wait", sampled.perCpuSecond),
        row("what that adds to a draw, µs", sampled.addedUs),
      ],
    },
    await measureReports(redisUrl),
    await measureScrapes(redisUrl),
  ];
}

type Enable = (sluice: Sluice) => unknown;
type Run = <Result>(draw: () => Promise<Result>) => Promise<Result>;

/** Runs the callers inside a trace, whether it is sampled or not. The spans are not exported. */
async function inTrace<Result>(
  sampler: Sampler,
  measure: (run: Run) => Promise<Result>,
): Promise<Result> {
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
  trace.setGlobalTracerProvider(new BasicTracerProvider({ sampler }));
  const request = trace.getTracer("bench").startSpan("request");
  const found = await measure((draw) => context.with(trace.setSpan(ROOT_CONTEXT, request), draw));
  request.end();
  for (const api of [context, trace]) api.disable();
  return found;
}

interface Comparison {
  readonly enable: Enable;
  readonly run?: Run | undefined;
}

/** Returns the median of all turns with the feature ÷ those without it. */
async function compare(redis: string, turns: number, given: Comparison): Promise<Compared> {
  const found = [
    await takeTurns(redis, { at: 0, turns, ...given }),
    await takeTurns(redis, { at: 1, turns, ...given }),
  ];
  const ratioOf = (what: keyof Turn): number =>
    Math.sqrt(
      median(found[0]!.map((turn) => turn[what])) * median(found[1]!.map((turn) => turn[what])),
    );
  const added = found.map((each) => median(each.map(({ addedUs }) => addedUs)));
  return {
    perSecond: ratioOf("perSecond"),
    perCpuSecond: ratioOf("perCpuSecond"),
    addedUs: (added[0]! + added[1]!) / 2,
  };
}

/** Returns, for each turn, the result of the counted sluice ÷ that of the other sluice. */
async function takeTurns(
  redis: string,
  { at: counted, turns, enable, run = (draw) => draw() }: Comparison & { at: 0 | 1; turns: number },
): Promise<Compared[]> {
  const opened = ["a", "b"].map((prefix) => createSluice({ redis, prefix }));
  await enable(opened[counted]!);
  const rate = `${OUT_OF_REACH}/s` as const;
  const [withThem, without] = [counted, 1 - counted].map((at) =>
    opened[at]!.bucket("bench", { rate }),
  );
  const ratios: Compared[] = [];
  for (let turn = -WARM_UP; turn < turns; turn += 1) {
    const isFirst = turn % 2 === 0;
    const before = isFirst ? undefined : await run(() => drawFor(without!));
    const own = await run(() => drawFor(withThem!));
    const other = before ?? (await run(() => drawFor(without!)));
    if (turn < 0) continue;
    ratios.push({
      perSecond: own.perSecond / other.perSecond,
      perCpuSecond: own.perCpuSecond / other.perCpuSecond,
      addedUs: 1_000_000 / own.perCpuSecond - 1_000_000 / other.perCpuSecond,
    });
  }
  await Promise.all(opened.map((each) => each.close()));
  return ratios;
}

async function drawFor(bucket: Bucket): Promise<Turn> {
  const untilMs = performance.now() + TURN_MS;
  const sinceMs = performance.now();
  const since = process.cpuUsage();
  let draws = 0;
  const loop = async (): Promise<void> => {
    while (performance.now() < untilMs) {
      await bucket.draw();
      draws += 1;
    }
  };
  await Promise.all(Array.from({ length: CALLERS }, loop));
  const { user, system } = process.cpuUsage(since);
  const tookMs = performance.now() - sinceMs;
  return {
    perSecond: (draws * 1_000) / tookMs,
    perCpuSecond: (draws * 1_000_000) / (user + system),
  };
}

/**
 * Measures the cost of reporting all buckets, in this process and in Redis, ÷ the cost of their draws in one second.
 * A report follows ten seconds after the draws, because the rate of the last ten seconds changes then. Nothing else
 * happens at that time.
 */
async function measureReports(url: string): Promise<Table> {
  const redis = new Redis(url);
  const sluice = createSluice({ redis: url, prefix: "reported" });
  const { text } = await metricsOf(sluice);
  const buckets = Array.from({ length: BUCKETS }, (_, at) =>
    sluice.bucket(`b${at}`, { rate: "1000/s" }),
  );
  const drawAll = (): Promise<unknown> => Promise.all(buckets.map((bucket) => bucket.draw()));
  await drawAll();
  const started = await cpuUs(redis);
  for (let draw = 0; draw < DRAWS; draw += 1) await drawAll();
  const drawn = await cpuUs(redis);
  await untilTold(sluice);
  await sleep(REST_MS / 4);
  const [before, reportsBefore] = [await cpuUs(redis), reportsIn(await text())];
  await sleep(REST_MS);
  const [after, reportsAfter] = [await cpuUs(redis), reportsIn(await text())];
  await sluice.close();
  await redis.quit();
  const reportUs = (after - before) / (reportsAfter - reportsBefore);
  const ratio = reportUs / (drawn - started);
  return {
    title: `A report of ${BUCKETS} buckets, CPU of the process and of Redis`,
    rows: [
      {
        figure: `of the draws of a second, ${DRAWS} a bucket`,
        promise: "≤ 0.01",
        isKept: ratio <= 0.01,
        values: { sluice: formatNumber(ratio, 4) },
      },
      { figure: "µs a bucket", values: { sluice: formatNumber(reportUs / BUCKETS, 1) } },
    ],
  };
}

async function metricsOf(sluice: Sluice): Promise<{ readonly text: () => Promise<string> }> {
  const metrics = await sluice.metrics();
  return { text: () => metrics.text() };
}

function reportsIn(text: string): number {
  const found = /^sluice_store_duration_seconds_count\{command="report"\} (\d+)$/m.exec(text);
  return Number(found?.[1] ?? 0);
}

async function cpuUs(redis: Redis): Promise<number> {
  const { user, system } = process.cpuUsage();
  return user + system + (await redisCpuUs(redis));
}

async function measureScrapes(redis: string): Promise<Table> {
  const sluice = createSluice({ redis, prefix: "scraped" });
  const own = await sluice.metrics();
  const fleet = fleetMetrics(sluice);
  await Promise.all(
    Array.from({ length: BUCKETS }, (_, at) => sluice.bucket(`b${at}`, { rate: "1000/s" }).draw()),
  );
  await untilTold(sluice);
  const row = async (figure: string, scrape: () => Promise<unknown>): Promise<Row> => {
    const tookMs: number[] = [];
    for (let each = 0; each < SCRAPES; each += 1) {
      const sinceMs = performance.now();
      await scrape();
      tookMs.push(performance.now() - sinceMs);
    }
    const worst = median(tookMs);
    return {
      figure,
      promise: "≤ 50",
      isKept: worst <= 50,
      values: { sluice: `${formatNumber(worst, 1)} (first ${formatNumber(tookMs[0]!, 1)})` },
    };
  };
  const rows = [
    await row("of a process's own, median, ms", () => own.text()),
    await row("of the fleet, median, ms", () => fleet.text()),
  ];
  await sluice.close();
  return { title: `A scrape of ${BUCKETS} buckets`, rows };
}

async function untilTold(sluice: Sluice): Promise<void> {
  while ((await sluice.overview({ limit: BUCKETS })).buckets.length < BUCKETS);
}
