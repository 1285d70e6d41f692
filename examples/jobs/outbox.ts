/**
 * Takes orders in transactions of Postgres, together with a job for each order. Some transactions roll back, so their
 * orders get no mail. Needs $REDIS_URL and $DATABASE_URL.
 */
import { randomUUID } from "node:crypto";
import { EventEmitter, once } from "node:events";
import { Pool } from "pg";
import { createSluice } from "sluice";
import { createOutbox } from "sluice/outbox";
import { onStop, ownPrefix } from "../shared/own-prefix.ts";

interface Mail {
  readonly order: number;
}

const ORDERS = 10;
const OUT_OF_STOCK = 3;

const name = randomUUID().slice(0, 8);
const schema = `sluice_example_${name}`;
await using own = ownPrefix(`outbox-${name}`);
const pool = new Pool({ connectionString: process.env["DATABASE_URL"] });
await pool.query(`CREATE SCHEMA ${schema}; CREATE TABLE ${schema}.orders (id int PRIMARY KEY)`);

const sluice = createSluice({ prefix: own.prefix });
const mails = sluice.queue<Mail>("mails", {
  bucket: sluice.bucket("mail-provider", { rate: "20/s" }),
});
const outbox = createOutbox({ sluice, queues: [mails], database: pool, schema });
await outbox.migrate();

async function close(): Promise<void> {
  await sluice.close();
  await pool.query(`DROP SCHEMA ${schema} CASCADE`);
  await pool.end();
}
onStop(async () => {
  await close();
  await own[Symbol.asyncDispose]();
});

/** Stores the order and its job, or neither of them. */
async function takeOrder(order: number): Promise<void> {
  const client = await pool.connect();
  try {
    await client.query("BEGIN");
    await client.query(`INSERT INTO ${schema}.orders VALUES ($1)`, [order]);
    await outbox.enqueue(client, mails, { order }, { key: "acme" });
    if (order % OUT_OF_STOCK === 0) throw new Error(`order ${order} is out of stock`);
    await client.query("COMMIT");
  } catch (error) {
    await client.query("ROLLBACK");
    console.log(error instanceof Error ? error.message : error);
  } finally {
    client.release();
  }
}

for (let order = 1; order <= ORDERS; order++) await takeOrder(order);
console.log(`waiting in the outbox: ${(await outbox.status()).waiting}`);

// In production, relays and workers run in separate processes.
outbox.startRelay();
const expected = ORDERS - Math.floor(ORDERS / OUT_OF_STOCK);
const progress = new EventEmitter();
let sent = 0;
sluice.worker(mails, async ({ data }) => {
  console.log(`mail for order ${data.order}`);
  sent += 1;
  if (sent === expected) progress.emit("all sent");
});
await once(progress, "all sent");
await close();
