import process from "node:process";
import { metrics } from "@opentelemetry/api";
import {
  AggregationTemporality,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
} from "@opentelemetry/sdk-metrics";
import { createSluice, type Bucket, type Sluice } from "sluice";
import { fleetMetrics } from "sluice/metrics";
import { instrument } from "sluice/opentelemetry";
import type { Flags } from "../flags.ts";
import { median } from "../fleet/measure.ts";
import type { Bench } from "../fleet/run-load.ts";
import { formatNumber } from "../promises.ts";
import type { Row, Table } from "../table.ts";

const OUT_OF_REACH = 10_000_000;
const CALLERS = 2_000;
const TURN_MS = 150;
const WARM_UP = 10;
const BUCKETS = 1_000;
const SCRAPES = 15;
const NEVER_MS = 3_600_000;

/** Draws in one turn, by second of time and by second of CPU. */
interface Turn {
  readonly perSecond: number;
  readonly perCpuSecond: number;
}

/**
 * What it costs that the calls of a process are counted, with the cap out of reach: two sluices of one process take turns,
 * and each turn is compared with the one beside it; once with the first of them counted, and once with the second, since
 * it also matters which was made first. Then what a scrape takes.
 */
export async function measureMetrics({ redisUrl }: Bench, { effort }: Flags): Promise<Table[]> {
  const turns = 20 * effort.rounds;
  const counted = await compare(redisUrl, turns, (sluice) => sluice.metrics());
  const reader = new PeriodicExportingMetricReader({
    exporter: new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE),
    exportIntervalMillis: NEVER_MS,
  });
  const meters = new MeterProvider({ readers: [reader] });
  metrics.setGlobalMeterProvider(meters);
  const instrumented = await compare(redisUrl, turns, instrument);
  await meters.shutdown();
  metrics.disable();
  const row = (figure: string, ratio: number): Row => ({
    figure,
    values: { sluice: formatNumber(ratio, 3) },
  });
  return [
    {
      title: `Metrics, with the cap out of reach: ${2 * turns} turns with and as many without`,
      rows: [
        {
          ...row("draws by second of CPU, with metrics ÷ without", counted.perCpuSecond),
          promise: "≥ 0.990",
          isKept: counted.perCpuSecond >= 0.99,
        },
        row("draws by second of time", counted.perSecond),
        row(
          "draws by second of CPU, with OpenTelemetry and its metrics SDK ÷ without",
          instrumented.perCpuSecond,
        ),
      ],
    },
    await measureScrapes(redisUrl),
  ];
}

type Enable = (sluice: Sluice) => unknown;

/** The median of all turns with what is enabled, ÷ those without. */
async function compare(redisUrl: string, turns: number, enable: Enable): Promise<Turn> {
  const found = [
    await takeTurns(redisUrl, { at: 0, turns, enable }),
    await takeTurns(redisUrl, { at: 1, turns, enable }),
  ];
  const ratioOf = (what: keyof Turn): number =>
    Math.sqrt(
      median(found[0]!.map((turn) => turn[what])) * median(found[1]!.map((turn) => turn[what])),
    );
  return { perSecond: ratioOf("perSecond"), perCpuSecond: ratioOf("perCpuSecond") };
}

/** What each turn of the sluice that is counted came to, ÷ that of the other. */
async function takeTurns(
  redis: string,
  { at: counted, turns, enable }: { at: 0 | 1; turns: number; enable: Enable },
): Promise<Turn[]> {
  const opened = ["a", "b"].map((prefix) => createSluice({ redis, prefix }));
  await enable(opened[counted]!);
  const rate = `${OUT_OF_REACH}/s` as const;
  const [withThem, without] = [counted, 1 - counted].map((at) =>
    opened[at]!.bucket("bench", { rate }),
  );
  const ratios: Turn[] = [];
  for (let turn = -WARM_UP; turn < turns; turn += 1) {
    const isFirst = turn % 2 === 0;
    const before = isFirst ? undefined : await drawFor(without!);
    const own = await drawFor(withThem!);
    const other = before ?? (await drawFor(without!));
    if (turn < 0) continue;
    ratios.push({
      perSecond: own.perSecond / other.perSecond,
      perCpuSecond: own.perCpuSecond / other.perCpuSecond,
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
