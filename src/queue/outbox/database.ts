/** The connections of relays to the database. */
import { InvalidOptionError } from "../../core/errors.ts";

/** The part of a `Pool` of `pg` that an outbox uses. */
export interface PgPool {
  connect(): Promise<PgClient>;
  readonly totalCount: number;
}

/** The part of a client of `pg` that an outbox uses. */
export interface PgClient {
  query(sql: string, values?: unknown[]): Promise<{ rows: Record<string, unknown>[] }>;
  release(error?: Error | boolean): void;
  on(event: "notification" | "end" | "error", listener: (problem: unknown) => void): unknown;
  removeListener(
    event: "notification" | "end" | "error",
    listener: (problem: unknown) => void,
  ): unknown;
}

/** A URL of a database, or a pool of connections to it. */
export type Database = string | PgPool;

type Row = Readonly<Record<string, string | null>>;

/** Runs SQL, and returns its rows. All columns are texts or null, because applications may change pg's parsers. */
export type Query = (sql: string, values?: readonly unknown[]) => Promise<readonly Row[]>;

export interface Connections {
  query: Query;
  /** Runs a function in a transaction. Rolls back if the function rejects. `begin` is the SQL that begins it. */
  inTransaction<Result>(begin: string, run: (query: Query) => Promise<Result>): Promise<Result>;
  /** Takes a connection for a longer time. */
  connect(): Promise<PgClient>;
  close(): Promise<void>;
}

/** Enough for a relay with its three connections, and for `status` and `retry`. */
const CONNECTIONS = 5;

/** Opens no connection yet. A pool of the application stays open when the outbox closes. */
export function createConnections(where: string, database: Database | undefined): Connections {
  let opening: Promise<PgPool> | undefined;
  let own: { end(): Promise<void> } | undefined;

  async function open(): Promise<PgPool> {
    if (database === undefined) {
      const remedy = "give a postgres:// URL, or a Pool of the package pg";
      throw new InvalidOptionError({ where, option: "database", value: undefined, remedy });
    }
    if (typeof database !== "string") return database;
    const { Pool } = await load(where);
    const pool = new Pool({
      connectionString: database,
      max: CONNECTIONS,
      application_name: "sluice outbox",
      keepAlive: true,
      connectionTimeoutMillis: 10_000,
      // Without a limit, a relay would wait without end for a server that is unreachable.
      query_timeout: 60_000,
    });
    // An idle connection has ended. The next query opens another one.
    pool.on("error", () => undefined);
    own = pool;
    return pool;
  }

  async function connect(): Promise<PgClient> {
    opening ??= open().catch((error: unknown) => {
      opening = undefined;
      throw error;
    });
    return (await opening).connect();
  }

  async function withClient<Result>(run: (query: Query) => Promise<Result>): Promise<Result> {
    const client = await connect();
    // Without a listener, a connection that ends between two queries would end the process.
    client.on("error", ignore);
    let failure: Error | undefined;
    try {
      return await run(async (sql, values) => {
        const { rows } = await client.query(sql, values && [...values]);
        return rows as Row[];
      });
    } catch (error) {
      failure = error instanceof Error ? error : new Error(String(error));
      throw error;
    } finally {
      client.removeListener("error", ignore);
      // Closes a connection that met an error, which also ends its transaction.
      client.release(failure);
    }
  }

  return {
    connect,
    query: (sql, values) => withClient((query) => query(sql, values)),
    inTransaction: (begin, run) =>
      withClient(async (query) => {
        await query(begin);
        const result = await run(query);
        await query("COMMIT");
        return result;
      }),
    async close() {
      await opening?.catch(ignore);
      await own?.end();
      own = undefined;
      opening = undefined;
    },
  };
}

function ignore(): void {}

async function load(where: string): Promise<typeof import("pg")> {
  try {
    const module = await import("pg");
    // Older versions of pg have only a default export.
    return "Pool" in module ? module : (module as { default: typeof module }).default;
  } catch (cause) {
    const remedy = "a URL needs the package pg: npm install pg";
    throw new InvalidOptionError({ where, option: "database", value: "***", remedy, cause });
  }
}
