import {
  describeValue,
  ignoreRejection,
  onOneLine,
  withoutPasswords,
  withoutSecrets,
  messageOf,
  factInJson,
} from "./describe.ts";
import { namedOf, type Key, type NamedKeys } from "./key-path.ts";

/** The `code` of every error of this package. `docs/reference/errors.md` explains each code. */
export type ErrorCode =
  | "ERR_INVALID_OPTION"
  | "ERR_BUDGET_SPENT"
  | "ERR_CODEC"
  | "ERR_COST_TOO_LARGE"
  | "ERR_WAIT_TOO_LONG"
  | "ERR_LINE_FULL"
  | "ERR_MIDDLEWARE"
  | "ERR_GROUP_CLOSED"
  | "ERR_QUEUE_FULL"
  | "ERR_CHANGED"
  | "ERR_CANNOT_UNDO"
  | "ERR_LEASE_LOST"
  | "ERR_HANDLER_RESPONSE"
  | "ERR_HANDLER_TIMEOUT"
  | "ERR_STORE_UNAVAILABLE"
  | "ERR_JOB_CANCELLED"
  | "ERR_JOB_FAILED"
  | "ERR_JOB_LOST"
  | "ERR_JOB_MISSING"
  | "ERR_JOB_STATE"
  | "ERR_JOB_UNFINISHED"
  | "ERR_REDIS_REQUIRED"
  | "ERR_CLOSED"
  | "ERR_ENDPOINT_DISABLED"
  | "ERR_ENDPOINT_MISSING"
  | "ERR_MESSAGE_MISSING"
  | "ERR_SECRET_UNREADABLE"
  | "ERR_WEBHOOK_NOT_VERIFIED";

/** The second argument of `Error`. TypeScript knows its type only from `lib: ["ES2022"]` on. */
export interface ErrorCause {
  readonly cause?: unknown;
}

/** The fields of an error class, without the fields that every error has. */
export type FactsOf<Self> = Omit<Self, keyof SluiceError>;

/**
 * The base class of all errors of this package. Callers compare `code`, never `message`. A subclass declares only its
 * own fields.
 */
export abstract class SluiceError<Self = object> extends Error {
  abstract readonly code: ErrorCode;

  constructor(message: string, facts: FactsOf<Self>, options?: ErrorCause) {
    super(message, options);
    Object.assign(this, facts);
  }

  /**
   * Returns the error as JSON: its name, code, message and the fields of its class. A time without an end is
   * `"forever"`.
   */
  toJSON(): Record<string, unknown> {
    const { name, code, message } = this;
    const facts = Object.entries(this).map(([fact, value]) => [fact, factInJson(fact, value)]);
    return { name, code, message, ...Object.fromEntries(facts) };
  }
}

/** Thrown when an option can never work. Nothing was changed or sent. */
export class InvalidOptionError extends SluiceError<InvalidOptionError> {
  override readonly name = "InvalidOptionError";
  readonly code = "ERR_INVALID_OPTION";
  /** The option's name, with its path: `"rate"`, `"backoff.baseMs"`. */
  declare readonly option: string;
  /** The value of the option, without passwords. */
  declare readonly value: unknown;

  constructor(problem: {
    where: string;
    option: string;
    value: unknown;
    remedy: string;
    cause?: unknown;
  }) {
    const { where, option, remedy, cause } = problem;
    ignoreRejection(problem.value);
    const value = withoutSecrets(option, problem.value);
    const what = `option ${describeValue(option)} is ${describeValue(value)}`;
    const end = /[.?!]$/.test(remedy) ? "" : ".";
    super(
      onOneLine(`${where}: ${what}; ${remedy}${end}`),
      { option, value },
      cause === undefined ? undefined : { cause },
    );
    problems.set(this, problem);
  }
}

/** The constructor argument of each InvalidOptionError. It has the advice separate from the message. */
const problems = new WeakMap<
  InvalidOptionError,
  ConstructorParameters<typeof InvalidOptionError>[0]
>();

/**
 * Returns the advice in an error about an option, without the rest of the message.
 *
 * @internal
 */
export function remedyOf(error: InvalidOptionError): string {
  return problems.get(error)?.remedy ?? "";
}

/**
 * Runs a function that reads nested options. Prefixes the option name in its errors with the path: `"rate"` becomes
 * `"perKey.rate"`.
 */
export function atPath<T>(path: string, read: () => T): T {
  try {
    return read();
  } catch (error) {
    const problem = error instanceof InvalidOptionError ? problems.get(error) : undefined;
    if (problem === undefined) throw error;
    throw new InvalidOptionError({ ...problem, option: `${path}.${problem.option}` });
  }
}

/** Thrown when one call costs more than its bucket can ever allow at once. The call was not started. */
export class CostTooLargeError extends SluiceError<CostTooLargeError> {
  override readonly name = "CostTooLargeError";
  readonly code = "ERR_COST_TOO_LARGE";
  declare readonly bucket: string;
  declare readonly cost: number;
  /** The unit in which the cost is counted: `"calls"`, `"tokens"`. */
  declare readonly unit: string;
  /** The largest cost that the limit allows: its burst, or the capacity of its window. */
  declare readonly maxCost: number;
  /** The limit that the cost exceeds: `"90000/min tokens"`. */
  declare readonly limitedBy: string;

  constructor(facts: FactsOf<CostTooLargeError>) {
    super(
      `A call that costs ${facts.cost} (${facts.unit}) can never pass bucket "${facts.bucket}": ` +
        `its limit of ${facts.limitedBy} allows at most ${facts.maxCost} at once. ` +
        `Split the call, or raise the burst, max or capacity of the limit to at least ${facts.cost}.`,
      facts,
    );
  }
}

/**
 * Thrown when a call does not fit into the rest of a budget. The call was not started. A call with a smaller cost may
 * still pass.
 */
export class BudgetSpentError extends SluiceError<BudgetSpentError> {
  override readonly name = "BudgetSpentError";
  readonly code = "ERR_BUDGET_SPENT";
  declare readonly bucket: string;
  declare readonly key: Key | undefined;
  /** The named keys of the call. Undefined if the call has a single key or none. */
  declare readonly keys: NamedKeys | undefined;
  /** The budget: `"500/month usd"`. If keys have several levels or names, the text includes the level or name. */
  declare readonly limitedBy: string;
  /** `"bucket"` for a budget of the whole bucket, `"key"` for a per-key budget. For named keys, the name of the key. */
  declare readonly scope: string;
  /** The level of the key path that the budget belongs to, from `0`. Undefined for a budget of the bucket. */
  declare readonly level: number | undefined;
  /** The unit of the amounts below: `"usd"`. */
  declare readonly unit: string;
  /** The estimated cost of the call: `0.42`. */
  declare readonly cost: number;
  /** The amount of the period, with what was carried over and granted: `500`. */
  declare readonly amount: number;
  /** The part of the amount that is spent or reserved: `499.8`. */
  declare readonly spent: number;
  /** When the next period begins. For rolling days: when the call fits again. */
  declare readonly resetsAt: Date;
  /** Milliseconds until `resetsAt`. If the call costs more than a whole period allows, the value is an estimate. */
  declare readonly retryAfterMs: number;
  /**
   * The HTTP status with which a server refuses the call: `429`. The name differs from those of provider errors, so that
   * a spent budget is never read as a response of the provider.
   */
  declare readonly refusalStatus: 402 | 429;

  constructor(
    facts: Omit<FactsOf<BudgetSpentError>, "key" | "keys"> & { key: string | undefined },
  ) {
    const { bucket, limitedBy, unit, cost, amount, spent, resetsAt, scope } = facts;
    const named = namedOf(facts.key);
    const whose = scope === "bucket" ? "" : ` of key ${JSON.stringify(named.key ?? named.keys)}`;
    super(
      `A call that costs ${cost} ${unit} does not fit into the budget ${limitedBy}${whose} of bucket "${bucket}": ` +
        `${spent} of ${amount} ${unit} is spent. Raise the budget, grant more with bucket.grant(), ` +
        `or wait until ${resetsAt.toISOString()}.`,
      { ...facts, ...named },
    );
  }
}

/** Thrown when a bucket or queue was changed after the caller read it. The rejected request changed nothing. */
export class ChangedError extends SluiceError<ChangedError> {
  override readonly name = "ChangedError";
  readonly code = "ERR_CHANGED";
  /** The changed bucket. Undefined if a queue was changed. */
  declare readonly bucket: string | undefined;
  declare readonly queue: string | undefined;
  /** The generation, or the id of the change, that the caller saw: `17`. */
  declare readonly since: number | string;
  /** The current generation, or the id of the latest change. */
  declare readonly generation: number | string;

  constructor(facts: {
    bucket?: string;
    queue?: string;
    since: number | string;
    generation: number | string;
  }) {
    const { bucket, queue, since, generation } = facts;
    const what = queue === undefined ? `Bucket "${bucket}"` : `Queue "${queue}"`;
    super(
      `${what} has changed since ${since}; it is at ${generation} now. ` +
        `Look at it again, and repeat the change if it still fits.`,
      { bucket, queue, since, generation },
    );
  }
}

/** Thrown by `undo` if a change cannot be undone. The rejected request changed nothing. */
export class CannotUndoError extends SluiceError<CannotUndoError> {
  override readonly name = "CannotUndoError";
  readonly code = "ERR_CANNOT_UNDO";
  /** The id of the change: `"1764166000000-0"`. */
  declare readonly change: string;
  /** The reason, and what to do instead. */
  declare readonly reason: string;
  /** @deprecated Use `reason`, which has the same value. */
  declare readonly why: string;

  constructor({ change, of, reason }: { change: string; of: string; reason: string }) {
    super(`Change ${change} of ${of} cannot be undone: ${reason}.`, {
      change,
      reason,
      why: reason,
    });
  }
}

/** Thrown when `maxWaiting` callers already wait in the bucket. The call was not started. */
export class LineFullError extends SluiceError<LineFullError> {
  override readonly name = "LineFullError";
  readonly code = "ERR_LINE_FULL";
  declare readonly bucket: string;
  declare readonly key: Key | undefined;
  /** The named keys of the call. Undefined if the call has a single key or none. */
  declare readonly keys: NamedKeys | undefined;
  /** The number of callers that wait in this process: `700`. */
  declare readonly waiting: number;
  /** Milliseconds after which the line probably has room for a new caller: `120`. */
  declare readonly retryAfterMs: number;

  constructor(facts: {
    bucket: string;
    /** The encoded key. */
    key: string | undefined;
    waiting: number;
    priority: string;
    retryAfterMs: number;
  }) {
    const { bucket, waiting, retryAfterMs } = facts;
    super(
      `The line of bucket "${bucket}" is full for ${facts.priority} calls: ${waiting} wait; ` +
        `try again in about ${retryAfterMs} ms, or raise maxWaiting.`,
      { bucket, ...namedOf(facts.key), waiting, retryAfterMs },
    );
  }
}

/**
 * The abort reason of a slot's signal when the slot's lease could not be renewed. A throttled call then rejects with
 * this error. Its concurrency limit may no longer count the call, so another call may run at the same time.
 */
export class LeaseLostError extends SluiceError<LeaseLostError> {
  override readonly name = "LeaseLostError";
  readonly code = "ERR_LEASE_LOST";
  declare readonly bucket: string;

  constructor(bucket: string) {
    super(
      `A call of bucket "${bucket}" has lost its lease; another call may run in its place. ` +
        `Check that Redis can be reached, or give concurrency() a longer leaseMs.`,
      { bucket },
    );
  }
}

/** Thrown when no slot was free within a call's `maxWaitMs`. The call was not started. */
export class WaitTooLongError extends SluiceError<WaitTooLongError> {
  override readonly name = "WaitTooLongError";
  readonly code = "ERR_WAIT_TOO_LONG";
  declare readonly bucket: string;
  declare readonly key: Key | undefined;
  /** The named keys of the call. Undefined if the call has a single key or none. */
  declare readonly keys: NamedKeys | undefined;
  /**
   * Milliseconds after which the same call will probably get a slot: `250` if about 25 callers of a 100/s bucket still
   * wait. The value is an estimate. It can be one interval too long, and is too short if more callers arrive.
   */
  declare readonly retryAfterMs: number;
  /**
   * What delayed the call the longest. A limit is shown as written in the policy, such as `"100/s"`; other reasons are
   * text, such as `"a pause"`.
   */
  declare readonly limitedBy: string;

  constructor(facts: {
    bucket: string;
    /** The encoded key. */
    key: string | undefined;
    maxWaitMs: number;
    retryAfterMs: number;
    limitedBy: string;
    /** True if the call was rejected immediately, because no slot can be free in time. */
    isHopeless?: boolean;
  }) {
    const { bucket, retryAfterMs, limitedBy } = facts;
    super(
      `No slot of bucket "${bucket}" ${facts.isHopeless === true ? "can come" : "came"} within ${facts.maxWaitMs} ms (limited by ${limitedBy}); ` +
        `try again in about ${retryAfterMs} ms, or raise maxWaitMs.`,
      { bucket, ...namedOf(facts.key), retryAfterMs, limitedBy },
    );
  }
}

/**
 * Thrown when Redis sent no reply within `storeTimeoutMs`, rejected the request, or failed recently. The call was not
 * started.
 */
export class StoreUnavailableError extends SluiceError<StoreUnavailableError> {
  override readonly name = "StoreUnavailableError";
  readonly code = "ERR_STORE_UNAVAILABLE";
  /** For `enqueue`: true if Redis may have stored the job without confirming it. Otherwise false. */
  declare readonly mayBeStored: boolean;
  /** For `enqueueMany`: the number of jobs that are certainly stored, counted from the first: `2000`. */
  declare readonly storedCount: number;

  /**
   * Stores only the message of the connection error `met` as the cause. Errors of ioredis contain commands, which may
   * contain passwords.
   */
  constructor(
    message: string,
    met?: unknown,
    { mayBeStored = false, storedCount = 0 }: { mayBeStored?: boolean; storedCount?: number } = {},
  ) {
    const reason = met instanceof Error ? new Error(withoutPasswords(met.message)) : undefined;
    super(message, { mayBeStored, storedCount }, reason && { cause: reason });
  }
}

/**
 * Thrown when a feature that needs Redis is used without Redis, or when a sluice without Redis is created where Redis
 * is required.
 */
export class RedisRequiredError extends SluiceError {
  override readonly name = "RedisRequiredError";
  readonly code = "ERR_REDIS_REQUIRED";

  constructor(what: string, otherwise = "") {
    super(
      `${what} needs Redis; pass { redis: "redis://…" } to createSluice(), or set $REDIS_URL.${otherwise}`,
      {},
    );
  }
}

/** Thrown to all waiting callers when their sluice closes, and to all later callers. */
export class ClosedError extends SluiceError {
  override readonly name = "ClosedError";
  readonly code = "ERR_CLOSED";

  constructor(what: string) {
    super(`${what} is closed; nothing was started.`, {});
  }
}

/** True if the error means that a call was not allowed to start. False if the bucket was closed. */
export function isRefusal(error: unknown): error is SluiceError {
  return error instanceof SluiceError && !(error instanceof ClosedError);
}

/** An error reply with which Redis rejected a request. */
export interface RedisRefusal {
  /** The text of the error reply: `"NOPERM this user has no permissions to run the 'evalsha' command"`. */
  readonly reason: string;
  readonly remedy: string;
}

/** True if the error is an error reply of Redis, not a connection error. */
export function isReply(error: unknown): error is Error {
  return error instanceof Error && error.name === "ReplyError";
}

/** Returns the reason and the remedy for an error reply of Redis. Returns undefined for other errors. */
export function redisRefusalOf(error: unknown): RedisRefusal | undefined {
  if (!isReply(error)) return undefined;
  return { reason: messageOf(error), remedy: remedyFor(error.message) };
}

function remedyFor(message: string): string {
  if (isMissingRights(message))
    return "Give its Redis user the rights that docs/guides/production/redis.md names";
  if (/^(WRONGPASS|NOAUTH)/.test(message)) return "Check the user and the password";
  if (message.startsWith("ERR max number of clients")) {
    return "Raise its maxclients, or end some of the connections that CLIENT LIST shows";
  }
  return "See the log of Redis, or its INFO";
}

export function isMissingRights(message: string): boolean {
  // Redis 7.0 uses the second text for commands inside a script.
  return /^NOPERM|^ERR The user executing the script can.t run this command/.test(message);
}

/** Internal error: the calendar-day reset times in the request do not match the current time of the bucket's clock. */
export class WrongResetsError extends Error {
  readonly serverUs: number;

  constructor(serverUs: number) {
    super(`resets do not fit the time ${serverUs}`);
    this.serverUs = serverUs;
  }
}

/** What a payload is: the data, result or progress of a job, or the body of a webhook. */
export type PayloadKind = "data" | "result" | "progress" | "webhook";

/**
 * A payload could not be encoded or decoded: a codec or a key is missing, the stored bytes are damaged, or the codec
 * itself failed. While encoding, nothing was stored. The `cause` is the error of the codec.
 */
export class CodecError extends SluiceError<CodecError> {
  override readonly name = "CodecError";
  readonly code = "ERR_CODEC";
  /** The name of the queue or of the webhook sender. */
  declare readonly queue: string;
  declare readonly kind: PayloadKind;
  /** Whether encoding or decoding failed. */
  declare readonly action: "encode" | "decode";
  /** The codec that failed, with its version: `"aes-256-gcm:k1"`. Undefined if the stored payload names no codec. */
  declare readonly codec: string | undefined;
  /** The job, or the webhook message. Undefined if it has no id yet. */
  declare readonly id: string | undefined;

  constructor(
    facts: Pick<CodecError, "queue" | "kind" | "action" | "codec" | "id">,
    problem: string,
    options?: ErrorCause,
  ) {
    const { queue, kind, action, id } = facts;
    const owner = ["webhook"].includes(kind) ? "message" : "job";
    const of = id === undefined ? "" : ` of ${owner} ${id}`;
    const verb = action === "encode" ? "encoded" : "decoded";
    super(`The ${kind}${of} of queue "${queue}" cannot be ${verb}: ${problem}`, facts, options);
  }
}
