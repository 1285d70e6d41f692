import {
  describeValue,
  ignoreRejection,
  onOneLine,
  withoutPasswords,
  withoutSecrets,
  wordsOf,
  factInJson,
} from "./describe.ts";
import { namedOf, type Key, type NamedKeys } from "./key-path.ts";

/** Every `code` that an error of this package can carry; `docs/reference/errors.md` explains each. */
export type ErrorCode =
  | "ERR_INVALID_OPTION"
  | "ERR_COST_TOO_LARGE"
  | "ERR_WAIT_TOO_LONG"
  | "ERR_LINE_FULL"
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

/** The fields of an error class beside those of every error. */
export type FactsOf<Self> = Omit<Self, keyof SluiceError>;

/** Base of all errors of this package. Branch on `code`, never on `message`. A subclass only declares its facts. */
export abstract class SluiceError<Self = object> extends Error {
  abstract readonly code: ErrorCode;

  constructor(message: string, facts: FactsOf<Self>, options?: ErrorOptions) {
    super(message, options);
    Object.assign(this, facts);
  }

  /** What JSON holds of the error: its name, code, message and facts. A time without an end is `"forever"`. */
  toJSON(): Record<string, unknown> {
    const { name, code, message } = this;
    const facts = Object.entries(this).map(([fact, value]) => [fact, factInJson(fact, value)]);
    return { name, code, message, ...Object.fromEntries(facts) };
  }
}

/** Thrown when an option can never work; nothing has changed and nothing was sent. */
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

/** What an error about an option was made of. */
const problems = new WeakMap<
  InvalidOptionError,
  ConstructorParameters<typeof InvalidOptionError>[0]
>();

/**
 * What to do about a bad option, without the rest of the message.
 *
 * @internal
 */
export function remedyOf(error: InvalidOptionError): string {
  return problems.get(error)?.remedy ?? "";
}

/** Runs a reader of options that lie at a path of others: an error about `"rate"` becomes one about `"perKey.rate"`. */
export function atPath<T>(path: string, read: () => T): T {
  try {
    return read();
  } catch (error) {
    const problem = error instanceof InvalidOptionError ? problems.get(error) : undefined;
    if (problem === undefined) throw error;
    throw new InvalidOptionError({ ...problem, option: `${path}.${problem.option}` });
  }
}

/** Thrown when one call costs more than its bucket could ever give at once; the call was not started. */
export class CostTooLargeError extends SluiceError<CostTooLargeError> {
  override readonly name = "CostTooLargeError";
  readonly code = "ERR_COST_TOO_LARGE";
  declare readonly bucket: string;
  declare readonly cost: number;
  /** What the cost is counted in: `"calls"`, `"tokens"`. */
  declare readonly unit: string;
  /** The largest cost that the limit can give: its burst, or what fits into its window. */
  declare readonly maxCost: number;
  /** The limit that can never give this much: `"90000/min tokens"`. */
  declare readonly limitedBy: string;

  constructor(facts: FactsOf<CostTooLargeError>) {
    super(
      `A call that costs ${facts.cost} (${facts.unit}) can never leave bucket "${facts.bucket}": ` +
        `its limit of ${facts.limitedBy} lets ${facts.maxCost} pass at once; ` +
        `split the call, or raise the burst, max or capacity of the limit to at least ${facts.cost}.`,
      facts,
    );
  }
}

/** Thrown when something was changed since it was looked at; nothing was changed now. */
export class ChangedError extends SluiceError<ChangedError> {
  override readonly name = "ChangedError";
  readonly code = "ERR_CHANGED";
  /** Which bucket, or which queue. */
  declare readonly bucket: string | undefined;
  declare readonly queue: string | undefined;
  /** The generation, or the id of the change, that was seen: `17`. */
  declare readonly since: number | string;
  /** That of now. */
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

/** Thrown by an `undo` for a change that cannot be taken back; nothing was changed now. */
export class CannotUndoError extends SluiceError<CannotUndoError> {
  override readonly name = "CannotUndoError";
  readonly code = "ERR_CANNOT_UNDO";
  /** The id of the change: `"1764166000000-0"`. */
  declare readonly change: string;
  /** Why not, and what to do instead. */
  declare readonly why: string;

  constructor({ change, of, why }: { change: string; of: string; why: string }) {
    super(`Change ${change} of ${of} cannot be taken back: ${why}.`, { change, why });
  }
}

/** Thrown when as many callers wait as `maxWaiting` allows; the call was not started. */
export class LineFullError extends SluiceError<LineFullError> {
  override readonly name = "LineFullError";
  readonly code = "ERR_LINE_FULL";
  declare readonly bucket: string;
  declare readonly key: Key | undefined;
  /** The keys of a call that has several side by side. */
  declare readonly keys: NamedKeys | undefined;
  /** How many callers wait in this process: `700`. */
  declare readonly waiting: number;
  /** Milliseconds after which there is likely room again: `120`. */
  declare readonly retryAfterMs: number;

  constructor(facts: {
    bucket: string;
    /** The text of the key. */
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

/** The reason of a slot's signal when its lease could not be renewed; a throttled call rejects with it. Another call may run in its place. */
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

/** Thrown when a call's slot did not come within its `maxWaitMs`; the call was not started. */
export class WaitTooLongError extends SluiceError<WaitTooLongError> {
  override readonly name = "WaitTooLongError";
  readonly code = "ERR_WAIT_TOO_LONG";
  declare readonly bucket: string;
  declare readonly key: Key | undefined;
  /** The keys of a call that has several side by side. */
  declare readonly keys: NamedKeys | undefined;
  /**
   * Milliseconds after which the same call is likely to get a slot: `250` when about 25 callers of a 100/s bucket
   * still wait. An estimate: it may be one interval too long, or too short if more callers come.
   */
  declare readonly retryAfterMs: number;
  /** What held the call back the longest: a limit as written in the policy: `"100/s"`, or `"a pause"` and the like. */
  declare readonly limitedBy: string;

  constructor(facts: {
    bucket: string;
    /** The text of the key. */
    key: string | undefined;
    maxWaitMs: number;
    retryAfterMs: number;
    limitedBy: string;
    /** The call was refused at once: no slot can come in time. */
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

/** Thrown when Redis gave no answer within `storeTimeoutMs`, refused, or failed recently; the call was not started. */
export class StoreUnavailableError extends SluiceError<StoreUnavailableError> {
  override readonly name = "StoreUnavailableError";
  readonly code = "ERR_STORE_UNAVAILABLE";
  /** Of `enqueue`: whether Redis may have stored the job although it did not confirm it. False for all else. */
  declare readonly mayBeStored: boolean;
  /** Of `enqueueMany`: how many jobs, from the first on, are certainly stored: `2000`. */
  declare readonly storedCount: number;

  /** Of `met`, the error of the connection, only the message is kept: errors of ioredis carry commands, and so passwords. */
  constructor(
    message: string,
    met?: unknown,
    { mayBeStored = false, storedCount = 0 }: { mayBeStored?: boolean; storedCount?: number } = {},
  ) {
    const reason = met instanceof Error ? new Error(withoutPasswords(met.message)) : undefined;
    super(message, { mayBeStored, storedCount }, reason && { cause: reason });
  }
}

/** Thrown when a sluice without Redis is asked for something durable, or is opened where Redis is required. */
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

/** Thrown to callers that wait when their sluice is closed, and to all that come later. */
export class ClosedError extends SluiceError {
  override readonly name = "ClosedError";
  readonly code = "ERR_CLOSED";

  constructor(what: string) {
    super(`${what} is closed; nothing was started.`, {});
  }
}

/** Whether a call failed with it because it was not let through, and not because its bucket was closed. */
export function isRefusal(error: unknown): error is SluiceError {
  return error instanceof SluiceError && !(error instanceof ClosedError);
}

/** An error that Redis replied. */
export interface RedisRefusal {
  /** The text of the reply: `"NOPERM this user has no permissions to run the 'evalsha' command"`. */
  readonly reason: string;
  readonly remedy: string;
}

/** Whether the error is a reply of Redis. */
export function isReply(error: unknown): error is Error {
  return error instanceof Error && error.name === "ReplyError";
}

/** The refusal in an error; undefined if the error is not a reply of Redis. */
export function redisRefusalOf(error: unknown): RedisRefusal | undefined {
  if (!isReply(error)) return undefined;
  return { reason: wordsOf(error), remedy: remedyFor(error.message) };
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
  // Redis 7.0 has another text for commands inside a script.
  return /^NOPERM|^ERR The user executing the script can.t run this command/.test(message);
}

/** Internal: a request had the resets of calendar days for another time than the bucket's. */
export class WrongResetsError extends Error {
  readonly serverUs: number;

  constructor(serverUs: number) {
    super(`resets do not fit the time ${serverUs}`);
    this.serverUs = serverUs;
  }
}
