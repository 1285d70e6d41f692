import type { OutboxRows } from "../enqueue/enqueue.ts";
import type { Connections } from "./database.ts";
import { sqlName, type TableName } from "./table.ts";

export interface SweepParts {
  readonly queues: ReadonlyMap<string, OutboxRows>;
  readonly connections: Pick<Connections, "query">;
  readonly name: TableName;
  /** The id of the outbox. */
  readonly outbox: string;
  readonly rememberMs: number;
}

const AT_ONCE = 1_000;

/**
 * Lets Redis forget rows that were moved `rememberMs` ago or earlier, and that the database no longer has. Rows that it
 * still has were stored by a relay that ended before it deleted them.
 */
export async function sweep(
  { queues, connections, name, outbox, rememberMs }: SweepParts,
  ended: AbortSignal,
): Promise<void> {
  for (const queue of queues.values()) {
    const beforeMs = (await queue.nowMs()) - rememberMs;
    for (let offset = 0; !ended.aborted;) {
      const ids = await queue.stored({ outbox, beforeMs, offset, limit: AT_ONCE });
      if (ids.length === 0) break;
      const sql = `SELECT id::text FROM ${sqlName(name)} WHERE id = ANY($1::uuid[])`;
      const found = new Set((await connections.query(sql, [ids])).map(({ id }) => id));
      const gone = ids.filter((id) => !found.has(id));
      if (gone.length > 0) await queue.forget(outbox, gone);
      offset += found.size;
    }
  }
}
