import type { ReadFeedback } from "../core/answer.ts";
import type { ClosedError, WaitTooLongError } from "../core/errors.ts";
import type { Key } from "../core/key-path.ts";
import type { Logger } from "../core/logger.ts";
import type { Emitter } from "../core/events/events.ts";
import type { RateInput } from "../core/limits/rate.ts";
import type { Policy, PolicyOptions } from "../core/policy/policy.ts";
import type { DownstreamOutage } from "../core/store.ts";
import type { BucketEvents } from "./bucket/bucket-events.ts";
import type { BucketActivity, Override } from "../core/stores/insight/store.ts";
import type { BucketState, InForce } from "./bucket/bucket-state.ts";
import type { BucketChange } from "../core/stores/insight/changes.ts";
import type {
  ConfigureOptions,
  KeyOptions,
  PauseOptions,
  ResumeOptions,
  UndoOptions,
} from "./bucket/live-control.ts";
import type { BucketPreview, PreviewOptions } from "./bucket/facts/preview.ts";
import type { BucketStatus, History, HistoryOptions } from "./bucket/facts/status.ts";
import type {
  DrawOptions,
  ObservedDrawCall,
  RunOptions,
  SettleBy,
  ThrottledFetch,
  TryCall,
  TryOptions,
} from "./call-options.ts";
import type { Throttle } from "./wrap/throttled-types.ts";
import type { Cost } from "./costs.ts";
import type { DownstreamChange } from "./outage/breaker.ts";
import type { Breaker } from "./outage/breaker.ts";
import type { ReportedOutcome } from "./feedback/feedback.ts";
import type { CallDefaults } from "./wrap/call-defaults.ts";
import type { DrawnSlot, KeyedSlot, Slot, SlotFacts } from "./slot/slot.ts";
import type { TryDecision } from "./try/decision.ts";
import type { WaitRegistry } from "./waiting/wait.ts";
import type { NoRoomYet, WaitOptions } from "./waiting/waiting-call.ts";

/**
 * A named source of slots for calls, shared by all replicas. Its events report calls of this process. Only `"change"`
 * reports changes by any replica. Events never delay a call.
 */
export interface Bucket extends Emitter<BucketEvents> {
  readonly name: string;
  /** The number of callers that wait in this process. */
  readonly waiting: number;
  /**
   * Waits for a slot; resolves when the call may start.
   *
   * @throws {@link InvalidOptionError} when an option can never work.
   * @throws {@link CostTooLargeError} when the cost is above what a limit can give at once.
   * @throws {@link WaitTooLongError} when no slot came within `maxWaitMs`.
   * @throws {@link LineFullError} when `maxWaiting` leaves no room for this priority.
   * @throws {@link StoreUnavailableError} when Redis did not reply in time.
   * @throws {@link ClosedError} when the sluice is closed.
   * @throws the signal's reason, when it is aborted.
   */
  draw(options?: DrawOptions): Promise<Slot>;
  /**
   * Draws a slot if the call may start now, and returns at once. A refusal is cached until it can change: further tries
   * of the same key then make no request to Redis.
   *
   * @throws as {@link Bucket.draw} does, but never for a wait.
   */
  tryDraw(options?: TryOptions): Promise<TryDecision>;
  /**
   * Wraps a function. The wrapped one has the same `this`, arguments and result, but each call waits for its slot.
   * Rejects with the function's error, or as {@link Bucket.draw} does.
   */
  readonly throttled: Throttle;
  /**
   * Waits for a slot, runs the function once, and resolves with its result.
   * Rejects with the function's error, or as {@link Bucket.draw} does.
   */
  run<Result>(fn: () => Result, options?: RunOptions<Result>): Promise<Awaited<Result>>;
  /** A `fetch` that waits for a slot before each request. It obeys refusals, and then sends the request again. */
  readonly fetch: ThrottledFetch;
  /**
   * Puts another policy in force for all replicas. It overrides the policy of the code; `"code"` removes the override.
   * Shared limits replace all shared limits, shadows included. Shadows alone replace only shadows. Omitted options stay
   * as they are, and counters keep their values.
   *
   * An override survives restarts, and expires 30 days after the last draw. With `forMs` it ends by itself, at most two
   * seconds late, as long as any process uses the bucket.
   *
   * @throws {@link InvalidOptionError} when the policy can never work, or gives shared limits to a bucket whose keys are
   * spread over a cluster.
   * @throws {@link ChangedError} when the bucket has another `generation` than the options say. So do the methods below.
   * @throws {@link StoreUnavailableError} when Redis did not reply in time. So do the methods below.
   * @throws {@link ClosedError} when the sluice is closed. So do the methods below.
   */
  configure<const Rate extends RateInput = RateInput, const KeyRate extends RateInput = RateInput>(
    policy: PolicyOptions<Rate, KeyRate> | "code",
    options?: ConfigureOptions,
  ): Promise<void>;
  /**
   * Stops all calls of all replicas for a time, or until {@link Bucket.resume}. With a key, stops only calls of that key.
   *
   * @throws {@link InvalidOptionError} when the key has no limits, and so no state.
   */
  pause(options?: PauseOptions): Promise<void>;
  /** Ends the pause of the bucket, or of one key. Throws as `pause` does. */
  resume(options?: ResumeOptions): Promise<void>;
  /**
   * Undoes the latest change of `configure`, `pause` or `resume` that is still in force, and restores the state before
   * it. A restored pause lasts for the rest of its time. Returns the undone change, or undefined if there is none.
   */
  undo(options?: UndoOptions): Promise<BucketChange | undefined>;
  /** Returns the state of the bucket for all replicas. With a key, it includes the limits of that key. */
  peek(options?: KeyOptions): Promise<BucketState>;
  /**
   * Returns an operator's view of the bucket: its cap and actual rate, the waiting callers, what limits them, and who set
   * the policy. Replicas report every second while they are active, so the view may be a second old.
   */
  status(): Promise<BucketStatus>;
  /**
   * Returns what another policy or a pause would do to the waiting callers, without a change. For the jobs of a queue,
   * use `queue.preview`.
   *
   * @throws {@link InvalidOptionError} when `configure` would reject the change, or nothing would change.
   */
  preview<const Rate extends RateInput = RateInput, const KeyRate extends RateInput = RateInput>(
    change: PreviewOptions<Rate, KeyRate>,
  ): Promise<BucketPreview>;
  /** Returns how many calls all replicas started in the last 24 hours, in steps of ten seconds. */
  history(options?: HistoryOptions): Promise<History>;
}

/** A process's activity in a bucket since its last report. */
export interface LocalActivity extends Omit<BucketActivity, "startedIn10s"> {
  readonly started: number;
  /** Refusals of the downstream that caused a cooldown or a cut of the rate. */
  readonly refused: number;
}

/** The call whose outcome is reported. */
export interface ReportedCall {
  readonly slot: KeyedSlot;
  readonly cost: Cost | undefined;
  /** True if this call opened the breaker. A refusal without a retry time then needs no cooldown. */
  readonly isSpared?: boolean | undefined;
  /** Reads the outcome instead of the bucket's `feedback`. */
  readonly read?: ReadFeedback | undefined;
}

/** The methods of a bucket that only this package uses. */
export interface OwnedBucket extends Bucket {
  readonly policy: Policy;
  /** True if the code of this process declares the policy. */
  readonly isDeclared: boolean;
  readonly logger: Logger;
  /** The default cost of calls, and how it is settled. */
  readonly calls: CallDefaults | undefined;
  draw(options?: DrawOptions): Promise<KeyedSlot>;
  /** True if the application calls through this bucket, and not only its workers. */
  readonly isCalledByHand: boolean;
  /** {@link Bucket.draw} with validated options. May throw instead of rejecting. */
  drawByHand(options: ObservedDrawCall): Promise<KeyedSlot>;
  /** {@link Bucket.tryDraw} with validated options. May throw instead of rejecting. */
  tryByHand(options: TryCall): Promise<TryDecision>;
  /**
   * Draws for a worker, with validated options. `waits` lists the wait while it lasts, so that the worker can end it.
   * A signal for each job would cost more than the draw.
   */
  drawForJob(options: WaitOptions, waits: WaitRegistry): Promise<DrawnSlot | NoRoomYet>;
  /**
   * Returns the time that such a call occupies in the shared limits and in those of its key, in ms. 0 without a rate.
   *
   * @throws as {@link Bucket.tryDraw} does for such a cost.
   */
  stepsOf(options: TryCall): { readonly sharedMs: number; readonly keyMs: number };
  /** Returns the policy in force and the state of the bucket. Does not update the policy that this process knows. */
  inForce(): Promise<InForce>;
  /** Returns the same as it would be after a change. */
  suppose(where: string, change: unknown): Promise<InForce>;
  /** Returns the activity since the last call of this method. */
  takeActivity(): LocalActivity;
  /** Ends an override whose time is over. */
  expire(override: Override): Promise<void>;
  /** The number of callers that wait in this process for the limits of their key. */
  readonly deferred: number;
  /** Calls back when limits, a cooldown or a pause change, of one key or of all. Returns a function that removes the listener. */
  onChange(listener: (key: string | undefined) => void): () => void;
  /**
   * Checks the cost of a later call.
   *
   * @throws {@link InvalidOptionError} and {@link CostTooLargeError} as {@link Bucket.draw} does.
   */
  checkDrawable(where: string, options: TryCall): Promise<void> | undefined;
  /** Returns the rejection of a call that cannot start before its deadline, as far as this process knows. */
  refusalKnown(options: ObservedDrawCall): WaitTooLongError | undefined;
  /**
   * Calls back with that rejection as soon as it is known, for a call that still waits outside the bucket. Returns a
   * function that removes the callback.
   */
  whenHopeless(options: ObservedDrawCall, refuse: (refusal: WaitTooLongError) => void): () => void;
  /**
   * Reads the result or error of the call in this slot, and slows the bucket down after a refusal. Returns a promise if a
   * body has to be read or the user's function is async. Never throws or rejects.
   */
  reportOutcome(
    resultOrError: unknown,
    slot: KeyedSlot,
    cost: Cost | undefined,
    read?: ReadFeedback,
  ): ReportedOutcome | Promise<ReportedOutcome>;
  /** The same for a job. The worker reports the outcome of jobs to the breaker. */
  report(resultOrError: unknown, of: ReportedCall): ReportedOutcome | Promise<ReportedOutcome>;
  /** Stops jobs of this process while the downstream is unreachable. */
  readonly breaker: Breaker;
  /** Reports a change that the breaker found to the listeners and to all processes. */
  readonly noteOutage: (key: string | undefined, change: DownstreamChange) => void;
  /** Returns the outages that any process has found. An undefined key means the whole bucket. */
  readonly readOutages: (
    keys: readonly (string | undefined)[],
  ) => Promise<readonly (DownstreamOutage | undefined)[]>;
  /**
   * Stops one key with its own limits for a time, in all processes; 0 ends that. Emits `cooldown`. Unlike `pause`, it is
   * not in the change log, and never shortens a longer pause.
   */
  hold(key: Key, forMs: number): Promise<void>;
  /** Starts a cooldown of the bucket, or of one key with its own limits. */
  readonly coolDown: (key: string | undefined, coolMs: number) => void;
  /** Resolves when all refusals so far have reached Redis, or could not be sent. */
  outcomesReported(): Promise<void>;
  /** Returns a slot that any process drew, to settle it and to end its lease. */
  slotOf(facts: SlotFacts): Promise<DrawnSlot>;
  /** Settles the cost that `read` finds in a call's result. Units that it omits stay as estimated. */
  settleByResult(read: SettleBy<unknown>, result: unknown, slot: KeyedSlot): void;
  /** Draws again for the callers of one key, or of all, after a change. */
  redraw(key?: string): void;
  /** Handles a change of one key, or of all, as if the store had sent its message. */
  changed(key?: string): void;
  /**
   * Calls back when the bucket closes, with the error for waiting calls; at once if it is closed. Returns a function that
   * removes the listener.
   */
  onClose(fail: (reason: ClosedError) => void): () => void;
  /** Rejects all waiting calls, and returns unused slots. */
  close(): Promise<void>;
}
