import { fork } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { Client } from "pg";
import { createSluice, type Queue } from "sluice";
import { createOutbox, type Outbox } from "sluice/outbox";
import { startCrashingRedis } from "../../test/soak/stage/crashing-redis.ts";
import { startPostgres } from "../../test/support/postgres/local-postgres.ts";
import { enqueueThroughDeaths } from "../../test/support/postgres/through-deaths.ts";
import type { Flags } from "../flags.ts";
import type { Bench } from "../fleet/run-load.ts";
import { formatNumber, rowOf } from "../promises.ts";
import type { Row, Table } from "../table.ts";

const KEYS = 100;
const PER_TRANSACTION = 1_000;
const DEATHS = 20;
const LOOK_EVERY_MS = 20;
const PROCESSES = fileURLToPath(new URL("../../test/support/processes/", import.meta.url));

/** Measures how many committed rows one relay moves to Redis in a second. */
export async function measureOutbox({ redis, redisUrl }: Bench, flags: Flags): Promise<Table[]> {
  const postgres = await startPostgres();
  const count = flags.effort.rows;
  const rows: Row[] = [];
  for (const keys of [0, KEYS]) {
    await redis.flushall();
    await using sluice = createSluice({ redis: redisUrl });
    const bucket = sluice.bucket("rows", { rate: "1000/s" });
    const queue = sluice.queue<object>("rows", { bucket });
    const table = `rows_${keys}`;
    const outbox = createOutbox({ sluice, queues: [queue], database: postgres.url, table });
    const wroteMs = await write(outbox, queue, { url: postgres.url, count, keys });
    const beganMs = performance.now();
    const relay = outbox.startRelay();
    while ((await queue.counts()).waiting < count) await pause(LOOK_EVERY_MS);
    const movedMs = performance.now() - beganMs;
    await relay.close();
    const of = keys === 0 ? "without a key" : `of ${keys} keys`;
    rows.push(
      rowOf(`rows ${of}, moved a second`, (count / movedMs) * 1_000, {
        bound: { atLeast: 5_000 },
        digits: 0,
      }),
      rowOf(`rows ${of}, written a second by one connection`, (count / wroteMs) * 1_000, {
        digits: 0,
      }),
    );
  }
  await postgres.stop();
  return [{ title: `${formatNumber(count)} rows of an outbox, one relay`, rows }];
}

/** Creates the table, and writes the rows. Returns how long the writing took, in ms. */
async function write(
  outbox: Outbox,
  queue: Queue<object>,
  { url, count, keys }: { readonly url: string; readonly count: number; readonly keys: number },
): Promise<number> {
  await outbox.migrate();
  const client = new Client({ connectionString: url });
  await client.connect();
  const beganMs = performance.now();
  for (let first = 0; first < count; first += PER_TRANSACTION) {
    await client.query("BEGIN");
    for (let order = first; order < Math.min(first + PER_TRANSACTION, count); order++) {
      const data = { order, customer: "c_17", items: ["a", "b"], note: "x".repeat(100) };
      await outbox.enqueue(client, queue, data, keys === 0 ? {} : { key: `key ${order % keys}` });
    }
    await client.query("COMMIT");
  }
  const tookMs = performance.now() - beganMs;
  await client.end();
  return tookMs;
}

/**
 * Counts lost and doubled jobs while relays, workers and Redis are killed. Redis syncs its log on every write. Done jobs
 * are removed at once, so that only the outbox can recognize a row that is moved again.
 */
export async function measureOutboxDeaths(_bench: Bench, { effort }: Flags): Promise<Table[]> {
  const redis = await startCrashingRedis();
  const postgres = await startPostgres();
  const folder = await mkdtemp(join(tmpdir(), "sluice-outbox-"));
  const file = join(folder, "runs.log");
  const start = (name: string, last: string) => {
    const child = fork(join(PROCESSES, name), [redis.url, "outbox", last]);
    const ended = once(child, "exit");
    return {
      async kill() {
        child.kill("SIGKILL");
        await ended;
      },
    };
  };
  const beganMs = performance.now();
  const { lost, doubled, phantoms, outOfOrder, runsAgain } = await enqueueThroughDeaths({
    redisUrl: redis.url,
    prefix: "outbox",
    databaseUrl: postgres.url,
    jobs: effort.rows,
    deaths: DEATHS,
    file,
    startRelay: () => start("outbox-relay.ts", postgres.url),
    startWorker: () => start("outbox-worker.ts", file),
    async restartRedis() {
      await redis.kill();
      await redis.start();
    },
    async waitUntil(condition) {
      while (!(await condition())) await pause(LOOK_EVERY_MS);
    },
  });
  const seconds = (performance.now() - beganMs) / 1_000;
  await postgres.stop();
  await redis.stop();
  await rm(folder, { recursive: true, force: true });
  const none = { bound: { atMost: 0 }, digits: 0 } as const;
  return [
    {
      title: `${formatNumber(effort.rows)} committed jobs, while relays, workers and Redis are killed ${DEATHS} times`,
      rows: [
        rowOf("lost", lost, none),
        rowOf("stored twice", doubled, none),
        rowOf("stored although rolled back", phantoms, none),
        rowOf("stored before an earlier job of their key", outOfOrder, none),
        rowOf("interrupted by a death, and run again", runsAgain, { digits: 0 }),
        rowOf("seconds that it took", seconds, { digits: 0 }),
      ],
    },
  ];
}
