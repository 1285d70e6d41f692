import { randomUUID } from "node:crypto";
import { Redis } from "ioredis";
import { expect, inject, it, onTestFinished } from "vitest";
import type { Queue } from "sluice";
import { outboxRowsOf } from "../../../src/queue/enqueue/enqueue.ts";
import { createConnections } from "../../../src/queue/outbox/database.ts";
import { sweep } from "../../../src/queue/outbox/sweep.ts";
import { openOutbox, runAll, dataOf } from "../../support/postgres/open-outbox.ts";
import { postgresForFile } from "../../support/postgres/local-postgres.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const postgres = postgresForFile();
const sluices = realSluices();

/** Done jobs are removed at once, so that only the outbox can remember them. */
const FORGETFUL = { queue: { keepDone: { count: 0 } } };

async function rememberedRows(jobs: Queue<number>): Promise<string[]> {
  const redis = new Redis(inject("redisUrl"));
  onTestFinished(() => redis.disconnect());
  const keys = await redis.keys(`${sluices.prefix()}:{${jobs.name}}:outbox:*-*`);
  const rows = await Promise.all(keys.map((key) => redis.zrange(key, 0, -1)));
  return rows.flat();
}

it("stores no second job if a relay ends after the first one ran, and before the row is deleted", async () => {
  const opened = await openOutbox(sluices, postgres.url, FORGETFUL);
  const { outbox, jobs, pool, table, commit } = opened;
  await pool.query(`
    CREATE FUNCTION ${table}_power_cut() RETURNS trigger LANGUAGE plpgsql AS
      $$ BEGIN RAISE EXCEPTION 'power cut'; END $$;
    CREATE TRIGGER power_cut BEFORE DELETE ON ${table}
      FOR EACH ROW EXECUTE FUNCTION ${table}_power_cut()`);
  await commit((client) => outbox.enqueue(client, jobs, 1, { key: "acme" }));
  await commit((client) => outbox.enqueue(client, jobs, 2));
  const relay = outbox.startRelay({ pollMs: 20 });
  const first = await runAll(opened, 2);
  await waitUntil(async () => (await jobs.counts()).active === 0, "the jobs are done");
  await relay.close();
  const during = await outbox.status();

  await pool.query(`DROP TRIGGER power_cut ON ${table}`);
  const second = outbox.startRelay({ pollMs: 20 });

  await opened.untilEmpty();
  await second.close();
  expect(new Set(first)).toEqual(new Set([1, 2]));
  expect(during).toMatchObject({ waiting: 2, failed: 0, rejected: [] });
  expect(await jobs.counts()).toEqual({ waiting: 0, active: 0, delayed: 0, done: 0, failed: 0 });
});

it("stores no second job if the database loses the deletion of a row that was moved", async () => {
  const opened = await openOutbox(sluices, postgres.url, FORGETFUL);
  const { outbox, jobs, pool, table, commit, untilEmpty } = opened;
  await commit((client) => outbox.enqueue(client, jobs, 1, { key: "acme" }));
  await pool.query(`CREATE TABLE ${table}_backup AS SELECT * FROM ${table}`);
  outbox.startRelay();
  await untilEmpty();
  await runAll(opened, 1);
  await waitUntil(async () => (await jobs.counts()).active === 0, "the job is done");

  await pool.query(`INSERT INTO ${table} (id, kind, target, data, options)
    SELECT id, kind, target, data, options FROM ${table}_backup`);
  await commit((client) => outbox.enqueue(client, jobs, 2, { key: "acme" }));

  await untilEmpty();
  expect(await dataOf(jobs)).toEqual([2]);
});

it("stores nothing for a relay that comes too late", async () => {
  const { jobs } = await openOutbox(sluices, postgres.url);
  const rows = outboxRowsOf(jobs)!;
  const row = await rows.check({ id: randomUUID(), json: "1", options: {} });
  const untilMs = (await rows.nowMs()) - 1_000;

  const late = rows.store([row], { id: randomUUID(), untilMs });

  await expect(late).rejects.toMatchObject({ code: "ERR_STORE_UNAVAILABLE" });
  await expect(late).rejects.toThrow("LATE");
  expect(await dataOf(jobs)).toEqual([]);
  expect(await rememberedRows(jobs)).toEqual([]);
});

it("forgets moved rows after a while, but not those that the database still has", async () => {
  const { outbox, jobs, pool, table, commit, untilEmpty } = await openOutbox(sluices, postgres.url);
  await commit((client) => outbox.enqueue(client, jobs, 1));
  const relay = outbox.startRelay();
  await untilEmpty();
  await relay.close();
  const [moved] = await rememberedRows(jobs);
  const rows = outboxRowsOf(jobs)!;
  const { rows: marks } = await pool.query<{ mark: string }>(
    `SELECT obj_description('${table}'::regclass, 'pg_class') AS mark`,
  );
  const id = marks[0]!.mark.split(" id ")[1]!;
  let kept = "";
  await commit(async (client) => {
    ({ id: kept } = await outbox.enqueue(client, jobs, 2));
  });
  const later = { id, untilMs: (await rows.nowMs()) + 10_000 };
  await rows.store([await rows.check({ id: kept, json: "2", options: {} })], later);
  const connections = createConnections("test", postgres.url);
  onTestFinished(() => connections.close());
  const name = { schema: "public", table };
  const parts = { queues: new Map([["jobs", rows]]), connections, name, outbox: id };
  const { signal } = new AbortController();

  await sweep({ ...parts, rememberMs: 60_000 }, signal);
  const early = await rememberedRows(jobs);
  await sweep({ ...parts, rememberMs: -1_000 }, signal);
  const late = await rememberedRows(jobs);

  expect(early.toSorted()).toEqual([moved, kept].toSorted());
  expect(late).toEqual([kept]);
});

it("keeps the rows of two outboxes apart that fill one queue", async () => {
  const first = await openOutbox(sluices, postgres.url);
  const second = await openOutbox(sluices, postgres.url);
  first.outbox.startRelay();
  second.outbox.startRelay();

  await first.commit((client) => first.outbox.enqueue(client, first.jobs, 1));
  await second.commit((client) => second.outbox.enqueue(client, second.jobs, 2));

  await first.untilEmpty();
  await second.untilEmpty();
  expect(await dataOf(first.jobs)).toEqual([1, 2]);
  const redis = new Redis(inject("redisUrl"));
  onTestFinished(() => redis.disconnect());
  expect(await redis.keys(`${sluices.prefix()}:{jobs}:outbox:*-*`)).toHaveLength(2);
});
