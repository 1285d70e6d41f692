import { randomUUID } from "node:crypto";
import { Pool, type PoolClient } from "pg";
import { onTestFinished } from "vitest";
import type { Queue, QueueOptions, Sluice } from "sluice";
import { createOutbox, type Outbox, type OutboxOptions } from "sluice/outbox";
import { SILENT } from "../webhooks/open-hooks.ts";
import type { RealSluices } from "../setup/real-sluice.ts";
import { waitUntil } from "../async/wait-until.ts";

type Options = Partial<Omit<OutboxOptions, "sluice" | "queues">> & {
  readonly queue?: Omit<QueueOptions<number, number>, "bucket">;
};

export interface OpenedOutbox {
  readonly sluice: Sluice;
  readonly outbox: Outbox;
  readonly jobs: Queue<number>;
  /** The table, which no other test has. */
  readonly table: string;
  readonly pool: Pool;
  /** Enqueues in a transaction, and commits it. */
  readonly commit: (run: (client: PoolClient) => Promise<unknown>) => Promise<void>;
  /** Begins a transaction, which is rolled back after the test unless the test ends it. */
  readonly begin: () => Promise<PoolClient>;
  readonly untilEmpty: () => Promise<void>;
}

/** An outbox with one queue in a replica of its own, and its table. */
export async function openOutbox(
  sluices: RealSluices,
  database: string,
  { queue, ...options }: Options = {},
): Promise<OpenedOutbox> {
  const table = options.table ?? `t${randomUUID().replaceAll("-", "")}`;
  const sluice = sluices.open({ logger: SILENT });
  const bucket = sluice.bucket("downstream", { rate: "10000/s" });
  const jobs = sluice.queue<number>("jobs", { bucket, ...queue });
  const outbox = createOutbox({ sluice, queues: [jobs], database, table, ...options });
  await outbox.migrate();
  const pool = new Pool({ connectionString: database });
  pool.on("error", () => undefined);
  const open = new Set<PoolClient>();
  onTestFinished(async () => {
    await sluice.close();
    for (const client of open) client.release(true);
    await pool.end();
  });

  async function begin(): Promise<PoolClient> {
    const client = await pool.connect();
    open.add(client);
    await client.query("BEGIN");
    return client;
  }

  return {
    sluice,
    outbox,
    jobs,
    table,
    pool,
    begin,
    async commit(run) {
      const client = await begin();
      await run(client);
      await client.query("COMMIT");
      open.delete(client);
      client.release();
    },
    untilEmpty: () =>
      waitUntil(async () => (await outbox.status()).waiting === 0, "the outbox is empty"),
  };
}

/** The data of a queue's jobs, sorted. */
export async function dataOf(jobs: Queue<number>): Promise<number[]> {
  const data: number[] = [];
  for (let cursor: string | undefined; ;) {
    const page = await jobs.jobs({ cursor });
    data.push(...page.jobs.map((job) => job.data));
    cursor = page.cursor;
    if (cursor === undefined) return data.toSorted((one, other) => one - other);
  }
}

/** Runs all jobs one after another, and returns their data in the order in which they started. */
export async function runAll({ sluice, jobs }: OpenedOutbox, count: number): Promise<number[]> {
  const started: number[] = [];
  const worker = sluice.worker(jobs, async ({ data }) => void started.push(data), {
    concurrency: 1,
  });
  await waitUntil(() => started.length >= count, "all jobs have run");
  await worker.close();
  return started;
}
