import { Pool } from "pg";
import { drizzle } from "drizzle-orm/node-postgres";
import { sql } from "drizzle-orm";
import knex from "knex";
import { describe, expect, it, onTestFinished } from "vitest";
import { createSluice } from "sluice";
import { createOutbox, outboxSql, withDrizzle, withKnex, withPg, withPrisma } from "sluice/outbox";
import { startOwnRedis } from "../../support/redis/for-one-test.ts";
import { dataOf, openOutbox, runAll } from "../../support/postgres/open-outbox.ts";
import { postgresForFile } from "../../support/postgres/local-postgres.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { openHooks, SILENT, startReceiver } from "../../support/webhooks/open-hooks.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const postgres = postgresForFile();
const sluices = realSluices();

describe("a job in the outbox", () => {
  it("is stored with its data, options and id, once its transaction commits", async () => {
    const { outbox, jobs, commit } = await openOutbox(sluices, postgres.url);
    outbox.startRelay();

    let id = "";
    await commit(async (client) => {
      ({ id } = await outbox.enqueue(client, jobs, 17, { key: ["acme", "e-1"], attempts: 3 }));
    });

    await waitUntil(async () => (await jobs.job(id)) !== undefined, "the job is stored");
    expect(await jobs.job(id)).toMatchObject({ data: 17, key: ["acme", "e-1"], attempts: 3 });
  });

  it("is not stored if its transaction rolls back", async () => {
    const { outbox, jobs, commit, begin, untilEmpty } = await openOutbox(sluices, postgres.url);
    outbox.startRelay();
    const client = await begin();
    await outbox.enqueue(client, jobs, 1);
    await client.query("ROLLBACK");

    await commit((other) => outbox.enqueue(other, jobs, 2));

    await waitUntil(async () => (await jobs.counts()).waiting > 0, "a job is stored");
    await untilEmpty();
    expect(await dataOf(jobs)).toEqual([2]);
  });

  it("has the id of its options, and is one with an earlier job of this id", async () => {
    const { outbox, jobs, commit, untilEmpty } = await openOutbox(sluices, postgres.url);
    await jobs.enqueue(1, { id: "order-1" });

    await commit((client) => outbox.enqueue(client, jobs, 2, { id: "order-1" }));
    outbox.startRelay();

    await untilEmpty();
    expect(await dataOf(jobs)).toEqual([1]);
  });

  it("begins its delay when it is written", async () => {
    const { outbox, jobs, commit, untilEmpty } = await openOutbox(sluices, postgres.url);
    const beforeMs = Date.now();
    let id = "";
    await commit(async (client) => {
      ({ id } = await outbox.enqueue(client, jobs, 1, { delayMs: 3_600_000 }));
    });
    const afterMs = Date.now();
    outbox.startRelay();
    await untilEmpty();

    const { dueAtMs } = (await jobs.job(id))!;

    // The clock of Redis is that of this machine; it counts whole milliseconds.
    expect(dueAtMs).toBeGreaterThanOrEqual(beforeMs + 3_600_000 - 10);
    expect(dueAtMs).toBeLessThanOrEqual(afterMs + 3_600_000 + 10);
  });

  it("can be written while Redis is unreachable, and is moved later", async () => {
    const redis = await startOwnRedis();
    const port = Number(new URL(redis.url).port);
    const sluice = createSluice({ redis: redis.url, logger: SILENT });
    onTestFinished(() => sluice.close());
    const jobs = sluice.queue<number>("jobs", { bucket: sluice.bucket("b", { rate: "100/s" }) });
    const outbox = createOutbox({ sluice, queues: [jobs], database: postgres.url, table: "late" });
    await outbox.migrate();
    await redis.stop();
    const relay = outbox.startRelay({ pollMs: 50 });
    const pool = new Pool({ connectionString: postgres.url });
    onTestFinished(() => pool.end());

    await outbox.enqueue(pool, jobs, 1);
    const during = await outbox.status();
    await startOwnRedis({ port });

    await waitUntil(async () => (await outbox.status()).waiting === 0, "the row is moved");
    expect(during).toMatchObject({ waiting: 1, failed: 0, rejected: [] });
    expect(await dataOf(jobs)).toEqual([1]);
    await relay.close();
  });
});

describe("the order of a key", () => {
  it("is the order of the commits, also if the later transaction has written first", async () => {
    const opened = await openOutbox(sluices, postgres.url);
    const { outbox, jobs, begin, commit, untilEmpty } = opened;
    const slow = await begin();
    await outbox.enqueue(slow, jobs, 1, { key: "acme" });
    await commit((client) => outbox.enqueue(client, jobs, 2, { key: "acme" }));
    await commit(async (client) => {
      await outbox.enqueue(client, jobs, 3, { key: "acme" });
      await outbox.enqueue(client, jobs, 4, { key: "acme" });
    });
    await slow.query("COMMIT");

    outbox.startRelay();

    await untilEmpty();
    expect(await runAll(opened, 4)).toEqual([2, 3, 4, 1]);
  });

  it("holds for a dedupeId without a key, so that the data of the last commit stays", async () => {
    const { outbox, jobs, begin, commit, untilEmpty } = await openOutbox(sluices, postgres.url);
    const options = { dedupeId: "report", dedupe: "last" } as const;
    const slow = await begin();
    await outbox.enqueue(slow, jobs, 1, options);
    await commit((client) => outbox.enqueue(client, jobs, 2, options));
    await slow.query("COMMIT");

    outbox.startRelay();

    await untilEmpty();
    expect(await dataOf(jobs)).toEqual([1]);
  });

  it("does not wait for a transaction that is still open", async () => {
    const opened = await openOutbox(sluices, postgres.url);
    const { outbox, jobs, begin, commit, untilEmpty } = opened;
    outbox.startRelay();
    const slow = await begin();
    await outbox.enqueue(slow, jobs, 1, { key: "acme" });
    await commit((client) => outbox.enqueue(client, jobs, 2, { key: "acme" }));
    await waitUntil(async () => (await jobs.counts()).waiting === 1, "the second job is stored");

    await slow.query("COMMIT");

    await untilEmpty();
    expect(await runAll(opened, 2)).toEqual([2, 1]);
  });

  it("is kept by several relays that share the rows", async () => {
    const first = await openOutbox(sluices, postgres.url);
    const { outbox, jobs, table, commit } = first;
    const second = await openOutbox(sluices, postgres.url, { table });
    const others = [first.outbox, second.outbox, second.outbox];
    for (const each of others) each.startRelay({ batchSize: 7, pollMs: 10 });

    for (let from = 0; from < 500; from += 50) {
      await commit(async (client) => {
        for (let job = from; job < from + 50; job++) {
          await outbox.enqueue(client, jobs, job, { key: `key-${job % 5}` });
        }
      });
    }

    await first.untilEmpty();
    const started = await runAll(first, 500);
    for (let key = 0; key < 5; key++) {
      const ofKey = started.filter((job) => job % 5 === key);
      expect(ofKey).toEqual(Array.from({ length: 100 }, (_, at) => key + 5 * at));
    }
  });
});

describe("a row that its queue rejects", () => {
  it("holds back its key only, until it has failed; retry() moves it", async () => {
    const schema = {
      "~standard": {
        version: 1 as const,
        vendor: "test",
        validate: (value: unknown) =>
          value === bad ? { issues: [{ message: "it is bad" }] } : { value: value as number },
      },
    };
    let bad = -1;
    const opened = await openOutbox(sluices, postgres.url, { queue: { schema } });
    const { outbox, jobs, commit } = opened;
    await commit(async (client) => {
      await outbox.enqueue(client, jobs, 1, { key: "acme" });
      await outbox.enqueue(client, jobs, 2, { key: "acme" });
      await outbox.enqueue(client, jobs, 3, { key: "beta" });
      await outbox.enqueue(client, jobs, 4);
    });
    bad = 1;
    const patient = outbox.startRelay({ pollMs: 20 });
    await waitUntil(async () => {
      const { waiting, rejected } = await outbox.status();
      return waiting === 2 && rejected.length === 1;
    }, "the other keys are moved");
    await patient.close();
    const first = await outbox.status();
    const others = await dataOf(jobs);

    const relay = outbox.startRelay({ maxAttempts: 2, pollMs: 20 });
    await waitUntil(async () => (await outbox.status()).failed === 1, "the row has failed");
    await opened.untilEmpty();
    const failed = await outbox.status();
    bad = -1;
    const retried = await outbox.retry({ target: "jobs" });
    await opened.untilEmpty();
    await relay.close();

    expect(first).toMatchObject({ waiting: 2, failed: 0 });
    expect(first.rejected).toMatchObject([{ target: "jobs" }]);
    expect(first.rejected[0]!.error).toContain("it is bad");
    expect(first.rejected[0]!.nextTryAt).toBeInstanceOf(Date);
    expect(others).toEqual([3, 4]);
    expect(failed).toMatchObject({ waiting: 0, failed: 1, lagMs: 0 });
    expect(failed.rejected).toMatchObject([{ nextTryAt: undefined }]);
    expect(failed.rejected[0]!.attempts).toBeGreaterThan(first.rejected[0]!.attempts);
    expect(retried).toBe(1);
    expect(await outbox.status()).toEqual({ waiting: 0, failed: 0, lagMs: 0, rejected: [] });
  });

  it("is one whose queue the relay does not have, or whose options no job has", async () => {
    const { outbox, jobs, table, pool, commit, untilEmpty } = await openOutbox(
      sluices,
      postgres.url,
    );
    const insert = (target: string, options: object): Promise<unknown> =>
      pool.query(`INSERT INTO ${table} (target, data, options) VALUES ($1, '1', $2)`, [
        target,
        JSON.stringify(options),
      ]);
    await insert("unknown", {});
    await insert("jobs", { attmepts: 3 });
    await insert("jobs", { every: 1_000, dedupeId: "a" });
    await insert("jobs", { after: [{ queue: "jobs", id: "1000" }] });
    await insert("jobs", { after: "1000" });
    await insert("jobs", { key: "from-sql" });
    await commit((client) => outbox.enqueue(client, jobs, 2));
    outbox.startRelay({ maxAttempts: 1 });

    await untilEmpty();

    const { rejected, failed } = await outbox.status();
    expect(failed).toBe(5);
    expect(rejected.map(({ error }) => error).sort()).toEqual([
      expect.stringContaining('option "after" is "1000"; queue "jobs" has never had a job'),
      expect.stringContaining('option "after" is "1000"; give'),
      expect.stringContaining('option "attmepts" is 3; there is no such option'),
      expect.stringContaining('option "every" is 1000; give recurring jobs to enqueue()'),
      expect.stringContaining('There is no queue "unknown" in this relay.'),
    ]);
    expect(await dataOf(jobs)).toEqual([1, 2]);
  });

  it("is none if the queue is full: it waits without failed attempts", async () => {
    const { outbox, jobs, commit, untilEmpty } = await openOutbox(sluices, postgres.url, {
      queue: { maxBacklog: { perKey: 2 } },
    });
    await commit(async (client) => {
      for (let job = 0; job < 4; job++) await outbox.enqueue(client, jobs, job, { key: "acme" });
      await outbox.enqueue(client, jobs, 9, { key: "beta" });
    });
    outbox.startRelay({ pollMs: 20 });
    await waitUntil(async () => (await outbox.status()).waiting === 2, "the key is full");
    const full = await outbox.status();
    const before = await dataOf(jobs);

    await jobs.removeJobs({ key: "acme" });

    await untilEmpty();
    expect(full.rejected).toEqual([]);
    expect(before).toEqual([0, 1, 9]);
    expect(await dataOf(jobs)).toEqual([2, 3, 9]);
  });
});

describe("a job in the outbox that runs after others", () => {
  it.each([
    ["the id of its row", undefined],
    ["an id of its own", "order-1"],
  ])("is stored after the row of a parent with %s, and runs after it", async (_, ownId) => {
    let isBad = false;
    const schema = {
      "~standard": {
        version: 1 as const,
        vendor: "test",
        validate: (value: unknown) =>
          value === 1 && isBad
            ? { issues: [{ message: "it is bad" }] }
            : { value: value as number },
      },
    };
    const opened = await openOutbox(sluices, postgres.url, { queue: { schema } });
    const { outbox, jobs, commit, untilEmpty } = opened;
    await commit(async (client) => {
      const { id } = await outbox.enqueue(client, jobs, 1, { id: ownId });
      await outbox.enqueue(client, jobs, 2, { after: [{ queue: "jobs", id: ownId ?? id }] });
      await outbox.enqueue(client, jobs, 3);
    });
    isBad = true;
    outbox.startRelay({ pollMs: 20 });
    await waitUntil(async () => (await outbox.status()).rejected.length === 1, "it is rejected");
    await waitUntil(async () => (await outbox.status()).waiting === 2, "the last row is moved");
    const before = await dataOf(jobs);

    isBad = false;
    await outbox.retry();

    await untilEmpty();
    expect(before).toEqual([3]);
    expect(await runAll(opened, 3)).toEqual([3, 1, 2]);
  });

  it("waits for a job that enqueue() has stored, and its delay begins after that", async () => {
    const opened = await openOutbox(sluices, postgres.url);
    const { outbox, jobs, table, pool, commit, untilEmpty } = opened;
    const parent = await jobs.enqueue(1, { delayMs: 3_600_000 });
    let id = "";
    await commit(async (client) => {
      ({ id } = await outbox.enqueue(client, jobs, 2, { after: [parent], delayMs: 10 }));
    });
    const [row] = (await pool.query(`SELECT options FROM ${table}`)).rows as { options: object }[];
    outbox.startRelay();

    await untilEmpty();

    const after = [{ queue: "jobs", id: parent.id }];
    expect(row!.options).toEqual({ after, delayMs: 10 });
    expect((await (await jobs.job(id))!.flow()).awaited).toEqual({ count: 1, first: after });
    await parent.runNow();
    expect(await runAll(opened, 2)).toEqual([1, 2]);
  });
});

describe("a webhook in the outbox", () => {
  it("is sent once its transaction commits, with the id of the row", async () => {
    const receiver = await startReceiver();
    const hooks = openHooks(sluices);
    hooks.worker();
    await hooks.endpoints.put({ tenant: "acme", id: "a", url: receiver.url });
    const { outbox, commit, untilEmpty } = await openOutbox(sluices, postgres.url, {
      webhooks: hooks,
    });
    outbox.startRelay();

    let id = "";
    await commit(async (client) => {
      const event = { tenant: "acme", type: "invoice.paid", data: { invoice: 7 } };
      ({ id } = await outbox.webhook(client, event));
    });

    await waitUntil(() => receiver.arrivals.length > 0, "the webhook arrives");
    await untilEmpty();
    expect(await hooks.messages.get({ tenant: "acme", id })).toMatchObject({
      type: "invoice.paid",
    });
  });

  it("is rejected if its endpoint does not exist", async () => {
    const hooks = openHooks(sluices);
    const { outbox, commit } = await openOutbox(sluices, postgres.url, { webhooks: hooks });
    outbox.startRelay({ maxAttempts: 1 });

    await commit((client) =>
      outbox.webhook(client, { tenant: "acme", type: "a.b", data: 1, endpoint: "missing" }),
    );

    await waitUntil(async () => (await outbox.status()).failed === 1, "the row has failed");
    const { rejected } = await outbox.status();
    expect(rejected[0]).toMatchObject({ target: "webhooks", attempts: 1 });
  });
});

describe("a transaction", () => {
  it("can be one of pg, Drizzle, Knex or Prisma", async () => {
    const { outbox, jobs, pool, untilEmpty } = await openOutbox(sluices, postgres.url);
    outbox.startRelay();
    const knexed = knex({ client: "pg", connection: postgres.url });
    onTestFinished(() => knexed.destroy());
    const drizzled = drizzle(pool);
    /** Prisma's client is generated by its own tool. This has the method that it documents. */
    const prisma = {
      $executeRawUnsafe: async (text: string, ...parameters: string[]) =>
        (await pool.query(text, parameters)).rowCount,
    };
    const text = `it's "?" and $1`;

    await outbox.enqueue(withPg(pool), jobs, 1);
    await drizzled.transaction(async (tx) => {
      await outbox.enqueue(withDrizzle(tx, sql), jobs, 2, { name: text });
    });
    await knexed.transaction(async (trx) => {
      await outbox.enqueue(withKnex(trx), jobs, 3, { name: text });
    });
    await outbox.enqueue(withPrisma(prisma), jobs, 4);
    await drizzled
      .transaction(async (tx) => {
        await outbox.enqueue(withDrizzle(tx, sql), jobs, 5);
        tx.rollback();
      })
      .catch(() => undefined);
    await knexed
      .transaction(async (trx) => {
        await outbox.enqueue(withKnex(trx), jobs, 6);
        throw new Error("rolled back");
      })
      .catch(() => undefined);

    await untilEmpty();
    expect(await dataOf(jobs)).toEqual([1, 2, 3, 4]);
    const named = await jobs.jobs({ name: text });
    expect(new Set(named.jobs.map(({ data }) => data))).toEqual(new Set([2, 3]));
  });

  it("keeps text that Postgres treats specially", async () => {
    const { outbox, jobs, commit, untilEmpty } = await openOutbox(sluices, postgres.url);
    const data = { text: "\u0000 \ud800 \u{1F600} \\ ' \" $1" };
    outbox.startRelay();
    let id = "";
    await commit(async (client) => {
      ({ id } = await outbox.enqueue(client, jobs as never, data));
    });

    await untilEmpty();

    expect((await jobs.job(id))!.data).toEqual(data);
  });
});

describe("the table", () => {
  it("is created once by many processes, and by the SQL", async () => {
    const { outbox, pool } = await openOutbox(sluices, postgres.url, { table: "many" });
    const comment = async (): Promise<unknown> =>
      (await pool.query("SELECT obj_description('many'::regclass, 'pg_class') AS text")).rows;
    const before = await comment();

    await Promise.all(Array.from({ length: 8 }, () => outbox.migrate()));
    await pool.query(outboxSql({ table: "many" }));

    expect(await comment()).toEqual(before);
    expect(outbox.sql()).toBe(outboxSql({ table: "many" }));
  });

  it("is no reason to wait for an open transaction, once it exists", async () => {
    const { outbox, jobs, begin } = await openOutbox(sluices, postgres.url);
    const open = await begin();
    await outbox.enqueue(open, jobs, 1);

    await outbox.migrate();

    await open.query("COMMIT");
    expect(await outbox.status()).toMatchObject({ waiting: 1 });
  });

  it("can be in another schema, which roles may fill with INSERT alone", async () => {
    const { pool } = await openOutbox(sluices, postgres.url);
    await pool.query("CREATE SCHEMA apart");
    const { outbox, jobs, untilEmpty } = await openOutbox(sluices, postgres.url, {
      schema: "apart",
      table: "rows",
    });
    await pool.query(`CREATE ROLE writer LOGIN;
      GRANT USAGE ON SCHEMA apart TO writer;
      GRANT INSERT ON apart.rows TO writer;
      GRANT USAGE ON SEQUENCE apart.rows_position TO writer`);
    const url = new URL(postgres.url);
    url.username = "writer";
    const writer = new Pool({ connectionString: url.href });
    onTestFinished(() => writer.end());
    outbox.startRelay();

    await outbox.enqueue(writer, jobs, 1, { key: "acme" });
    await outbox.enqueue(writer, jobs, 2, { key: "acme" });

    await untilEmpty();
    expect(await dataOf(jobs)).toEqual([1, 2]);
  });

  it("is refused if it is missing or of another version", async () => {
    const { outbox, pool, table } = await openOutbox(sluices, postgres.url);
    const missing = createOutbox({
      sluice: sluices.open(),
      database: postgres.url,
      table: "missing",
    });
    await pool.query(
      `COMMENT ON TABLE ${table} IS 'sluice outbox, version 9, id ${crypto.randomUUID()}'`,
    );

    await expect(missing.status()).rejects.toThrow("call outbox.migrate()");
    await expect(outbox.status()).rejects.toThrow("the table has version 9");
  });
});

describe("a relay", () => {
  it("goes on after its connections were ended", async () => {
    const { outbox, jobs, pool, commit, untilEmpty } = await openOutbox(sluices, postgres.url);
    outbox.startRelay({ pollMs: 20 });
    await commit((client) => outbox.enqueue(client, jobs, 1));
    await untilEmpty();

    await pool.query(
      "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND query LIKE 'LISTEN%'",
    );
    await commit((client) => outbox.enqueue(client, jobs, 2));

    await untilEmpty();
    expect(await dataOf(jobs)).toEqual([1, 2]);
  });

  it("moves rows without a poll when they are committed", async () => {
    const { outbox, jobs, commit, untilEmpty } = await openOutbox(sluices, postgres.url);
    outbox.startRelay({ pollMs: 2_000_000_000 });
    for (let job = 0; job < 3; job++) {
      await commit((client) => outbox.enqueue(client, jobs, job));
      await untilEmpty();
    }

    expect(await dataOf(jobs)).toEqual([0, 1, 2]);
  });

  it("moves rows by polling without notifications", async () => {
    const { outbox, jobs, commit, untilEmpty } = await openOutbox(sluices, postgres.url, {
      notify: false,
    });
    outbox.startRelay({ pollMs: 20 });

    await commit((client) => outbox.enqueue(client, jobs, 1));

    await untilEmpty();
    expect(await dataOf(jobs)).toEqual([1]);
  });

  it("leaves rows in the table once it is closed, and holds no connection", async () => {
    const { outbox, jobs, pool, commit, untilEmpty } = await openOutbox(sluices, postgres.url);
    const relay = outbox.startRelay();
    await commit((client) => outbox.enqueue(client, jobs, 1));
    await untilEmpty();

    await relay.close();
    await relay.close();
    await commit((client) => outbox.enqueue(client, jobs, 2));

    expect(await outbox.status()).toMatchObject({ waiting: 1 });
    const { rows } = await pool.query<{ query: string }>(
      "SELECT query FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND datname = current_database()",
    );
    expect(rows).toEqual([]);
  });

  it("moves a row whose job is kept at once, although it names a delay of 0", async () => {
    const { pool, table } = await openOutbox(sluices, postgres.url);
    const sluice = sluices.open({ logger: SILENT });
    const jobs = sluice.queue<number>("jobs", { bucket: sluice.bucket("b", { rate: "100/s" }) });
    const outbox = createOutbox({ sluice, queues: [jobs], database: pool, table });
    outbox.startRelay({ pollMs: 50 });

    await outbox.enqueue(pool, jobs, 1, { key: "a", keep: "newest", delayMs: 0 });
    await waitUntil(async () => (await jobs.counts()).waiting === 1, "the job waits");

    expect((await outbox.status()).failed).toBe(0);
  });

  it("takes a pool of the application, and leaves it open", async () => {
    const { pool, table } = await openOutbox(sluices, postgres.url);
    const sluice = sluices.open({ logger: SILENT });
    const jobs = sluice.queue<number>("jobs", { bucket: sluice.bucket("b", { rate: "100/s" }) });
    const outbox = createOutbox({ sluice, queues: [jobs], database: pool, table });
    outbox.startRelay();
    await outbox.enqueue(pool, jobs, 1);
    await waitUntil(async () => (await outbox.status()).waiting === 0, "the row is moved");

    await sluice.close();

    expect((await pool.query("SELECT 1 AS one")).rows).toEqual([{ one: 1 }]);
    await expect(outbox.status()).rejects.toMatchObject({ code: "ERR_CLOSED" });
  });
});

describe("bad input", () => {
  const memory = () => {
    const sluice = sluices.open();
    const bucket = sluice.bucket("b", { rate: "100/s" });
    return { sluice, jobs: sluice.queue<number>("jobs", { bucket }) };
  };

  it.each([
    ["sluice", {}],
    ["queues[0]", { queues: [{ name: "jobs" }] }],
    ["webhooks", { webhooks: {} }],
    ["database", { database: "mysql://user:secret@host/db" }],
    ["database", { database: 7 }],
    ["database.max", { database: new Pool({ max: 1 }) }],
    ["schema", { schema: "My Schema" }],
    ["table", { table: 'x"; DROP TABLE y; --' }],
    ["notify", { notify: "yes" }],
    ["tabel", { tabel: "x" }],
  ])("of createOutbox() is refused by name: %s", (option, given) => {
    const sluice = option === "sluice" ? {} : memory().sluice;
    const create = (): unknown => createOutbox({ sluice, ...given } as never);

    expect(create).toThrow(expect.objectContaining({ code: "ERR_INVALID_OPTION", option }));
    expect(create).not.toThrow("secret");
  });

  it.each([
    ["transaction", [{}, "jobs", 1]],
    ["transaction", [knex({ client: "pg" }), "jobs", 1]],
    ["queue", ["run", "others", 1]],
    ["queue", ["run", undefined, 1]],
    ["attmepts", ["run", "jobs", 1, { attmepts: 3 }]],
    ["every", ["run", "jobs", 1, { every: 1_000, dedupeId: "a" }]],
    ["after", ["run", "jobs", 1, { after: "1" }]],
    ["data", ["run", "jobs", 1n]],
  ])("of enqueue() is refused by name, and writes nothing: %s", async (option, given) => {
    const { sluice, jobs } = memory();
    const others = sluice.queue("others", { bucket: jobs.bucket });
    const outbox = createOutbox({ sluice, queues: [jobs] });
    const written: unknown[] = [];
    const named: Readonly<Record<string, unknown>> = {
      jobs,
      others,
      run: async (...sent: unknown[]) => written.push(sent),
    };
    const parameters = given.map((each) => (typeof each === "string" ? named[each] : each));

    await expect(outbox.enqueue(...(parameters as [never, never, never]))).rejects.toMatchObject({
      code: "ERR_INVALID_OPTION",
      option,
    });
    expect(written).toEqual([]);
  });

  it.each([
    ["pollMs", { pollMs: 1 }],
    ["batchSize", { batchSize: 0 }],
    ["maxAttempts", { maxAttempts: 0.5 }],
    ["rememberMs", { rememberMs: 1_000 }],
    ["database", {}],
  ])("of startRelay() is refused by name: %s", (option, given) => {
    const { sluice, jobs } = memory();
    const outbox = createOutbox({ sluice, queues: [jobs] });

    expect(() => outbox.startRelay(given)).toThrow(
      expect.objectContaining({ code: "ERR_INVALID_OPTION", option }),
    );
  });

  it("of startRelay() is refused if the relay could only reject rows", () => {
    const database = "postgres://127.0.0.1/none";
    const outbox = createOutbox({ sluice: memory().sluice, database });

    expect(() => outbox.startRelay()).toThrow(
      expect.objectContaining({ code: "ERR_INVALID_OPTION", option: "queues" }),
    );
  });

  it("of webhook() and retry() is refused by name", async () => {
    const { sluice } = memory();
    const outbox = createOutbox({ sluice });
    const run = async (): Promise<void> => {};

    await expect(outbox.webhook(run, { type: "a.b", data: 1 })).rejects.toMatchObject({
      option: "webhooks",
    });
    await expect(outbox.retry({ id: "7" })).rejects.toMatchObject({ option: "id" });
    const withHooks = createOutbox({ sluice, webhooks: openHooks(sluices) });
    await expect(withHooks.webhook(run, { type: "a.b", data: 1 })).rejects.toMatchObject({
      option: "tenant",
    });
  });
});
