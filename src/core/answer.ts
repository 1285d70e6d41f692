/** What a downstream's answers mean, and what a user's own function may make of them. */
import type { Key, NamedKeys } from "./key-path.ts";

/** A period for which a quota is given. */
export type QuotaPeriod = "second" | "minute" | "hour" | "day" | "month";

/** What an answer of a downstream means for those who call it. */
export interface Answer {
  /** The HTTP status: `429`. Undefined where the result or error names none. */
  readonly status: number | undefined;
  /** Whether the downstream asks for fewer calls, or for none for now. */
  readonly refused: boolean;
  /**
   * How long to wait before the next call, in whole ms, not capped: `12346`. Of a refusal that names no time, what is
   * usual for its kind: `1000` for most. Undefined where no wait is asked for, or none would help.
   */
  readonly afterMs: number | undefined;
  /** The same as a moment, in ms since 1970 on this process's clock: `1790000000123`. */
  readonly until: number | undefined;
  /** Whether the downstream itself named the time. */
  readonly stated: boolean;
  /** For which period the quota is given that is used up. Undefined where nothing says so. */
  readonly scope: QuotaPeriod | undefined;
  /** What that quota counts: `"calls"`, `"tokens"`, `"input-tokens"`. Undefined where nothing says so. */
  readonly unit: string | undefined;
  /** Whether the refusal holds until a quota is reset, which takes minutes or hours: another try before that is in vain. */
  readonly lasts: boolean;
  /** Whether the downstream is short of room for a moment, and not this caller of quota: its rate need not change. */
  readonly overloaded: boolean;
  /**
   * Whether the same call may be tried again. False where nothing was refused, where the downstream says so, and where
   * no wait would help, as with an account that is out of money.
   */
  readonly retry: boolean;
}

/** What one answer of a downstream asks for. */
export interface Cooldown {
  /** How long nothing may start, in ms. */
  readonly coolMs: number;
  /**
   * What has to cool down: the bucket, the key, or one of several keys by its name. Defaults to the key, if keys have
   * limits of their own, else the bucket.
   */
  readonly scope?: "bucket" | "key" | (string & {}) | undefined;
  /**
   * Of a path, which of its names has to cool down, with all below it: 0 is the first. Defaults to the narrowest that has
   * limits of its own. One without limits cools the next wider one that has some, or else the bucket.
   */
  readonly level?: number | undefined;
  /** What the quota counts that is used up. All calls cool down with it, whatever they take. */
  readonly unit?: string | undefined;
}

/** What was heard, as it is or changed: `{ ...heard, afterMs: 30_000 }`. */
export interface ChangedAnswer extends Partial<Omit<Answer, "scope" | "refused">> {
  readonly refused: boolean;
  /** `"bucket"`, `"key"` or the name of one of several keys is what has to cool down; else it is the period of the quota. */
  readonly scope?: QuotaPeriod | "bucket" | "key" | (string & {}) | undefined;
  /** As in {@link Cooldown}. */
  readonly level?: number | undefined;
}

/** What a `feedback` function answers; undefined if the call went well. */
export type Feedback = Cooldown | ChangedAnswer;

/** What a `feedback` function is told beside the result or error. */
export interface FeedbackContext {
  /** What the bucket made of it by itself. */
  readonly heard: Answer;
  /** The key of the call. */
  readonly key: Key | undefined;
  /** The keys of a call that has several side by side. */
  readonly keys: NamedKeys | undefined;
  /** The bucket's name. */
  readonly bucket: string;
  /** The text of a refusal's body, as far as it was read: 64 KiB at most. Undefined if none was. */
  readonly body: string | undefined;
}

type MaybeFeedback = Feedback | undefined;

/**
 * Reads what a call returned or threw: how long to cool down, what was heard with changes, or undefined if the call
 * went well. It may answer with a promise where the call did not go well; after a second, what the bucket heard by itself
 * holds. `false` reads nothing.
 */
export type ReadFeedback =
  | false
  | ((resultOrError: unknown, context: FeedbackContext) => MaybeFeedback | Promise<MaybeFeedback>);
