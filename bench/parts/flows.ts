import { setTimeout as pause } from "node:timers/promises";
import { createSluice, type Queue } from "sluice";
import type { Flags } from "../flags.ts";
import { median } from "../fleet/measure.ts";
import type { Bench } from "../fleet/run-load.ts";
import { formatNumber, rowOf } from "../promises.ts";
import type { Table } from "../table.ts";

const JOBS = 9_999;
const AT_ONCE = 300;
const LOOK_EVERY_MS = 5;
const BOUND = { atLeast: 0.65 } as const;

/** Stores jobs, and returns when all are stored. */
type Store = (queue: Queue<number>) => Promise<unknown>;

const SHAPES: Readonly<Record<"plain" | "fanOut" | "fanIn", Store>> = {
  plain: (queue) => queue.enqueueMany(dataOf(JOBS + 1)),
  async fanOut(queue) {
    const root = await queue.enqueue(0);
    await queue.enqueueMany(dataOf(JOBS), { after: [root] });
  },
  fanIn: (queue) => queue.enqueueGroup(dataOf(JOBS), { then: { data: 0 } }),
};

/** Compares jobs of flows with plain jobs: from the first `enqueue` until the last job has run, in one process. */
export async function measureFlows(bench: Bench, { effort }: Flags): Promise<Table[]> {
  const rates = { plain: [] as number[], fanOut: [] as number[], fanIn: [] as number[] };
  for (let round = 0; round < effort.rounds; round++) {
    for (const shape of ["plain", "fanOut", "fanIn"] as const) {
      rates[shape].push(await runAll(bench, SHAPES[shape]));
    }
  }
  const plain = median(rates.plain);
  const row = (figure: string, of: readonly number[]) =>
    rowOf(`${figure}, of plain jobs`, median(of) / plain, { bound: BOUND });
  return [
    {
      title: `A flow of ${formatNumber(JOBS + 1)} jobs, stored and run by one process`,
      rows: [
        rowOf("plain jobs a second", plain, { digits: 0 }),
        row(`1 job with ${formatNumber(JOBS)} children`, rates.fanOut),
        row(`${formatNumber(JOBS)} jobs with a final job`, rates.fanIn),
      ],
    },
  ];
}

/** Returns the jobs a second. */
async function runAll({ redis, redisUrl }: Bench, store: Store): Promise<number> {
  await redis.flushall();
  await using sluice = createSluice({ redis: redisUrl });
  const bucket = sluice.bucket("flows", { rate: "10000000/s" });
  const queue = sluice.queue<number>("flows", { bucket });
  let ran = 0;
  sluice.worker(queue, () => void (ran += 1), { concurrency: AT_ONCE });
  const beganMs = performance.now();
  await store(queue);
  while (ran < JOBS + 1) await pause(LOOK_EVERY_MS);
  return ((JOBS + 1) / (performance.now() - beganMs)) * 1_000;
}

function dataOf(count: number): number[] {
  return Array.from({ length: count }, (_, index) => index);
}
