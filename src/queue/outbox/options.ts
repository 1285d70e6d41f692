import * as z from "zod";
import { InvalidOptionError } from "../../core/errors.ts";
import { LONGEST_MS, readOptions, wholeNumber } from "../../core/input/options.ts";
import { outboxRowsOf } from "../enqueue/enqueue.ts";
import type { Database } from "./database.ts";

/** Any queue, whatever its jobs are. */
interface AnyQueue {
  readonly name: string;
}

/** The options of `createOutbox()`. Pass the same options in all processes. */
export interface OutboxOptions<Sluice, Webhooks> {
  readonly sluice: Sluice;
  /** The queues to which rows may go. Every relay needs all queues. Defaults to none. */
  readonly queues?: readonly AnyQueue[] | undefined;
  /** The sender for `outbox.webhook`. Defaults to none. */
  readonly webhooks?: Webhooks | undefined;
  /**
   * The database for relays and for `migrate`, `status` and `retry`: a `postgres://` URL, or a `Pool` of `pg`. A relay
   * uses three connections. A URL needs the package `pg`. A process that only enqueues needs no database here: it writes
   * in its own transactions. Defaults to none.
   */
  readonly database?: Database | undefined;
  /** The schema of the table: lower-case letters, digits and `_`. Defaults to `"public"`. */
  readonly schema?: string | undefined;
  /** The name of the table: lower-case letters, digits and `_`. Defaults to `"sluice_outbox"`. */
  readonly table?: string | undefined;
  /**
   * Whether each row notifies the relays when it is committed. Postgres commits notifying transactions one after
   * another, so set this to false above some thousand commits per second. Relays then find rows by polling only.
   * Defaults to true.
   */
  readonly notify?: boolean | undefined;
}

/** The options of `startRelay`. */
export interface RelayOptions {
  /** How often an idle relay looks for rows without a notification, in ms. Defaults to 1,000. */
  readonly pollMs?: number | undefined;
  /** The most rows that one transaction moves. Defaults to 1,000. */
  readonly batchSize?: number | undefined;
  /**
   * How often the relay tries a row that its queue rejects, with growing waits from 1 s to 60 s. The row then counts as
   * failed, and later rows of its key are moved. Defaults to 8, which takes about two minutes.
   */
  readonly maxAttempts?: number | undefined;
  /**
   * How long Redis remembers a row after its job was stored, in ms. Within this time, a database that has lost its
   * latest commits cannot cause a second job. Redis needs about 130 bytes for each row. Defaults to 600,000 (10
   * minutes).
   */
  readonly rememberMs?: number | undefined;
}

/** Filters the rows for `retry`. */
export interface RetryOptions {
  /** The id of one row. Defaults to all rows. */
  readonly id?: string | undefined;
  /** The name of a queue or webhook sender. Defaults to all. */
  readonly target?: string | undefined;
}

const IDENTIFIER = z.string({ error: "give a name" }).regex(/^[a-z_][a-z0-9_]{0,47}$/, {
  error: 'give up to 48 lower-case letters, digits and "_", without a digit at the beginning',
});
const OUTBOX = z.strictObject({
  sluice: z.unknown().optional(),
  queues: z.array(z.unknown(), { error: "give an array of queues" }).optional(),
  webhooks: z.unknown().optional(),
  database: z.unknown().optional(),
  schema: IDENTIFIER.optional(),
  table: IDENTIFIER.optional(),
  notify: z.boolean({ error: "give true or false" }).optional(),
});
const RELAY = z.strictObject({
  pollMs: wholeNumber(10, LONGEST_MS, "milliseconds").optional(),
  batchSize: wholeNumber(1, 10_000, "rows").optional(),
  maxAttempts: wholeNumber(1, 1_000, "attempts").optional(),
  rememberMs: wholeNumber(60_000, LONGEST_MS, "milliseconds").optional(),
});
const RETRY = z.strictObject({
  id: z.uuid({ error: "give the id of a row, as status() returns it" }).optional(),
  target: z.string({ error: "give the name of a queue" }).min(1).optional(),
});

export interface ReadOutboxOptions {
  readonly sluice: unknown;
  readonly queues: readonly AnyQueue[];
  readonly webhooks: unknown;
  readonly database: Database | undefined;
  readonly schema: string;
  readonly table: string;
  readonly notify: boolean;
}

/** @throws {@link InvalidOptionError} */
export function readOutboxOptions(where: string, given: unknown): ReadOutboxOptions {
  const isSecret = ([name]: readonly PropertyKey[]): boolean => name === "database";
  const read = readOptions(where, OUTBOX, given, isSecret);
  const queues = read.queues ?? [];
  for (const [at, queue] of queues.entries()) {
    if (outboxRowsOf(queue) !== undefined) continue;
    const remedy = "give the result of sluice.queue()";
    throw new InvalidOptionError({ where, option: `queues[${at}]`, value: queue, remedy });
  }
  const names = queues.map((queue) => (queue as AnyQueue).name);
  const double = names.find((name, at) => names.indexOf(name) !== at);
  if (double !== undefined) {
    const remedy = "give each queue once";
    throw new InvalidOptionError({ where, option: "queues", value: double, remedy });
  }
  return {
    sluice: read.sluice,
    webhooks: read.webhooks,
    queues: queues as readonly AnyQueue[],
    database: readDatabase(where, read.database),
    schema: read.schema ?? "public",
    table: read.table ?? "sluice_outbox",
    notify: read.notify ?? true,
  };
}

/** A relay moves rows through two connections, and listens on a third one. */
const LEAST_CONNECTIONS = 3;

function readDatabase(where: string, given: unknown): Database | undefined {
  if (given === undefined) return undefined;
  if (typeof given === "string" && /^postgres(?:ql)?:\/\//.test(given)) return given;
  const isPool =
    typeof given === "object" && given !== null && "connect" in given && "totalCount" in given;
  if (isPool) {
    const most = (given as { readonly options?: { readonly max?: number } }).options?.max;
    if (most === undefined || most >= LEAST_CONNECTIONS) return given as Database;
    const remedy = `give a Pool with a max of at least ${LEAST_CONNECTIONS}, because a relay uses that many connections`;
    throw new InvalidOptionError({ where, option: "database.max", value: most, remedy });
  }
  const value = typeof given === "string" ? "***" : typeof given;
  const remedy = "give a postgres:// URL, or a Pool of the package pg";
  throw new InvalidOptionError({ where, option: "database", value, remedy });
}

export type ReadRelayOptions = { readonly [Name in keyof RelayOptions]-?: number };

/** @throws {@link InvalidOptionError} */
export function readRelayOptions(where: string, given: unknown = {}): ReadRelayOptions {
  const {
    pollMs = 1_000,
    batchSize = 1_000,
    maxAttempts = 8,
    rememberMs = 600_000,
  } = readOptions(where, RELAY, given);
  return { pollMs, batchSize, maxAttempts, rememberMs };
}

/** @throws {@link InvalidOptionError} */
export function readRetryOptions(where: string, given: unknown = {}): RetryOptions {
  return readOptions(where, RETRY, given);
}
