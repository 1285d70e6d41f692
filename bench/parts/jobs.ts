import type { Flags } from "../flags.ts";
import { median } from "../fleet/measure.ts";
import { runLoad, type Bench } from "../fleet/run-load.ts";
import { formatNumber, rowOf, type Bound } from "../promises.ts";
import type { Table } from "../table.ts";

const CAPS = [1_000, 5_000];
const OUT_OF_REACH = 10_000_000;
const WORKERS = 4;
const JOBS_AT_ONCE = 300;

const PROMISED = {
  ofPlain: { atLeast: 0.95 },
  share: { atLeast: 0.995 },
  worstSecond: { atMost: 1.01 },
  cpuOfPlain: { atMost: 1.6 },
} as const satisfies Readonly<Record<string, Bound>>;

/** Measures jobs through `sluice.queue` and `sluice.worker`, and through BullMQ alone. */
export async function measureJobs(bench: Bench, flags: Flags): Promise<Table[]> {
  const tables: Table[] = [];
  if (flags.caps === undefined) tables.push(await measureThroughput(bench, flags));
  for (const cap of CAPS.filter((each) => flags.caps?.includes(each) ?? true)) {
    tables.push(await measureCap(bench, flags, cap));
  }
  return tables;
}

/** In turns, because a machine's speed drifts by more than the two differ; as medians, because one run may be disturbed. */
async function measureThroughput(bench: Bench, { effort }: Flags): Promise<Table> {
  const startUpSeconds = 0.5;
  const load = { cap: OUT_OF_REACH, replicas: WORKERS, callers: JOBS_AT_ONCE, startUpSeconds };
  const withSluice: number[] = [];
  const plain: number[] = [];
  for (let round = 0; round < effort.rounds; round++) {
    for (const [contender, rates] of [
      ["bullmq-jobs", plain],
      ["sluice-jobs", withSluice],
    ] as const) {
      const seconds = effort.throughputSeconds;
      const outcome = await runLoad(bench, { ...load, contender, seconds });
      rates.push(outcome.calls / outcome.seconds);
    }
  }
  const ofPlain = rowOf("jobs a second, of plain BullMQ's", median(withSluice) / median(plain), {
    bound: PROMISED.ofPlain,
  });
  return {
    title: `Jobs of ${WORKERS} workers, ${JOBS_AT_ONCE} at once each, with the cap out of reach`,
    rows: [
      {
        figure: `jobs a second, median of ${effort.rounds}`,
        values: {
          sluice: formatNumber(median(withSluice), 0),
          bullmq: formatNumber(median(plain), 0),
        },
      },
      { ...ofPlain, values: { ...ofPlain.values, bullmq: "1.000" } },
    ],
  };
}

async function measureCap(bench: Bench, { effort }: Flags, cap: number): Promise<Table> {
  const seconds = effort.seconds;
  const load = { cap, replicas: WORKERS, callers: JOBS_AT_ONCE, seconds };
  const outcome = await runLoad(bench, { ...load, contender: "sluice-jobs" });
  // At the same rate, by BullMQ's own limiter.
  const plain = await runLoad(bench, { ...load, contender: "bullmq" });
  const ofPlain = rowOf("the same, of BullMQ's with its own limiter", outcome.cpuUs / plain.cpuUs, {
    bound: PROMISED.cpuOfPlain,
    digits: 2,
  });
  const { share, worstSecond, worstTenth, fairness, cost, calls } = outcome;
  return {
    title: `${formatNumber(cap)} jobs a second, ${WORKERS} workers with ${JOBS_AT_ONCE} at once each`,
    rows: [
      rowOf("share of the cap that is used", share, { bound: PROMISED.share }),
      rowOf("jobs in the worst second, of the cap", worstSecond, {
        bound: PROMISED.worstSecond,
        digits: 4,
      }),
      rowOf("jobs in the worst 100 ms, of a tenth of the cap", worstTenth),
      rowOf("fairness between workers (Jain's index)", fairness),
      rowOf("Redis CPU a job, BullMQ's included, µs", cost.cpuUs / calls, { digits: 2 }),
      {
        figure: "CPU of a worker a job, µs",
        values: { sluice: formatNumber(outcome.cpuUs, 0), bullmq: formatNumber(plain.cpuUs, 0) },
      },
      { ...ofPlain, values: { ...ofPlain.values, bullmq: "1.00" } },
    ],
  };
}
