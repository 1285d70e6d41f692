/** Measures how many jobs clients take and complete over HTTP in a second. */
import { Agent, request } from "undici";
import { createSluice } from "sluice";
import type { Flags } from "../flags.ts";
import { watchRedisCost } from "../fleet/redis-cost.ts";
import type { Bench } from "../fleet/run-load.ts";
import { formatNumber, rowOf } from "../promises.ts";
import type { Row, Table } from "../table.ts";
import { start } from "./servers.ts";

const JOBS_PER_SECOND = 4_000;
const LEAST_PER_SECOND = 2_000;
const UNUSED_UPSTREAM = "http://127.0.0.1:9";

/** How many clients there are, and how many jobs each takes and ends in one request. */
interface Clients {
  readonly clients: number;
  readonly max: number;
}

const BATCHES: Clients = { clients: 4, max: 100 };
const SINGLE: Clients = { clients: 64, max: 1 };

export async function measureTake({ redis, redisUrl }: Bench, { effort }: Flags): Promise<Table[]> {
  const jobs = JOBS_PER_SECOND * effort.throughputSeconds;
  const servers = await start(redisUrl, UNUSED_UPSTREAM);
  const rows: Row[] = [];
  try {
    for (const each of [BATCHES, SINGLE]) {
      const cpuBefore = await servers.ask("cpuUs");
      const redisSince = await watchRedisCost(redis);
      const perSecond = await run(redisUrl, servers.ready.sluice, { ...each, jobs });
      const { cpuUs: redisUs } = await redisSince();
      const cpuUs = (await servers.ask("cpuUs")) - cpuBefore;
      const who = `${each.clients} clients, ${each.max} jobs in a request`;
      const bound = each === BATCHES ? { bound: { atLeast: LEAST_PER_SECOND } } : {};
      rows.push(
        rowOf(`${who}, jobs a second`, perSecond, { digits: 0, ...bound }),
        rowOf("CPU of the server a job, µs", cpuUs / jobs, { digits: 0 }),
        rowOf("Redis CPU a job, with its enqueue, µs", redisUs / jobs, { digits: 0 }),
      );
    }
    return [
      {
        title: `${formatNumber(jobs)} jobs that clients take and complete over HTTP, one server`,
        rows,
      },
    ];
  } finally {
    await servers.end();
    await redis.flushall();
  }
}

async function run(
  redisUrl: string,
  url: string,
  { clients, max, jobs }: Clients & { readonly jobs: number },
): Promise<number> {
  await using sluice = createSluice({ redis: redisUrl });
  const bucket = sluice.bucket(`take-${max}`, { rate: "1000000/s", burst: 1_000_000 });
  const queue = sluice.queue<{ readonly order: number }>(`take-${max}`, { bucket });
  await queue.enqueueMany(Array.from({ length: jobs }, (_, order) => ({ order })));
  const dispatcher = new Agent({ connections: clients });
  const post = async (verb: string, body: object): Promise<unknown> => {
    const asked = await request(`${url}/v1/queues/${queue.name}/${verb}`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
      dispatcher,
    });
    return asked.body.json();
  };
  let done = 0;
  const work = async (): Promise<void> => {
    while (done < jobs) {
      const took = (await post("take", { max, waitMs: 200 })) as {
        readonly jobs: readonly { readonly receipt: string }[];
      };
      if (took.jobs.length === 0) continue;
      await post("complete", { jobs: took.jobs.map(({ receipt }) => ({ receipt, result: 1 })) });
      done += took.jobs.length;
    }
  };
  const beganMs = performance.now();
  await Promise.all(Array.from({ length: clients }, work));
  const seconds = (performance.now() - beganMs) / 1_000;
  await dispatcher.close();
  return jobs / seconds;
}
