import { createSluice, type Queue, type Sluice } from "sluice";
import type { Flags } from "../flags.ts";
import { watchRedisCost, usedMemory } from "../fleet/redis-cost.ts";
import type { Bench } from "../fleet/run-load.ts";
import { formatNumber, rowOf } from "../promises.ts";
import type { Row, Table } from "../table.ts";

/** The number of jobs in the small backlog, with which the large one is compared. */
const SMALL = 1_000;
const TENANTS = 100;
const RATE = 200;
const STARTS = 600;
const PER_CALL = 10_000;

interface Order {
  readonly order: number;
}

interface Backlog {
  readonly storedPerSecond: number;
  readonly bytes: number;
  /** The time from a slot to the start of its job's handler, in ms. */
  readonly medianMs: number;
  readonly p99Ms: number;
  readonly commands: number;
}

/** Measures the cost of a long backlog, and whether its length has an effect. */
export async function measureBacklog(bench: Bench, flags: Flags): Promise<Table[]> {
  if (!flags.contenders.includes("sluice")) return [];
  const tables: Table[] = [];
  for (const tenants of [0, TENANTS]) {
    const jobs = tenants === 0 ? "jobs without a key" : `jobs of ${tenants} tenants`;
    const rows: Row[] = [];
    for (const size of [SMALL, flags.effort.backlog]) {
      const backlog = await fill(bench, size, tenants);
      const of = (figure: string): string => `${formatNumber(size)} ${jobs}: ${figure}`;
      rows.push(
        rowOf(of("enqueued a second"), backlog.storedPerSecond, { digits: 0 }),
        rowOf(of("bytes a job in Redis"), backlog.bytes, { digits: 0 }),
        rowOf(of("from slot to start, median, ms"), backlog.medianMs, { digits: 2 }),
        rowOf(of("the same, 99th percentile"), backlog.p99Ms, { digits: 2 }),
        rowOf(of("Redis commands a started job"), backlog.commands, { digits: 1 }),
      );
    }
    tables.push({ title: `A backlog of ${jobs}, done at ${RATE}/s by one worker`, rows });
  }
  return tables;
}

async function fill({ redis, redisUrl }: Bench, size: number, tenants: number): Promise<Backlog> {
  await redis.flushall();
  await using sluice = createSluice({ redis: redisUrl, storeTimeoutMs: 60_000 });
  const queue = sluice.queue<Order>("backlog", {
    bucket: sluice.bucket("backlog", { rate: `${RATE}/s` }),
  });
  const bytesBefore = await usedMemory(redis);
  const startMs = performance.now();
  for (let first = 0; first < size; first += PER_CALL) {
    const some = Array.from({ length: Math.min(PER_CALL, size - first) }, (_, index) => ({
      order: first + index,
    }));
    await queue.enqueueMany(some, ({ order }) =>
      tenants === 0 ? {} : { key: `tenant ${order % tenants}` },
    );
  }
  const storedPerSecond = (size * 1_000) / (performance.now() - startMs);
  const bytes = ((await usedMemory(redis)) - bytesBefore) / size;

  const costSince = await watchRedisCost(redis);
  const lateMs = await startSome(sluice, queue, Math.min(STARTS, size / 2));
  const { commands } = await costSince();
  const ranked = lateMs.toSorted((a, b) => a - b);
  const at = (part: number): number => ranked[Math.floor(part * (ranked.length - 1))]!;
  return {
    storedPerSecond,
    bytes,
    medianMs: at(0.5),
    p99Ms: at(0.99),
    commands: commands / ranked.length,
  };
}

/**
 * Measures how late jobs start. Redis, which sets the bucket's clock, and this process use the same clock of the
 * machine.
 */
async function startSome(sluice: Sluice, queue: Queue<Order>, count: number): Promise<number[]> {
  const lateMs: number[] = [];
  await new Promise<void>((resolve) => {
    sluice.worker(queue, async (_job, { slot }) => {
      lateMs.push(performance.timeOrigin + performance.now() - slot.atMs);
      if (lateMs.length === count) resolve();
    });
  });
  return lateMs;
}
