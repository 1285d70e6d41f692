import type { PolicyOptions } from "../core/policy/policy.ts";
import type { BucketState } from "./bucket-state.ts";
import type { Decision } from "./decision.ts";
import type { DrawOptions, TryOptions } from "./draw-options.ts";
import type { Slot } from "./slot.ts";
import type { KeyOptions, PauseOptions } from "./steering.ts";
import type { ThrottledFetch } from "./throttled-fetch.ts";
import type { Throttled, ThrottledOptions } from "./throttled-function.ts";

/** A decision; the slot that an allowed call came with settles and releases it. Once `allowed` is asked for, the rest is known. */
export type TryDecision =
  | (Decision & { readonly allowed: true; readonly limitedBy: undefined; readonly slot: Slot })
  | (Decision & { readonly allowed: false; readonly limitedBy: string; readonly slot: undefined });

/** A named thing that calls are drawn from, shared by all replicas. */
export interface Bucket {
  readonly name: string;
  /** How many callers wait in this process. */
  readonly waiting: number;
  /**
   * Waits for a slot; resolves when the call may start.
   *
   * @throws {@link InvalidOptionError} when an option can never work.
   * @throws {@link CostTooLargeError} when the cost is above what a limit can give at once.
   * @throws {@link WaitTooLongError} when no slot came within `maxWaitMs`.
   * @throws {@link LineFullError} when `maxWaiting` callers wait already.
   * @throws {@link StoreUnavailableError} when Redis gave no answer in time.
   * @throws {@link ClosedError} when the sluice is closed.
   * @throws the signal's reason, when it is aborted.
   */
  draw(options?: DrawOptions): Promise<Slot>;
  /**
   * Answers at once whether a call may start, and draws for it if so. A refusal is remembered until
   * it can change, so that a key that is asked about often costs Redis nothing.
   *
   * @throws as {@link Bucket.draw} does, but never for a wait.
   */
  tryDraw(options?: TryOptions): Promise<TryDecision>;
  /**
   * Wraps a function: same `this`, arguments and result, but each call waits for its slot.
   * What the function throws at once arrives as a rejection, as does all that {@link Bucket.draw} throws.
   */
  throttled<F extends (...args: never[]) => unknown>(
    fn: F,
    options?: ThrottledOptions<F>,
  ): Throttled<F>;
  /** A `fetch` that waits for its slots, listens to answers, and tries a refused request again when the bucket lets it. */
  readonly fetch: ThrottledFetch;
  /**
   * Puts another policy in force for all replicas, over what the code says; `"code"` gives way to that again.
   * Counters are not reset. Configured policies outlive restarts, for 30 days after the last draw.
   *
   * @throws {@link InvalidOptionError} when the policy can never work, or names limits for all keys together where keys are spread over a cluster.
   * @throws {@link StoreUnavailableError} when Redis gave no answer in time; so do the others below.
   * @throws {@link ClosedError} when the sluice is closed; so do the others below.
   */
  configure(policy: PolicyOptions | "code"): Promise<void>;
  /**
   * Starts no call of any replica for a time, or until {@link Bucket.resume}; with a key, none of that key.
   *
   * @throws {@link InvalidOptionError} when the key has no limits of its own, of which alone something is kept.
   */
  pause(options?: PauseOptions): Promise<void>;
  /** Ends a pause of the bucket; with a key, that key's own. Throws as `pause` does. */
  resume(options?: KeyOptions): Promise<void>;
  /** How the bucket stands for all replicas; with a key, that key's own limits too. Changes nothing. */
  peek(options?: KeyOptions): Promise<BucketState>;
}
