import type { Flags } from "./flags.ts";
import { median } from "./measure.ts";
import { formatNumber } from "./promises.ts";
import { runLoad, type Bench } from "./run-load.ts";
import type { Row, Table } from "./table.ts";

const CAPS = [1_000, 5_000];
const OUT_OF_REACH = 10_000_000;
const WORKERS = 4;
const JOBS_AT_ONCE = 300;

const LEAST_OF_PLAIN = 0.95;
const LEAST_SHARE = 0.995;
const MOST_IN_WORST_SECOND = 1.01;

/** Jobs through `sluice.queue` and `sluice.worker`, and through BullMQ alone. */
export async function measureJobs(bench: Bench, flags: Flags): Promise<Table[]> {
  const tables: Table[] = [];
  if (flags.caps === undefined) tables.push(await measureThroughput(bench, flags));
  for (const cap of CAPS.filter((each) => flags.caps?.includes(each) ?? true)) {
    tables.push(await measureCap(bench, flags, cap));
  }
  return tables;
}

/** By turns, since a machine's speed drifts more than the two differ; medians, since a run may meet a hiccup. */
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
  const share = median(withSluice) / median(plain);
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
      {
        figure: "jobs a second, of plain BullMQ's",
        promise: `≥ ${LEAST_OF_PLAIN}`,
        isKept: share >= LEAST_OF_PLAIN,
        values: { sluice: formatNumber(share, 3), bullmq: "1.000" },
      },
    ],
  };
}

async function measureCap(bench: Bench, { effort }: Flags, cap: number): Promise<Table> {
  const seconds = effort.seconds;
  const load = { cap, replicas: WORKERS, callers: JOBS_AT_ONCE, seconds };
  const outcome = await runLoad(bench, { ...load, contender: "sluice-jobs" });
  const { share, worstSecond, worstTenth, fairness, cost, calls } = outcome;
  const unpromised = (figure: string, value: number, digits: number): Row => {
    return { figure, values: { sluice: formatNumber(value, digits) } };
  };
  return {
    title: `${formatNumber(cap)} jobs a second, ${WORKERS} workers with ${JOBS_AT_ONCE} at once each`,
    rows: [
      {
        figure: "share of the cap that is used",
        promise: `≥ ${LEAST_SHARE}`,
        isKept: share >= LEAST_SHARE,
        values: { sluice: formatNumber(share, 3) },
      },
      {
        figure: "jobs in the worst second, of the cap",
        promise: `≤ ${MOST_IN_WORST_SECOND}`,
        isKept: worstSecond <= MOST_IN_WORST_SECOND,
        values: { sluice: formatNumber(worstSecond, 4) },
      },
      unpromised("jobs in the worst 100 ms, of a tenth of the cap", worstTenth, 3),
      unpromised("fairness between workers (Jain's index)", fairness, 3),
      unpromised("Redis CPU a job, BullMQ's included, µs", cost.cpuUs / calls, 2),
    ],
  };
}
