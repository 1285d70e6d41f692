/**
 * Runs SQL in a transaction of the application. The SQL has the placeholders `$1`, `$2`, and so on, each once and in
 * this order. All parameters are texts.
 */
export type RunSql = (sql: string, parameters: readonly string[]) => Promise<unknown>;

/** A client of `pg` in which the application has begun a transaction. */
export interface PgTransaction {
  query(sql: string, parameters: string[]): Promise<unknown>;
}

/** A transaction in which the outbox writes: a client of `pg`, or any other transaction behind a {@link RunSql}. */
export type OutboxTransaction = RunSql | PgTransaction;

/** Returns the function that runs SQL in a transaction, or undefined if the value is not a transaction. */
export function runSqlOf(transaction: unknown): RunSql | undefined {
  // A transaction of Knex is a function too. It takes the name of a table.
  if (typeof transaction === "function") {
    return "raw" in transaction ? undefined : (transaction as RunSql);
  }
  if (typeof transaction !== "object" || transaction === null) return undefined;
  return "query" in transaction && typeof transaction.query === "function"
    ? withPg(transaction as PgTransaction)
    : undefined;
}

/** Writes in a transaction of `pg`. A client of `pg` can also be passed to the outbox directly. */
export function withPg(client: PgTransaction): RunSql {
  return (sql, parameters) => client.query(sql, [...parameters]);
}

/**
 * Writes in a transaction of Drizzle. `sql` is the tag that `drizzle-orm` exports: `db.transaction((tx) =>
 * outbox.enqueue(withDrizzle(tx, sql), emails, data))`.
 */
export function withDrizzle<Query>(
  transaction: { execute(query: Query): PromiseLike<unknown> },
  sql: (texts: TemplateStringsArray, ...values: string[]) => Query,
): RunSql {
  return async (text, parameters) => {
    const texts = text.split(/\$\d+/);
    const template = Object.assign(texts, { raw: texts });
    return transaction.execute(sql(template, ...parameters));
  };
}

/** Writes in an interactive transaction of Prisma: `prisma.$transaction((tx) => outbox.enqueue(withPrisma(tx), …))`. */
export function withPrisma(transaction: {
  $executeRawUnsafe(sql: string, ...parameters: string[]): PromiseLike<unknown>;
}): RunSql {
  return async (sql, parameters) => transaction.$executeRawUnsafe(sql, ...parameters);
}

/** Writes in a transaction of Knex: `knex.transaction((trx) => outbox.enqueue(withKnex(trx), …))`. */
export function withKnex(transaction: {
  raw(sql: string, parameters: string[]): PromiseLike<unknown>;
}): RunSql {
  return async (sql, parameters) => transaction.raw(sql.replaceAll(/\$\d+/g, "?"), [...parameters]);
}
