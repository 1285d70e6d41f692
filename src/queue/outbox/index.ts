import { randomUUID } from "node:crypto";
import { assertArgumentCount } from "../../core/input/arguments.ts";
import { ClosedError, InvalidOptionError } from "../../core/errors.ts";
import type { Sluice } from "../../sluice/create-sluice.ts";
import { partsOf } from "../../sluice/parts.ts";
import type { Webhooks } from "../../webhooks/create-webhooks.ts";
import { messageRowsOf, type SendOptions } from "../../webhooks/sending/send.ts";
import { outboxRowsOf } from "../enqueue/enqueue.ts";
import type { EnqueueOptions } from "../options.ts";
import type { Queue } from "../queue.ts";
import { createConnections } from "./database.ts";
import {
  readOutboxOptions,
  readRelayOptions,
  readRetryOptions,
  type OutboxOptions as OptionsOf,
  type RelayOptions,
  type RetryOptions,
} from "./options.ts";
import { startRelay, type Relay } from "./relay.ts";
import { createState, type OutboxStatus } from "./state.ts";
import { createTableSql, insertSql, type TableName } from "./table.ts";
import { runSqlOf, type OutboxTransaction } from "./transactions.ts";

/** The options of `createOutbox()`. Pass the same options in all processes. */
export interface OutboxOptions extends OptionsOf<Sluice, Webhooks> {}

/** A row that was written. */
export interface OutboxEntry {
  /**
   * The id of the row: a UUID. It becomes the id of the job or of the webhook message, unless the options name another
   * id. With `dedupeId` or `keep`, another job may stand for the row.
   */
  readonly id: string;
}

/** Stores jobs and webhooks in the application's own database transactions. Relays move them to Redis. */
export interface Outbox {
  /**
   * Writes a job into the outbox, in the caller's transaction. If the transaction commits, a relay stores the job in
   * the queue exactly once. If it rolls back, there is no job. Jobs with a key are stored in the order of the commits.
   * Needs no Redis. `delayMs` begins now, or once the jobs in `after` have ended. Those may be other rows of the outbox.
   *
   * @throws {@link InvalidOptionError} when the transaction cannot run SQL, or the outbox does not have the queue. Also
   * when an option can never work, the job is recurring, or the queue rejects the data. Rejects with the error of the
   * database if the row was not written.
   */
  enqueue<Data, Result, Input>(
    transaction: OutboxTransaction,
    queue: Queue<Data, Result, Input>,
    data: Input,
    options?: EnqueueOptions,
  ): Promise<OutboxEntry>;
  /**
   * Writes a webhook into the outbox, in the caller's transaction. A relay sends it as `webhooks.send` does, in the
   * order of the commits of each tenant. Needs no Redis.
   *
   * @throws {@link InvalidOptionError} when the transaction cannot run SQL, the outbox has no webhook sender, or an
   * option can never work. Rejects with the error of the database if it did not write the row.
   */
  webhook(transaction: OutboxTransaction, options: SendOptions): Promise<OutboxEntry>;
  /**
   * Creates the table, unless it exists. Several processes may do this at once.
   *
   * @throws {@link InvalidOptionError} when the outbox has no database, or the table is of a newer version.
   */
  migrate(): Promise<void>;
  /** Returns the SQL that `migrate` runs, for your own migrations. Running it again changes nothing. */
  sql(): string;
  /**
   * Starts a relay in this process. Several processes may run one each: they share the keys.
   *
   * @throws {@link InvalidOptionError} when an option can never work, or the outbox has no database.
   * @throws {@link ClosedError} when the sluice is closed.
   */
  startRelay(options?: RelayOptions): Relay;
  /**
   * Counts the rows, and lists up to 100 rows that their queue rejected.
   *
   * @throws {@link InvalidOptionError} when the outbox has no database or no table.
   */
  status(): Promise<OutboxStatus>;
  /**
   * Lets relays try rejected rows again at once, with all attempts. Returns the number of rows. Throws as `status`
   * does.
   */
  retry(options?: RetryOptions): Promise<number>;
}

/**
 * Creates an outbox on a sluice. It opens a connection to the database on first use, and closes with its sluice.
 *
 * @throws {@link InvalidOptionError} when an option can never work.
 * @throws {@link ClosedError} when the sluice is closed.
 */
export function createOutbox(options: OutboxOptions): Outbox {
  const where = "createOutbox()";
  const read = readOutboxOptions(where, options);
  const { queues, database, notify } = read;
  const name: TableName = { schema: read.schema, table: read.table };
  const { logger, onClose, insight } = partsOf(where, read.sluice);
  const messages = messageRowsOf(read.webhooks);
  if (read.webhooks !== undefined && messages === undefined) {
    const remedy = "give the result of createWebhooks()";
    throw new InvalidOptionError({ where, option: "webhooks", value: read.webhooks, remedy });
  }
  const webhooks = read.webhooks as Webhooks | undefined;
  const connections = createConnections(where, database);
  const state = createState({ name, connections, notify });
  const relays = new Set<Relay>();
  let isClosed = false;
  onClose(async () => {
    isClosed = true;
    await Promise.all([...relays].map((relay) => relay.close()));
    await connections.close();
  });

  function assertDatabase(of: string): void {
    if (isClosed) throw new ClosedError("The outbox");
    if (database !== undefined) return;
    const remedy = "give createOutbox() a postgres:// URL, or a Pool of the package pg";
    throw new InvalidOptionError({ where: of, option: "database", value: undefined, remedy });
  }

  async function insert(
    of: string,
    transaction: OutboxTransaction,
    row: { kind: string; target: string; json: string; options: object },
  ): Promise<OutboxEntry> {
    const run = runSqlOf(transaction);
    if (run === undefined) {
      const remedy =
        "give a client of pg, or wrap the transaction: withDrizzle(tx, sql), withPrisma(tx) or withKnex(trx)";
      throw new InvalidOptionError({
        where: of,
        option: "transaction",
        value: transaction,
        remedy,
      });
    }
    const id = randomUUID();
    const { kind, target, json } = row;
    await run(insertSql(name, notify), [id, kind, target, json, JSON.stringify(row.options)]);
    return { id };
  }

  const outbox: Outbox = {
    async enqueue(transaction, queue, data, given) {
      const of = "outbox.enqueue()";
      const found = queues.find((each) => each === queue);
      const rows = outboxRowsOf(found);
      if (found === undefined || rows === undefined) {
        const known = queues.map((each) => each.name).join(", ") || "none";
        const remedy = `give one of the queues of createOutbox(): ${known}`;
        const value = outboxRowsOf(queue) === undefined ? queue : queue.name;
        throw new InvalidOptionError({ where: of, option: "queue", value, remedy });
      }
      const { json, options: read } = await rows.take(of, data, given);
      return insert(of, transaction, { kind: "queue", target: found.name, json, options: read });
    },
    async webhook(transaction, given) {
      const of = "outbox.webhook()";
      if (webhooks === undefined || messages === undefined) {
        const remedy = "give createOutbox() the result of createWebhooks()";
        throw new InvalidOptionError({ where: of, option: "webhooks", value: undefined, remedy });
      }
      const { json, options: read } = await messages.take(of, given);
      const target = webhooks.queue.name;
      return insert(of, transaction, { kind: "webhook", target, json, options: read });
    },
    async migrate() {
      assertDatabase("outbox.migrate()");
      await state.migrate();
    },
    sql: () => createTableSql(name),
    startRelay(given) {
      const of = "outbox.startRelay()";
      const options = readRelayOptions(of, given);
      assertDatabase(of);
      if (queues.length === 0 && webhooks === undefined) {
        const remedy =
          "give createOutbox() the queues and webhooks of all rows; a relay rejects the rows of others";
        throw new InvalidOptionError({ where: of, option: "queues", value: queues, remedy });
      }
      const byName = new Map(queues.map((queue) => [queue.name, outboxRowsOf(queue)!]));
      const started = startRelay({
        name,
        queues: byName,
        webhooks,
        connections,
        options,
        logger,
        notify,
        readId: async () => (await state.readMark(of)).id,
        counts: () => state.counts(),
        report: (report) => insight.reportOutbox(report),
      });
      const relay: Relay = {
        async close() {
          await started.close();
          relays.delete(relay);
        },
      };
      relays.add(relay);
      return assertArgumentCount(relay);
    },
    async status() {
      assertDatabase("outbox.status()");
      return state.status();
    },
    async retry(given) {
      const read = readRetryOptions("outbox.retry()", given);
      assertDatabase("outbox.retry()");
      return state.retry(read);
    },
  };
  return assertArgumentCount(outbox, { throws: ["startRelay", "sql"] });
}

/**
 * Returns the SQL that creates the table of an outbox, for a migration tool that has no sluice.
 *
 * @throws {@link InvalidOptionError} when a name can never work.
 */
export function outboxSql(
  options: { readonly schema?: string | undefined; readonly table?: string | undefined } = {},
): string {
  const { schema, table } = readOutboxOptions("outboxSql()", options);
  return createTableSql({ schema, table });
}

export type { Relay, RelayOptions, RetryOptions, OutboxStatus };

export type { RejectedRow } from "./state.ts";

export type { Database, PgClient, PgPool } from "./database.ts";

export type { SendOptions } from "../../webhooks/sending/send.ts";

export {
  withDrizzle,
  withKnex,
  withPg,
  withPrisma,
  type OutboxTransaction,
  type PgTransaction,
  type RunSql,
} from "./transactions.ts";
