import { readFile, stat } from "node:fs/promises";
import { Pool } from "pg";
import { createSluice } from "sluice";
import { createOutbox } from "sluice/outbox";

const KEYS = 40;
const ROWS_PER_TRANSACTION = 10;
const PRODUCERS = 4;
/** How many jobs are committed ahead of those that have run. So relays have rows to move at each death. */
const AHEAD = 200;
/** One of so many transactions is rolled back. */
const ROLLED_BACK = 10;
/** The bytes of a line of outbox-worker.ts. */
const LINE_BYTES = 34;
const QUIET = { warn: () => undefined, error: () => undefined };

/**
 * Postgres deletes slowly here, as on a slow disk. So a relay that is killed has most likely stored jobs whose rows it
 * has not deleted yet, and workers run these jobs before the next relay finds the rows.
 */
const SLOW_DELETES = `
  CREATE FUNCTION delete_slowly() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN PERFORM pg_sleep(0.2); RETURN NULL; END $$;
  CREATE TRIGGER delete_slowly BEFORE DELETE ON sluice_outbox
    FOR EACH STATEMENT EXECUTE FUNCTION delete_slowly()`;

/** What is broken, and when. */
export interface DeathsPlan {
  readonly redisUrl: string;
  readonly prefix: string;
  readonly databaseUrl: string;
  /** How many jobs are committed. */
  readonly jobs: number;
  /** How often a relay, a worker or Redis is killed, by turns, at even parts of the way. */
  readonly deaths: number;
  /** The file to which workers write. */
  readonly file: string;
  readonly startRelay: () => { kill(): Promise<unknown> };
  readonly startWorker: () => { kill(): Promise<unknown> };
  /** Kills Redis, and starts it again with what its log has. */
  readonly restartRedis: () => Promise<void>;
  readonly waitUntil: (condition: () => boolean | Promise<boolean>, what: string) => Promise<void>;
}

export interface DeathsFigures {
  /** Committed jobs that never ran. */
  readonly lost: number;
  /** Committed rows of which a second job was stored. */
  readonly doubled: number;
  /** Jobs of transactions that were rolled back. */
  readonly phantoms: number;
  /** Jobs that were stored before an earlier job of the same key. */
  readonly outOfOrder: number;
  /** Runs beyond the first of each job: those that a dying worker or Redis has interrupted. */
  readonly runsAgain: number;
}

/** Commits jobs while relays, workers and Redis are killed again and again; counts what has run. */
export async function enqueueThroughDeaths(plan: DeathsPlan): Promise<DeathsFigures> {
  const { jobs, deaths, file, databaseUrl, waitUntil } = plan;
  const sluice = createSluice({ redis: plan.redisUrl, prefix: plan.prefix, logger: QUIET });
  const bucket = sluice.bucket("orders", { rate: "1000000/s" });
  const orders = sluice.queue<number>("orders", { bucket, keepDone: { count: 0 } });
  const outbox = createOutbox({ sluice, queues: [orders], database: databaseUrl });
  await outbox.migrate();
  const pool = new Pool({ connectionString: databaseUrl, max: PRODUCERS });
  await pool.query(SLOW_DELETES);

  const linesWritten = async (): Promise<number> =>
    Math.floor((await stat(file).catch(() => ({ size: 0 }))).size / LINE_BYTES);

  const relays = [plan.startRelay(), plan.startRelay()];
  const workers = [plan.startWorker(), plan.startWorker()];
  let next = 0;
  const produce = async (): Promise<void> => {
    const client = await pool.connect();
    while (next < jobs) {
      const first = next;
      next += ROWS_PER_TRANSACTION;
      await waitUntil(async () => first - (await linesWritten()) < AHEAD, "earlier jobs have run");
      if ((first / ROWS_PER_TRANSACTION) % ROLLED_BACK === 0) {
        await client.query("BEGIN");
        await outbox.enqueue(client, orders, -1 - first, { key: "rolled back" });
        await client.query("ROLLBACK");
      }
      await client.query("BEGIN");
      for (let job = first; job < Math.min(first + ROWS_PER_TRANSACTION, jobs); job++) {
        // The jobs of a transaction have one key. So their order is known, whichever transaction commits first.
        const key = `key ${(first / ROWS_PER_TRANSACTION) % KEYS}`;
        await outbox.enqueue(client, orders, job, { key });
      }
      await client.query("COMMIT");
    }
    client.release();
  };
  const producing = Promise.all(Array.from({ length: PRODUCERS }, produce));

  for (let death = 1; death <= deaths; death++) {
    const reached = Math.floor((jobs * death) / (deaths + 1));
    await waitUntil(async () => (await linesWritten()) >= reached, `${reached} jobs have run`);
    const at = death % 2;
    if (death % 3 === 0) await plan.restartRedis();
    else if (death % 3 === 1) {
      await relays[at]!.kill();
      relays[at] = plan.startRelay();
    } else {
      await workers[at]!.kill();
      workers[at] = plan.startWorker();
    }
  }
  await producing;
  await waitUntil(async () => {
    const { waiting, failed } = await outbox.status();
    return waiting + failed === 0;
  }, "the outbox is empty");
  await waitUntil(async () => {
    const { waiting, active, delayed, failed } = await orders.counts();
    return waiting + active + delayed + failed === 0;
  }, "no job waits or runs");
  await Promise.all([...relays, ...workers].map((each) => each.kill()));
  await pool.end();
  await sluice.close();
  return judge(await readFile(file, "utf8"), jobs);
}

function judge(text: string, jobs: number): DeathsFigures {
  const runs = text
    .split("\n")
    .filter(Boolean)
    .map((line) => line.trim().split(/ +/).map(Number) as [job: number, storedAtMs: number]);
  const storedAt = new Map<number, Set<number>>();
  for (const [job, storedAtMs] of runs) {
    storedAt.set(job, (storedAt.get(job) ?? new Set()).add(storedAtMs));
  }
  const committed = [...storedAt].filter(([job]) => job >= 0);
  let outOfOrder = 0;
  for (const [job, [storedAtMs = 0] = []] of storedAt) {
    const isFirst = job % ROWS_PER_TRANSACTION === 0;
    const [earlierMs = 0] = (!isFirst && storedAt.get(job - 1)) || [];
    if (earlierMs > storedAtMs) outOfOrder += 1;
  }
  return {
    lost: jobs - committed.length,
    doubled: committed.filter(([, times]) => times.size > 1).length,
    phantoms: storedAt.size - committed.length,
    outOfOrder,
    runsAgain: runs.length - storedAt.size,
  };
}
