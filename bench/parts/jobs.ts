import type { Flags } from "../flags.ts";
import { median } from "../fleet/measure.ts";
import { runLoad, type Bench } from "../fleet/run-load.ts";
import { addSteadily } from "../limiters/bullmq.ts";
import { formatNumber, rowOf, type Bound } from "../promises.ts";
import type { Table } from "../table.ts";

const CAPS = [1_000, 5_000];
const OUT_OF_REACH = 10_000_000;
/** The rate of jobs while the CPU of a worker is measured, in jobs a second. */
const PACED = 1_000;
const WORKERS = 4;
const JOBS_AT_ONCE = 300;

const PROMISED = {
  ofPlain: { atLeast: 0.95 },
  share: { atLeast: 0.995 },
  worstSecond: { atMost: 1.01 },
  cpuOfPlain: { atMost: 1.6 },
} as const satisfies Readonly<Record<string, Bound>>;

/** Compares jobs through `sluice.queue` and `sluice.worker` with jobs through BullMQ alone. */
export async function measureJobs(bench: Bench, flags: Flags): Promise<Table[]> {
  const tables: Table[] = [];
  if (flags.caps === undefined) tables.push(await measureThroughput(bench, flags));
  for (const cap of CAPS.filter((each) => flags.caps?.includes(each) ?? true)) {
    tables.push(await measureCap(bench, flags, cap));
    if (cap === PACED) tables.push(await measureCpu(bench, flags));
  }
  return tables;
}

/**
 * Measures both alternately, because the machine's speed varies by more than their difference. Reports medians,
 * because one run may be disturbed.
 */
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
    ],
  };
}

/**
 * Measures alternately with BullMQ's worker, which gets single jobs at the same rate. A long start-up warms the code.
 */
async function measureCpu(bench: Bench, { effort }: Flags): Promise<Table> {
  const seconds = effort.throughputSeconds;
  const startUpSeconds = effort.seconds;
  const load = { cap: PACED, replicas: 1, callers: JOBS_AT_ONCE, seconds, startUpSeconds };
  const ours: number[] = [];
  const plain: number[] = [];
  for (let round = 0; round < effort.cpuRounds; round++) {
    const adding = addSteadily(bench.redisUrl, PACED);
    plain.push((await runLoad(bench, { ...load, contender: "bullmq-steady" })).cpuUs);
    await adding.stop();
    ours.push((await runLoad(bench, { ...load, contender: "sluice-jobs" })).cpuUs);
  }
  const ofPlain = rowOf("the same, of plain BullMQ's", median(ours) / median(plain), {
    bound: PROMISED.cpuOfPlain,
    digits: 2,
  });
  return {
    title: `${formatNumber(PACED)} jobs a second, one worker with ${JOBS_AT_ONCE} at once`,
    rows: [
      {
        figure: `CPU of the worker a job, median of ${effort.cpuRounds}, µs`,
        values: {
          sluice: formatNumber(median(ours), 0),
          bullmq: formatNumber(median(plain), 0),
        },
      },
      { ...ofPlain, values: { ...ofPlain.values, bullmq: "1.00" } },
    ],
  };
}
