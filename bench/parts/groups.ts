import { Queue as GroupQueue, Worker as GroupWorker } from "groupmq";
import { Redis } from "ioredis";
import { createSluice } from "sluice";
import type { Flags } from "../flags.ts";
import { watchRedisCost } from "../fleet/redis-cost.ts";
import type { Bench } from "../fleet/run-load.ts";
import { formatNumber } from "../promises.ts";
import type { Table } from "../table.ts";

const GROUPS = 100;
const CONCURRENCY = 100;
const OUT_OF_REACH = "1000000/s";
const JOBS_PER_SECOND = 2_000;

interface Done {
  readonly perSecond: number;
  readonly redisUs: number;
  readonly nodeUs: number;
}

type Contender = (redisUrl: string, jobs: number, onDone: () => void) => Promise<Started>;
interface Started {
  /** Starts the worker. */
  begin(): void;
  end(): Promise<void>;
}

/**
 * Measures jobs of many groups with the cap out of reach. Compares lanes with GroupMQ, which runs the jobs of a group
 * one by one.
 */
export async function measureGroups(bench: Bench, flags: Flags): Promise<Table[]> {
  if (!flags.contenders.includes("sluice")) return [];
  const jobs = JOBS_PER_SECOND * flags.effort.throughputSeconds;
  const ours = await run(bench, withSluice, jobs);
  const theirs = await run(bench, withGroupMq, jobs);
  const row = (figure: string, of: (done: Done) => number, digits: number) => ({
    figure,
    values: { sluice: formatNumber(of(ours), digits), groupmq: formatNumber(of(theirs), digits) },
  });
  return [
    {
      title: `${formatNumber(jobs)} jobs of ${GROUPS} groups, one worker with ${CONCURRENCY} at once`,
      rows: [
        row("jobs a second", ({ perSecond }) => perSecond, 0),
        row("Redis CPU a job, µs", ({ redisUs }) => redisUs, 0),
        row("CPU of the process a job, µs", ({ nodeUs }) => nodeUs, 0),
      ],
    },
  ];
}

async function run({ redis, redisUrl }: Bench, contender: Contender, jobs: number): Promise<Done> {
  await redis.flushall();
  let done = 0;
  let onAll = (): void => {};
  const all = new Promise<void>((resolve) => (onAll = resolve));
  const started = await contender(redisUrl, jobs, () => {
    done += 1;
    if (done === jobs) onAll();
  });
  const costSince = await watchRedisCost(redis);
  const [startMs, cpu] = [performance.now(), process.cpuUsage()];
  started.begin();
  await all;
  const seconds = (performance.now() - startMs) / 1_000;
  const { user, system } = process.cpuUsage(cpu);
  const { cpuUs } = await costSince();
  await started.end();
  return { perSecond: jobs / seconds, redisUs: cpuUs / jobs, nodeUs: (user + system) / jobs };
}

const withSluice: Contender = async (redis, jobs, onDone) => {
  const sluice = createSluice({ redis });
  const bucket = sluice.bucket("groups", { rate: OUT_OF_REACH });
  const queue = sluice.queue<number>("groups", { bucket });
  const data = Array.from({ length: jobs }, (_, index) => index);
  await queue.enqueueMany(data, (index) => ({ key: `group ${index % GROUPS}` }));
  return {
    begin: () => void sluice.worker(queue, async () => onDone(), { concurrency: CONCURRENCY }),
    end: () => sluice.close(),
  };
};

const withGroupMq: Contender = async (redisUrl, jobs, onDone) => {
  const redis = new Redis(redisUrl, { maxRetriesPerRequest: null });
  const queue = new GroupQueue<number>({ redis, namespace: "groups" });
  const adding = Array.from({ length: jobs }, (_, index) =>
    queue.add({ groupId: `group ${index % GROUPS}`, data: index }),
  );
  await Promise.all(adding);
  const handler = async (): Promise<void> => onDone();
  const worker = new GroupWorker({ queue, handler, concurrency: CONCURRENCY });
  return {
    begin: () => void worker.run(),
    async end() {
      await worker.close();
      await queue.close();
      redis.disconnect();
    },
  };
};
