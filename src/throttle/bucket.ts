import type { ClosedError } from "../core/errors.ts";
import type { Policy, PolicyOptions } from "../core/policy/policy.ts";
import type { News } from "../core/store.ts";
import type { BucketState, InForce, KeyOptions, PauseOptions } from "./bucket/live-control.ts";
import type {
  DrawOptions,
  ReadFeedback,
  SettleBy,
  Throttled,
  ThrottledFetch,
  ThrottledOptions,
  TryOptions,
} from "./call-options.ts";
import type { Cost } from "./costs.ts";
import type { Heard } from "./feedback/feedback.ts";
import type { Slot } from "./slot/slot.ts";
import type { TryDecision } from "./try/decision.ts";
import type { Waits } from "./waiting/wait.ts";
import type { TooFar, WaitOptions } from "./waiting/waiting-call.ts";

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

/** A bucket as other parts of a sluice use it. */
export interface OwnedBucket extends Bucket {
  readonly policy: Policy;
  /** Whether the application itself calls through this bucket, and not only its workers. */
  readonly isCalledByHand: boolean;
  /** {@link Bucket.draw} with options that have been read already; what can be told at once is thrown at once. */
  drawByHand(options: DrawOptions): Promise<Slot>;
  /**
   * Draws with options that have been read already, for a worker. While it waits,
   * what ends the wait is among `waits`: a signal for each job costs more than the draw.
   */
  drawForJob(options: WaitOptions, waits: Waits): Promise<Slot | TooFar>;
  /**
   * What such a call takes of what all keys share, and of what its own key has, in ms; 0 where there is no rate.
   *
   * @throws as {@link Bucket.tryDraw} does for such a cost.
   */
  stepsOf(options: TryOptions): { readonly sharedMs: number; readonly keyMs: number };
  /** How the bucket stands, and the policy in force: what this process knows of it, only its draws refresh. */
  inForce(): Promise<InForce>;
  /** How many callers wait here that their own key holds back. */
  readonly deferred: number;
  /** Calls back when limits, a cooldown or a pause have changed, of one key or of all; returns what ends it. */
  onChange(listener: (key: string | undefined) => void): () => void;
  /**
   * Checks what a call would draw, long before it does.
   *
   * @throws {@link InvalidOptionError} and {@link CostTooLargeError} as {@link Bucket.draw} does.
   */
  checkDrawable(where: string, options: TryOptions): Promise<void> | undefined;
  /** Hears what a call of this cost that left on this slot came to. */
  hear(resultOrError: unknown, slot: Slot, cost: Cost | undefined, read?: ReadFeedback): Heard;
  /** Resolves when all that was heard holds for all replicas, or could not be passed on. */
  heard(): Promise<void>;
  /** Settles what a call's result tells that it cost; what cannot be told stays as estimated. */
  settleBy(read: SettleBy<unknown>, result: unknown, slot: Slot): void;
  /** Something of the bucket, or of one key, may have changed, or a lease is free: whoever waits for it asks anew. */
  askAgain(key?: string, news?: News): void;
  /** Slots that are held, of one key or of all, are worthless. */
  forget(key: string | undefined): void;
  /** Calls back when the bucket is closed, at once if it is, with what those who wait fail with; returns what ends it. */
  onClose(fail: (reason: ClosedError) => void): () => void;
  /** Fails all who wait, and gives unused slots back. */
  close(): Promise<void>;
}
