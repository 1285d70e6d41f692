/** The table of an outbox, and the SQL that creates it. */
import { createHash } from "node:crypto";

/** The name of an outbox's table. Both parts are lower-case identifiers, which need no quotes. */
export interface TableName {
  readonly schema: string;
  readonly table: string;
}

/** The version of the table. It is stored in the comment of the table. */
export const TABLE_VERSION = 1;

/** The number of shards. All rows of a key are in one shard. Only one relay at a time moves rows of a shard. */
export const SHARDS = 16;

/** What the comment of a table says: the version of the table, and the random id of the outbox. */
export interface TableMark {
  readonly version: number;
  readonly id: string;
}

/** Reads the comment of a table. Undefined if the table does not exist, or is not the table of an outbox. */
export function readMark(comment: string | null | undefined): TableMark | undefined {
  const [, version, id] =
    /^sluice outbox, version (\d+), id ([\da-f-]{36})$/.exec(comment ?? "") ?? [];
  return version === undefined || id === undefined ? undefined : { version: Number(version), id };
}

/** Returns the SQL that reads the comment of a table. */
export function markSql(name: TableName): string {
  return `SELECT obj_description(to_regclass('${sqlName(name)}'), 'pg_class') AS mark`;
}

/** Returns the table's name for SQL. */
export function sqlName({ schema, table }: TableName, suffix = ""): string {
  return `"${schema}"."${table}${suffix}"`;
}

/** Returns the name of the channel on which producers notify relays. */
export function channelOf(name: TableName): string {
  return `sluice_outbox_${createHash("sha256").update(sqlName(name)).digest("hex").slice(0, 16)}`;
}

/**
 * Returns the SQL that creates the table of an outbox, for your own migrations. Running it again changes nothing. It
 * needs Postgres 13 or later, and the right to create tables in the schema.
 */
export function createTableSql(name: TableName): string {
  const { table } = name;
  const [full, positions, stamp] = [
    sqlName(name),
    sqlName(name, "_position"),
    sqlName(name, "_stamp"),
  ];
  // Rows with a dedupeId keep their order, because the newest data must stay.
  const keys = "options->>'key', options->>'tenant', options->>'dedupeId'";
  return `CREATE SEQUENCE IF NOT EXISTS ${positions};

CREATE TABLE IF NOT EXISTS ${full} (
  -- Random, so that a restored database never gives an id to a second row.
  id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  -- The order of the rows of a key. Assigned again when the transaction commits.
  position bigint NOT NULL DEFAULT nextval('${positions}'),
  kind text NOT NULL DEFAULT 'queue' CHECK (kind IN ('queue', 'webhook')),
  target text NOT NULL,
  data json NOT NULL,
  options json NOT NULL DEFAULT '{}',
  order_key text GENERATED ALWAYS AS (coalesce(${keys})) STORED,
  shard smallint GENERATED ALWAYS AS (
    abs(hashtext(coalesce(${keys}, id::text)) % ${SHARDS})
  ) STORED,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  attempts integer NOT NULL DEFAULT 0,
  last_error text,
  next_try_at timestamptz,
  failed_at timestamptz
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

CREATE INDEX IF NOT EXISTS "${table}_waiting" ON ${full} (position) WHERE failed_at IS NULL;
CREATE INDEX IF NOT EXISTS "${table}_retried" ON ${full} (order_key, position)
  WHERE failed_at IS NULL AND next_try_at IS NOT NULL;
CREATE INDEX IF NOT EXISTS "${table}_failed" ON ${full} (failed_at) WHERE failed_at IS NOT NULL;
-- Finds the rows that other rows name in "after".
CREATE INDEX IF NOT EXISTS "${table}_own_id" ON ${full} ((options->>'id')) WHERE options->>'id' IS NOT NULL;

-- Runs when a transaction commits. A transaction that inserts early and commits late gets a later position than a
-- transaction that commits in between. No other transaction has inserted if the sequence stands at the row's position.
CREATE OR REPLACE FUNCTION ${stamp}() RETURNS trigger
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $stamp$
BEGIN
  IF (SELECT last_value FROM ${positions}) <> NEW.position THEN
    UPDATE ${full} SET position = nextval('${positions}') WHERE id = NEW.id;
  END IF;
  RETURN NULL;
END
$stamp$;

DO $create$
BEGIN
  IF NOT EXISTS (
    SELECT FROM pg_trigger WHERE tgrelid = '${full}'::regclass AND tgname = '${table}_stamp'
  ) THEN
    CREATE CONSTRAINT TRIGGER "${table}_stamp" AFTER INSERT ON ${full}
      DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.order_key IS NOT NULL)
      EXECUTE FUNCTION ${stamp}();
  END IF;
  -- The id distinguishes outboxes that fill the same queue.
  IF obj_description('${full}'::regclass, 'pg_class') IS NULL THEN
    EXECUTE format('COMMENT ON TABLE ${full} IS %L',
      'sluice outbox, version ${TABLE_VERSION}, id ' || gen_random_uuid());
  END IF;
END
$create$;
`;
}

/** Returns the SQL that inserts a row. Its parameters are the id, kind, target, data and options. */
export function insertSql(name: TableName, isNotified: boolean): string {
  const values = ["uuid", "text", "text", "json", "json"].map(
    (type, at) => `CAST($${at + 1} AS text)::${type}`,
  );
  const columns = "id, kind, target, data, options";
  const notify = isNotified ? ` RETURNING pg_notify('${channelOf(name)}', '')` : "";
  return `INSERT INTO ${sqlName(name)} (${columns}) VALUES (${values.join(", ")})${notify}`;
}
