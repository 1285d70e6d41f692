/** The meaning of a downstream's response, and what a user's `feedback` function may return. */
import type { Key, NamedKeys } from "./key-path.ts";

/** A period for which a quota is given. */
export type QuotaPeriod = "second" | "minute" | "hour" | "day" | "month";

/** The meaning of one response of a downstream. */
export interface Answer {
  /** The HTTP status: `429`. Undefined if the result or error has none. */
  readonly status: number | undefined;
  /** True if the downstream asks for fewer calls, or for no calls for some time. */
  readonly refused: boolean;
  /**
   * How long to wait before the next call, in whole ms, without an upper bound: `12346`. If the response states no
   * time, this is the default for its kind: `1000` for most. Undefined if no wait is needed, or if waiting would not
   * help.
   */
  readonly afterMs: number | undefined;
  /** The end of that wait, in ms since 1970 on this process's clock: `1790000000123`. */
  readonly until: number | undefined;
  /** True if the downstream itself stated the time. */
  readonly stated: boolean;
  /** The period of the used-up quota. Undefined if the response does not state it. */
  readonly scope: QuotaPeriod | undefined;
  /** The unit of that quota: `"calls"`, `"tokens"`, `"input-tokens"`. Undefined if the response does not state it. */
  readonly unit: string | undefined;
  /** True if the rejection lasts until a quota resets, in minutes or hours. Retries before that cannot succeed. */
  readonly lasts: boolean;
  /** True if the downstream is briefly overloaded. The caller's quota is not used up, so its rate need not change. */
  readonly overloaded: boolean;
  /**
   * True if the same call may be retried. False if nothing was rejected, if the downstream says so, or if waiting would
   * not help, as for an account without credit.
   */
  readonly retry: boolean;
}

/** A request for a cooldown. */
export interface Cooldown {
  /** How long no call may start, in ms. */
  readonly coolMs: number;
  /**
   * What cools down: the bucket, the key, or one of several keys by its name. Defaults to the key if keys have separate
   * limits, else to the bucket.
   */
  readonly scope?: "bucket" | "key" | (string & {}) | undefined;
  /**
   * For a path: the index of the name that cools down, together with all keys below it; 0 is the first. Defaults to the
   * narrowest name that has limits. For a name without limits, the next wider name with limits cools down, or else the
   * bucket.
   */
  readonly level?: number | undefined;
  /** The unit of the used-up quota. The cooldown applies to all calls, whatever unit they count in. */
  readonly unit?: string | undefined;
}

/** The bucket's reading of the response, changed or unchanged: `{ ...heard, afterMs: 30_000 }`. */
export interface ChangedAnswer extends Partial<Omit<Answer, "scope" | "refused">> {
  readonly refused: boolean;
  /**
   * `"bucket"`, `"key"` or the name of one of several keys says what cools down. Other values are the period of the
   * quota.
   */
  readonly scope?: QuotaPeriod | "bucket" | "key" | (string & {}) | undefined;
  /** As in {@link Cooldown}. */
  readonly level?: number | undefined;
}

/** The result of a `feedback` function; undefined if the call went well. */
export type Feedback = Cooldown | ChangedAnswer;

/** The second argument of a `feedback` function. */
export interface FeedbackContext {
  /** The bucket's own reading of the response. */
  readonly heard: Answer;
  /** The key of the call. */
  readonly key: Key | undefined;
  /** The keys of a call that has several side by side. */
  readonly keys: NamedKeys | undefined;
  /** The bucket's name. */
  readonly bucket: string;
  /** The body of a rejection as text, up to 64 KiB. Undefined if the body was not read. */
  readonly body: string | undefined;
}

type MaybeFeedback = Feedback | undefined;

/**
 * Reads what a call returned or threw. Returns a cooldown, a changed reading, or undefined if the call went well.
 *
 * For a call that did not go well, the function may return a promise. If it takes over a second, the bucket's own
 * reading applies. `false` disables feedback.
 */
export type ReadFeedback =
  | false
  | ((resultOrError: unknown, context: FeedbackContext) => MaybeFeedback | Promise<MaybeFeedback>);
