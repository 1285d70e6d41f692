/** Types for the meaning of a downstream's response, and for the result of a user's `feedback` function. */
import type { Key, NamedKeys } from "./key-path.ts";

/** The period of a quota: a downstream allows a number of calls or units in each period. */
export type QuotaPeriod = "second" | "minute" | "hour" | "day" | "month";

/** The meaning of one response of a downstream. */
export interface Answer {
  /** The HTTP status: `429`. Undefined if the result or error has none. */
  readonly status: number | undefined;
  /** True if the downstream asks for fewer calls, or for no calls for some time. */
  readonly refused: boolean;
  /**
   * The wait before the next call, in whole ms, without an upper bound: `12346`. If the response states no time, this
   * is the default wait for that kind of response: `1000` for most. Undefined if no wait is needed, or if waiting would
   * not help.
   */
  readonly afterMs: number | undefined;
  /** The end of the wait `afterMs`, in ms since 1970 on this process's clock: `1790000000123`. */
  readonly until: number | undefined;
  /** True if the downstream itself stated how long to wait. */
  readonly stated: boolean;
  /** The period of the used-up quota. Undefined if the response does not state it. */
  readonly scope: QuotaPeriod | undefined;
  /**
   * The unit of the used-up quota: `"calls"`, `"tokens"`, `"input-tokens"`. Undefined if the response does not state
   * it.
   */
  readonly unit: string | undefined;
  /** True if the rejection lasts until a quota resets, in minutes or hours. Retries before that cannot succeed. */
  readonly lasts: boolean;
  /**
   * True if the downstream is briefly overloaded. The caller's quota is not used up, so the bucket's rate need not
   * change.
   */
  readonly overloaded: boolean;
  /**
   * True if the same call may be retried. False if the downstream rejected nothing, if the downstream forbids a retry,
   * or if waiting would not help, as with an account without credit.
   */
  readonly retry: boolean;
}

/** Why a bucket, key or member cools down: a refusal, an outage, or an account that cannot be used. */
export type SlowCause = "refusal" | "unreachable" | "account";

/** A cooldown that a `feedback` function requests. */
export interface Cooldown {
  /** The duration of the cooldown in ms. No call starts during the cooldown. */
  readonly coolMs: number;
  /**
   * What cools down: the bucket, the key, or one of several keys, which is selected by its name. Defaults to the key if
   * keys have separate limits, else to the bucket.
   */
  readonly scope?: "bucket" | "key" | (string & {}) | undefined;
  /**
   * For a path: the index of the name that cools down, together with all keys below that name. 0 is the first name.
   * Defaults to the narrowest name that has limits. If the selected name has no limits, the next wider name with limits
   * cools down, or else the bucket.
   */
  readonly level?: number | undefined;
  /** The unit of the used-up quota. The cooldown applies to all calls, whatever unit they count in. */
  readonly unit?: string | undefined;
}

/**
 * The bucket's interpretation of a response, with or without changes by the user's function: `{ ...answer,
 * afterMs: 30_000 }`.
 */
export interface ChangedAnswer extends Partial<Omit<Answer, "scope" | "refused">> {
  readonly refused: boolean;
  /**
   * What cools down, if the value is `"bucket"`, `"key"` or the name of one of several keys. Any other value is the
   * period of the quota.
   */
  readonly scope?: QuotaPeriod | "bucket" | "key" | (string & {}) | undefined;
  /** The same as `level` in {@link Cooldown}. */
  readonly level?: number | undefined;
}

/** The result of a `feedback` function for a failed call. The function returns undefined if the call succeeded. */
export type Feedback = Cooldown | ChangedAnswer;

/** The second argument of a `feedback` function. */
export interface FeedbackContext {
  /** The bucket's own interpretation of the response. */
  readonly answer: Answer;
  /** @deprecated Use `answer`, which has the same value. */
  readonly heard: Answer;
  /** The key of the call. Undefined if the call has no key, or several named keys. */
  readonly key: Key | undefined;
  /** The named keys of the call. Undefined if the call has a single key or none. */
  readonly keys: NamedKeys | undefined;
  /** In a pool, the name of the member that the call used. */
  readonly member?: string | undefined;
  /** The bucket's name. */
  readonly bucket: string;
  /** The body of a rejection as text, up to 64 KiB. Undefined if the body was not read. */
  readonly body: string | undefined;
}

type MaybeFeedback = Feedback | undefined;

/**
 * Interprets what a call returned or threw. Returns a cooldown, a changed interpretation, or undefined if the call
 * succeeded.
 *
 * For a failed call, the function may return a promise. If the promise takes over a second, the bucket's own
 * interpretation applies. `false` disables feedback.
 */
export type ReadFeedback =
  | false
  | ((resultOrError: unknown, context: FeedbackContext) => MaybeFeedback | Promise<MaybeFeedback>);
