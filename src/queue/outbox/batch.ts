/** Moves one batch of rows in one transaction. */
import type { Logger } from "../../core/logger.ts";
import type { Connections, Query } from "./database.ts";
import { moveRows, type Claim, type MoveParts, type Row } from "./move.ts";
import type { ReadRelayOptions } from "./options.ts";
import { sqlName, type TableName } from "./table.ts";

export interface BatchParts extends MoveParts {
  readonly name: TableName;
  /** The id of the outbox. */
  readonly outbox: string;
  readonly connections: Pick<Connections, "inTransaction">;
  readonly options: ReadRelayOptions;
  readonly logger: Logger;
  /** Called with the number of rows that a transaction has moved. */
  readonly onMoved: (rows: number) => void;
}

interface BatchResult {
  readonly moved: number;
  /** True if the batch had as many rows as it may have, so that there may be more. */
  readonly isFull: boolean;
}

/**
 * How long after the start of a transaction Redis accepts its jobs. Redis remembers stored rows for longer. So if a
 * relay freezes, and another relay moves its rows, the first one cannot store these rows later.
 */
const STORE_WITHIN_MS = 20_000;
/** Postgres ends the transaction of a relay that is idle for this long, so that another relay gets its rows. */
const IDLE_MS = 30_000;
/** The most bytes of data in one transaction, as Postgres stores them. */
const MOST_BYTES = 16_000_000;
/** How long the rows of a full queue, or of a key without room, are not tried again. */
const FULL_WAIT_MS = 1_000;
/** The wait after a failed attempt doubles from one second up to this. */
const LONGEST_WAIT_SECONDS = 60;
const UUID = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$";

/** The plan has to follow the index on the position, also while the table's statistics are older than its rows. */
const BEGIN = `BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
  SET LOCAL idle_in_transaction_session_timeout = ${IDLE_MS};
  SET LOCAL jit = off;
  SET LOCAL enable_seqscan = off;
  SET LOCAL enable_bitmapscan = off;
  SET LOCAL enable_sort = off`;

/** Returns the function that moves a batch of rows of some shards. */
export function createBatches(
  parts: BatchParts,
): (shards: readonly number[]) => Promise<BatchResult> {
  const { outbox, queues, connections, options, onMoved } = parts;
  const { batchSize } = options;
  const full = createFull();
  const statements = createStatements(parts);

  return async (wanted) => {
    const untilMs = new Map<string, number>();
    await Promise.all(
      [...queues].map(async ([name, queue]) => {
        untilMs.set(name, (await queue.nowMs()) + STORE_WITHIN_MS);
      }),
    );
    const claim: Claim = { outbox, untilMs };
    const { moved, found, trouble } = await connections.inTransaction(BEGIN, async (query) => {
      const shards = await statements.claimShards(query, wanted);
      if (shards.length === 0) return { moved: 0, found: 0, trouble: undefined };
      const rows = await statements.lockRows(query, shards, full.now());
      if (rows.length === 0) return { moved: 0, found: 0, trouble: undefined };
      const result = await moveRows(rows, claim, parts);
      for (const each of result.full) full.note(each);
      if (result.moved.length > 0) await statements.deleteRows(query, result.moved);
      if (result.rejected.length > 0) await statements.rejectRows(query, result.rejected);
      return { moved: result.moved.length, found: rows.length, trouble: result.trouble };
    });
    onMoved(moved);
    // The rows that were moved are deleted by now.
    if (trouble !== undefined) throw trouble;
    return { moved, isFull: found >= batchSize };
  };
}

interface FullTarget {
  readonly target: string;
  /** Undefined if the queue has no room for any key. */
  readonly orderKey: string | undefined;
}

/** Remembers which queues and keys have no room, so that their rows do not fill the batches. */
function createFull() {
  const known = new Map<string, FullTarget & { readonly untilMs: number }>();
  return {
    note(full: FullTarget): void {
      const name = JSON.stringify([full.target, full.orderKey]);
      known.set(name, { ...full, untilMs: performance.now() + FULL_WAIT_MS });
    },
    now(): readonly FullTarget[] {
      const nowMs = performance.now();
      for (const [name, { untilMs }] of known) if (untilMs <= nowMs) known.delete(name);
      return [...known.values()];
    },
  };
}

function createStatements({ name, options, logger }: BatchParts) {
  const table = sqlName(name);
  const { batchSize, maxAttempts } = options;

  return {
    /** Takes the shards that no other relay has, until the transaction ends. */
    async claimShards(query: Query, wanted: readonly number[]): Promise<readonly string[]> {
      const sql = `SELECT shard::text FROM unnest($1::int[]) AS shard
        WHERE pg_try_advisory_xact_lock(hashtext($2), shard)`;
      const rows = await query(sql, [wanted, table]);
      return rows.map(({ shard }) => shard!);
    },

    /**
     * Locks the first rows of these shards. This is a separate statement after the one that takes the shards, because it
     * must see what the last relay of these shards has committed. A row that is tried again later holds the rows of its
     * key back. A row whose parents are rows stays until these are moved: Redis takes an unknown parent for one that has
     * ended and was removed.
     */
    async lockRows(
      query: Query,
      shards: readonly string[],
      full: readonly FullTarget[],
    ): Promise<readonly Row[]> {
      const sql = `WITH due AS MATERIALIZED (
          SELECT id, position, kind, target, order_key, data, options, pg_column_size(data) AS size
          FROM ${table} AS o
          WHERE shard = ANY($1::smallint[]) AND failed_at IS NULL
            AND (next_try_at IS NULL OR next_try_at <= now())
            AND (kind <> 'queue' OR target <> ALL($2::text[]))
            AND NOT EXISTS (
              SELECT FROM unnest($3::text[], $4::text[]) AS f (target, order_key)
              WHERE o.kind = 'queue' AND f.target = o.target AND f.order_key = o.order_key)
            AND NOT EXISTS (
              SELECT FROM ${table} AS earlier
              WHERE earlier.order_key = o.order_key AND earlier.position < o.position
                AND earlier.failed_at IS NULL AND earlier.next_try_at > now()
                AND earlier.kind = o.kind AND earlier.target = o.target)
            AND (json_typeof(o.options->'after') IS DISTINCT FROM 'array' OR NOT EXISTS (
              SELECT FROM json_array_elements(o.options->'after') AS a (job), LATERAL (
                SELECT id, kind, target FROM ${table}
                WHERE id = CASE WHEN job->>'id' ~ '${UUID}' THEN (job->>'id')::uuid END
                UNION ALL
                SELECT id, kind, target FROM ${table} WHERE options->>'id' = job->>'id') AS parent
              WHERE parent.kind = 'queue' AND parent.target = job->>'queue' AND parent.id <> o.id))
          ORDER BY position LIMIT $5 FOR UPDATE OF o SKIP LOCKED)
        SELECT id::text, kind, target, order_key, data::text, options::text
        FROM (SELECT due.*, sum(size) OVER (ORDER BY position) - size AS before FROM due) AS sized
        WHERE before < ${MOST_BYTES} ORDER BY position`;
      const ofQueues = full.filter(({ orderKey }) => orderKey === undefined);
      const ofKeys = full.filter(({ orderKey }) => orderKey !== undefined);
      const rows = await query(sql, [
        shards,
        ofQueues.map(({ target }) => target),
        ofKeys.map(({ target }) => target),
        ofKeys.map(({ orderKey }) => orderKey),
        batchSize,
      ]);
      return rows.map((row) => ({
        id: row["id"]!,
        isWebhook: row["kind"] === "webhook",
        target: row["target"]!,
        orderKey: row["order_key"] ?? undefined,
        json: row["data"]!,
        options: JSON.parse(row["options"]!) as object,
      }));
    },

    async deleteRows(query: Query, ids: readonly string[]): Promise<void> {
      await query(`DELETE FROM ${table} WHERE id = ANY($1::uuid[])`, [ids]);
    },

    async rejectRows(
      query: Query,
      rejected: readonly { readonly row: Row; readonly reason: string }[],
    ): Promise<void> {
      const sql = `UPDATE ${table} AS o SET attempts = attempts + 1, last_error = r.reason,
          failed_at = CASE WHEN attempts + 1 >= $3 THEN clock_timestamp() END,
          next_try_at = CASE WHEN attempts + 1 < $3 THEN clock_timestamp()
            + least(2.0 ^ least(attempts, 30), ${LONGEST_WAIT_SECONDS}) * interval '1 second' END
        FROM unnest($1::uuid[], $2::text[]) AS r (id, reason)
        WHERE o.id = r.id RETURNING (failed_at IS NOT NULL)::text AS failed, attempts::text`;
      const ids = rejected.map(({ row }) => row.id);
      // Postgres stores no NUL character.
      const reasons = rejected.map(({ reason }) => reason.replaceAll("\u0000", "").slice(0, 2_000));
      await query(sql, [ids, reasons, maxAttempts]);
      for (const { row, reason } of rejected) {
        const { id, target } = row;
        const what = `The outbox could not move a row to "${target}"`;
        logger.warn({ id, target, reason }, `${what}; outbox.status() shows it: ${reason}`);
      }
    },
  };
}
