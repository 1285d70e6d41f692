/** Creates the table of an outbox, and reports and changes the state of its rows. */
import { InvalidOptionError } from "../../core/errors.ts";
import type { Connections } from "./database.ts";
import type { RetryOptions } from "./options.ts";
import {
  channelOf,
  createTableSql,
  markSql,
  readMark,
  sqlName,
  TABLE_VERSION,
  type TableMark,
  type TableName,
} from "./table.ts";

/** The numbers of rows in an outbox. */
export interface OutboxCounts {
  /** The number of rows that were not moved yet, without failed rows: `12`. */
  readonly waiting: number;
  /** The number of rows that relays no longer try: `1`. */
  readonly failed: number;
  /** The age of the oldest waiting row, in ms. 0 without waiting rows. */
  readonly lagMs: number;
}

/** The state of an outbox. */
export interface OutboxStatus extends OutboxCounts {
  /** The rows that their queue has rejected, the oldest first. At most 100. */
  readonly rejected: readonly RejectedRow[];
}

/** A row that its queue or webhook sender has rejected. */
export interface RejectedRow {
  readonly id: string;
  /** The name of the queue or of the webhook sender. */
  readonly target: string;
  /** The number of failed attempts: `3`. */
  readonly attempts: number;
  /** The message of the last error. */
  readonly error: string;
  /** When a relay tries the row again. Undefined for a failed row, which only `retry` moves. */
  readonly nextTryAt: Date | undefined;
}

export interface OutboxState {
  migrate(): Promise<void>;
  /** @throws {@link InvalidOptionError} when the table is missing or of another version. */
  readMark(where: string): Promise<TableMark>;
  /** Counts the rows. The table must exist. */
  counts(): Promise<OutboxCounts>;
  status(): Promise<OutboxStatus>;
  retry(options: RetryOptions): Promise<number>;
}

const MOST_LISTED = 100;

export function createState({
  name,
  connections,
  notify,
}: {
  readonly name: TableName;
  readonly connections: Connections;
  readonly notify: boolean;
}): OutboxState {
  const table = sqlName(name);
  const value = `${name.schema}.${name.table}`;

  async function findMark(): Promise<TableMark | undefined> {
    const [row] = await connections.query(markSql(name));
    return readMark(row?.["mark"]);
  }

  async function readMarkOf(where: string): Promise<TableMark> {
    const mark = await findMark();
    if (mark?.version === TABLE_VERSION) return mark;
    const remedy =
      mark === undefined
        ? "the database has no such outbox; call outbox.migrate(), or run the SQL of outbox.sql()"
        : `the table has version ${mark.version}, and this package needs version ${TABLE_VERSION}; install the same version of sluice everywhere`;
    throw new InvalidOptionError({ where, option: "table", value, remedy });
  }

  async function readCounts(): Promise<OutboxCounts> {
    const [counts] =
      await connections.query(`SELECT count(*) FILTER (WHERE failed_at IS NULL)::text AS waiting,
        count(*) FILTER (WHERE failed_at IS NOT NULL)::text AS failed,
        (1000 * extract(epoch FROM clock_timestamp() - min(created_at) FILTER (WHERE failed_at IS NULL)))::text AS lag
      FROM ${table}`);
    return {
      waiting: Number(counts!["waiting"]),
      failed: Number(counts!["failed"]),
      lagMs: Math.max(0, Math.round(Number(counts!["lag"] ?? 0))),
    };
  }

  return {
    counts: readCounts,
    async migrate() {
      // The SQL would wait for open transactions of producers, although it changes nothing.
      if ((await findMark()) !== undefined) return void (await readMarkOf("outbox.migrate()"));
      const lock = `BEGIN; SELECT pg_advisory_xact_lock(hashtext('sluice outbox'))`;
      await connections.inTransaction(lock, (query) => query(createTableSql(name)));
      await readMarkOf("outbox.migrate()");
    },
    readMark: readMarkOf,
    async status() {
      await readMarkOf("outbox.status()");
      const [counts, rejected] = await Promise.all([
        readCounts(),
        connections.query(`SELECT id::text, target, attempts::text, last_error,
            (1000 * extract(epoch FROM next_try_at))::text AS next_ms
          FROM ${table} WHERE attempts > 0 ORDER BY position LIMIT ${MOST_LISTED}`),
      ]);
      return {
        ...counts,
        rejected: rejected.map((row) => ({
          id: row["id"]!,
          target: row["target"]!,
          attempts: Number(row["attempts"]),
          error: row["last_error"] ?? "",
          nextTryAt: row["next_ms"] === null ? undefined : new Date(Number(row["next_ms"])),
        })),
      };
    },
    async retry({ id, target }) {
      await readMarkOf("outbox.retry()");
      const rows = await connections.query(
        `UPDATE ${table} SET attempts = 0, last_error = NULL, next_try_at = NULL, failed_at = NULL
        WHERE attempts > 0 AND ($1::uuid IS NULL OR id = $1::uuid)
          AND ($2::text IS NULL OR target = $2::text) RETURNING id::text`,
        [id ?? null, target ?? null],
      );
      if (notify && rows.length > 0) {
        await connections.query(`SELECT pg_notify('${channelOf(name)}', '')::text AS notified`);
      }
      return rows.length;
    },
  };
}
