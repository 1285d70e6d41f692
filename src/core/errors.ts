import {
  describeValue,
  ignoreRejection,
  onOneLine,
  withoutPasswords,
  withoutSecrets,
  wordsOf,
} from "./describe.ts";

/** Every `code` that an error of this package can carry; `docs/errors.md` explains each. */
export type ErrorCode =
  | "ERR_INVALID_OPTION"
  | "ERR_COST_TOO_LARGE"
  | "ERR_WAIT_TOO_LONG"
  | "ERR_LINE_FULL"
  | "ERR_LEASE_LOST"
  | "ERR_HANDLER_TIMEOUT"
  | "ERR_STORE_UNAVAILABLE"
  | "ERR_JOB_FAILED"
  | "ERR_JOB_LOST"
  | "ERR_JOB_MISSING"
  | "ERR_JOB_UNFINISHED"
  | "ERR_REDIS_REQUIRED"
  | "ERR_CLOSED";

/** Base of everything this package throws. Branch on `code`, never on `message`. */
export abstract class SluiceError extends Error {
  abstract readonly code: ErrorCode;
}

/** Thrown when an option can never work; nothing was changed and nothing was sent. */
export class InvalidOptionError extends SluiceError {
  override readonly name = "InvalidOptionError";
  readonly code = "ERR_INVALID_OPTION";
  /** The option's name, with its path: `"rate"`, `"backoff.baseMs"`. */
  readonly option: string;
  /** What was given, without passwords. */
  readonly value: unknown;

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
      cause === undefined ? undefined : { cause },
    );
    this.option = option;
    this.value = value;
  }
}

/** Thrown when one call costs more than its bucket could ever give at once. */
export class CostTooLargeError extends SluiceError {
  override readonly name = "CostTooLargeError";
  readonly code = "ERR_COST_TOO_LARGE";
  readonly bucket: string;
  readonly cost: number;
  /** What the cost is counted in: `"calls"`, `"tokens"`. */
  readonly unit: string;
  /** The largest cost that this bucket can give: a burst of its, or what fits into a window. */
  readonly maxCost: number;
  /** The limit that can never give as much: `"90000/min tokens"`. */
  readonly limitedBy: string;

  constructor(facts: Omit<CostTooLargeError, keyof Error | "code">) {
    super(
      `A call that costs ${facts.cost} (${facts.unit}) can never leave bucket "${facts.bucket}", ` +
        `whose limit of ${facts.limitedBy} lets ${facts.maxCost} pass at once; ` +
        `split the call, or let the limit give at least ${facts.cost} at once (its burst, max or capacity).`,
    );
    this.bucket = facts.bucket;
    this.cost = facts.cost;
    this.unit = facts.unit;
    this.maxCost = facts.maxCost;
    this.limitedBy = facts.limitedBy;
  }
}

/** Thrown when a line holds as many callers as `maxWaiting` lets it; the call was not started. */
export class LineFullError extends SluiceError {
  override readonly name = "LineFullError";
  readonly code = "ERR_LINE_FULL";
  readonly bucket: string;
  readonly key: string | undefined;
  /** How many callers wait in this process: `700`. */
  readonly waiting: number;
  /** Milliseconds after which there is likely to be room again: `120`. */
  readonly retryAfterMs: number;

  constructor(facts: {
    bucket: string;
    key: string | undefined;
    waiting: number;
    priority: string;
    retryAfterMs: number;
  }) {
    super(
      `The line of bucket "${facts.bucket}" is full for ${facts.priority} calls: ${facts.waiting} wait; ` +
        `try again in about ${facts.retryAfterMs} ms, or raise maxWaiting.`,
    );
    this.bucket = facts.bucket;
    this.key = facts.key;
    this.waiting = facts.waiting;
    this.retryAfterMs = facts.retryAfterMs;
  }
}

/** The reason of a slot's signal, and of a throttled call, whose lease could not be renewed: another call may take its place. */
export class LeaseLostError extends SluiceError {
  override readonly name = "LeaseLostError";
  readonly code = "ERR_LEASE_LOST";
  readonly bucket: string;

  constructor(bucket: string) {
    super(
      `The lease of a call of bucket "${bucket}" was lost; the call may have to be undone. ` +
        `See that Redis can be reached, or give concurrency() a longer leaseMs.`,
    );
    this.bucket = bucket;
  }
}

/** Thrown when a call's slot did not come within its `maxWaitMs`; the call was not started. */
export class WaitTooLongError extends SluiceError {
  override readonly name = "WaitTooLongError";
  readonly code = "ERR_WAIT_TOO_LONG";
  readonly bucket: string;
  readonly key: string | undefined;
  /**
   * Milliseconds after which the same call is likely to get its slot: `250` when about 25 callers of a 100/s bucket
   * are left. An estimate: it may be an interval or so too long, or too short for callers that come meanwhile.
   */
  readonly retryAfterMs: number;
  /** The limit that the call waited for, as written in the policy: `"100/s"`. */
  readonly limitedBy: string;

  constructor(facts: {
    bucket: string;
    key: string | undefined;
    maxWaitMs: number;
    retryAfterMs: number;
    limitedBy: string;
  }) {
    super(
      `No slot of bucket "${facts.bucket}" came within ${facts.maxWaitMs} ms (limited by ${facts.limitedBy}); ` +
        `try again in about ${facts.retryAfterMs} ms, or raise maxWaitMs.`,
    );
    this.bucket = facts.bucket;
    this.key = facts.key;
    this.retryAfterMs = facts.retryAfterMs;
    this.limitedBy = facts.limitedBy;
  }
}

/** Thrown when Redis gave no answer within `storeTimeoutMs`, refused, or has failed of late; the call was not started. */
export class StoreUnavailableError extends SluiceError {
  override readonly name = "StoreUnavailableError";
  readonly code = "ERR_STORE_UNAVAILABLE";
  /** Of `enqueue`: whether Redis may have taken the job although it did not say so. False for all else. */
  readonly mayBeStored: boolean;
  /** Of `enqueueMany`: how many jobs, the first ones of those given, are stored for certain: `2000`. */
  readonly storedCount: number;

  /** `met` is what the connection met; only its message is kept, since errors of ioredis carry commands, and so passwords. */
  constructor(
    message: string,
    met?: unknown,
    { mayBeStored = false, storedCount = 0 }: { mayBeStored?: boolean; storedCount?: number } = {},
  ) {
    const reason = met instanceof Error ? new Error(withoutPasswords(met.message)) : undefined;
    super(message, reason && { cause: reason });
    this.mayBeStored = mayBeStored;
    this.storedCount = storedCount;
  }
}

/** Thrown when something durable is asked of a sluice that has no Redis. */
export class RedisRequiredError extends SluiceError {
  override readonly name = "RedisRequiredError";
  readonly code = "ERR_REDIS_REQUIRED";

  constructor(what: string) {
    super(`${what} needs Redis; pass { redis: "redis://…" } to createSluice(), or set $REDIS_URL.`);
  }
}

/** Thrown to callers that still wait when their sluice is closed, and to all who come later. */
export class ClosedError extends SluiceError {
  override readonly name = "ClosedError";
  readonly code = "ERR_CLOSED";

  constructor(what: string) {
    super(`${what} is closed; nothing was started.`);
  }
}

/** What Redis answered instead of doing what it was asked. */
export interface RedisRefusal {
  /** In its own words: `"NOPERM this user has no permissions to run the 'evalsha' command"`. */
  readonly reason: string;
  readonly remedy: string;
}

/** Whether Redis did answer, if with an error. */
export function isReply(error: unknown): error is Error {
  return error instanceof Error && error.name === "ReplyError";
}

/** Undefined if Redis did not answer at all. */
export function redisRefusalOf(error: unknown): RedisRefusal | undefined {
  if (!isReply(error)) return undefined;
  return { reason: wordsOf(error), remedy: remedyFor(error.message) };
}

function remedyFor(message: string): string {
  if (isForWantOfRights(message))
    return "Give its Redis user the rights that docs/topologies.md names";
  if (/^(WRONGPASS|NOAUTH)/.test(message)) return "Give the user and the password that Redis knows";
  return "See what Redis says of it in its log, or in INFO";
}

export function isForWantOfRights(message: string): boolean {
  // Redis 7.0 says it otherwise of what a script may not run.
  return /^NOPERM|^ERR The user executing the script can.t run this command/.test(message);
}

/** Within this package: the beginnings of windows were reckoned for another time than the bucket's. */
export class WrongResetsError extends Error {
  readonly serverUs: number;

  constructor(serverUs: number) {
    super(`resets were reckoned for another time than ${serverUs}`);
    this.serverUs = serverUs;
  }
}
