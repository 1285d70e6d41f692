import type { ReadFeedback, SlowCause } from "../core/answer.ts";
import type { ClosedError, WaitTooLongError } from "../core/errors.ts";
import type { Key } from "../core/key-path.ts";
import type { Logger } from "../core/logger.ts";
import type { Emitter } from "../core/events/events.ts";
import type { RateInput } from "../core/limits/rate.ts";
import type { Policy, PolicyOptions } from "../core/policy/policy.ts";
import type { DownstreamOutage } from "../core/store.ts";
import type { BucketEvents } from "./bucket/bucket-events.ts";
import type { BucketActivity, Override } from "../core/stores/insight/store.ts";
import type { WhoAndWhy } from "../core/input/who-and-why.ts";
import type { BucketState, InForce, MemberState } from "./bucket/bucket-state.ts";
import type {
  BudgetBackup,
  BudgetsOptions,
  BudgetState,
  GrantOptions,
  Restored,
} from "./bucket/budgets.ts";
import type { WarningsReader } from "./bucket/bucket-events.ts";
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
 * A named set of limits that all replicas share. Each call draws a slot from the bucket before it starts. Bucket events
 * report the calls of this process; only `"change"` events report changes by any replica. Events never delay a call.
 */
export interface Bucket extends Emitter<BucketEvents> {
  readonly name: string;
  /** The number of callers in this process that wait for a slot. */
  readonly waiting: number;
  /**
   * Waits for a slot; resolves when the call may start.
   *
   * @throws {@link InvalidOptionError} when an option can never work.
   * @throws {@link CostTooLargeError} when the cost exceeds the capacity of a limit.
   * @throws {@link WaitTooLongError} when no slot is free within `maxWaitMs`.
   * @throws {@link LineFullError} when as many callers wait as `maxWaiting` allows for this priority.
   * @throws {@link StoreUnavailableError} when Redis did not reply in time.
   * @throws {@link ClosedError} when the sluice is closed.
   * @throws the signal's reason, when it is aborted.
   */
  draw(options?: DrawOptions): Promise<Slot>;
  /**
   * Draws a slot if the call may start now. Never waits for a slot. This process caches a refusal until another try can
   * succeed. Until then, tries with the same key and cost make no request to Redis.
   *
   * @throws the errors of {@link Bucket.draw}, except those that end a wait.
   */
  tryDraw(options?: TryOptions): Promise<TryDecision>;
  /**
   * Wraps a function. The wrapped function has the same `this`, arguments and result, but each call first waits for a
   * slot. The call rejects with the function's error, or with an error of {@link Bucket.draw}.
   */
  readonly throttled: Throttle;
  /**
   * Waits for a slot, runs the function once, and resolves with its result. Rejects with the function's error, or with
   * an error of {@link Bucket.draw}.
   */
  run<Result>(fn: () => Result, options?: RunOptions<Result>): Promise<Awaited<Result>>;
  /**
   * A `fetch` that waits for a slot before each request. After a refusal such as a 429, `fetch` waits until the
   * cooldown is over and then sends the request again.
   */
  readonly fetch: ThrottledFetch;
  /**
   * Changes the active policy for all replicas. The new policy overrides the policy in the code; `"code"` removes the
   * override. If you set any shared limit, it replaces all shared limits and all shadow limits. If you set only shadow
   * limits, they replace only the shadow limits. Omitted options and all counters keep their values.
   *
   * An override survives restarts, and expires 30 days after the last draw. With `forMs`, the override ends by itself,
   * at most two seconds late. For this, at least one process must use the bucket.
   *
   * @throws {@link InvalidOptionError} when the policy can never work, or sets shared limits for a bucket whose keys
   * are spread over a cluster.
   * @throws {@link ChangedError} when the bucket's generation differs from the option `generation`. The methods below
   * throw this error too.
   * @throws {@link StoreUnavailableError} when Redis did not reply in time. The methods below throw this error too.
   * @throws {@link ClosedError} when the sluice is closed. The methods below throw this error too.
   */
  configure<const Rate extends RateInput = RateInput, const KeyRate extends RateInput = RateInput>(
    policy: PolicyOptions<Rate, KeyRate> | "code",
    options?: ConfigureOptions,
  ): Promise<void>;
  /**
   * Stops all calls in all replicas for `forMs`, or until {@link Bucket.resume}. With a key, stops only the calls of
   * that key.
   *
   * @throws {@link InvalidOptionError} when the key has no limits, because such a key has no state to pause.
   */
  pause(options?: PauseOptions): Promise<void>;
  /** Ends the pause of the bucket, or of one key. Throws the same errors as `pause`. */
  resume(options?: ResumeOptions): Promise<void>;
  /**
   * Undoes the latest change by `configure`, `pause` or `resume` that is still active, and restores the state before
   * that change. A restored pause keeps its end time. Returns the undone change, or undefined if there is none.
   */
  undo(options?: UndoOptions): Promise<BucketChange | undefined>;
  /**
   * Returns the balances of the bucket's budgets over all replicas. With a key, also those of the key and of its wider
   * levels. With `all`, those of all keys that have spent something.
   */
  budgets(options?: BudgetsOptions): Promise<readonly BudgetState[]>;
  /**
   * Raises budgets until their periods end: `grant({ usd: 50 }, { reason: "demo day" })`. The change log records the
   * grant, and `undo` takes it back. Without a key, the budgets of the bucket are raised. Resolves with the balances of
   * the bucket or key after the grant.
   *
   * @throws {@link InvalidOptionError} when there is no such budget, or an amount can never be granted.
   */
  grant(
    amounts: Readonly<Record<string, number>>,
    options: GrantOptions,
  ): Promise<readonly BudgetState[]>;
  /**
   * Replaces balances by those that {@link Bucket.budgets} returned, for example of another Redis server. Balances of
   * periods that are over are left out. The change log records that balances were restored.
   *
   * @throws {@link InvalidOptionError} when a value is not a balance.
   */
  restore(balances: readonly BudgetBackup[], options?: WhoAndWhy): Promise<Restored>;
  /** Returns the state of the bucket for all replicas. With a key, the state includes the limits of that key. */
  peek(options?: KeyOptions): Promise<BucketState>;
  /**
   * Returns an operator's view of the bucket: its cap and actual rate, the waiting callers, the limit that delays them,
   * and who set the policy. Replicas report every second while they are active, so the view may be a second old.
   */
  status(): Promise<BucketStatus>;
  /**
   * Returns the effect that another policy or a pause would have on the waiting callers. Changes nothing. For the jobs
   * of a queue, use `queue.preview`.
   *
   * @throws {@link InvalidOptionError} when `configure` would reject the change, or the options contain no change.
   */
  preview<const Rate extends RateInput = RateInput, const KeyRate extends RateInput = RateInput>(
    change: PreviewOptions<Rate, KeyRate>,
  ): Promise<BucketPreview>;
  /** Returns the number of calls that all replicas started in the last 24 hours, in steps of ten seconds. */
  history(options?: HistoryOptions): Promise<History>;
}

/** The activity of one process in a bucket since the last report of that process. */
export interface LocalActivity extends Omit<BucketActivity, "startedIn10s"> {
  readonly started: number;
  /** The number of refusals by the downstream that caused a cooldown or a rate cut. */
  readonly refused: number;
}

/** The call whose outcome is reported. */
export interface ReportedCall {
  readonly slot: KeyedSlot;
  readonly cost: Cost | undefined;
  /** True if this call opened the breaker. A refusal without a retry time then needs no cooldown. */
  readonly isSpared?: boolean | undefined;
  /** Reads the outcome of this call, in place of the bucket's `feedback` function. */
  readonly read?: ReadFeedback | undefined;
}

/** The methods of a bucket that only this package uses. */
export interface OwnedBucket extends Bucket {
  readonly policy: Policy;
  /** True if the code of this process declares the policy. */
  readonly isDeclared: boolean;
  readonly logger: Logger;
  /** The default `cost` and `settle` options of calls. */
  readonly calls: CallDefaults | undefined;
  draw(options?: DrawOptions): Promise<KeyedSlot>;
  /** True if the application itself calls through this bucket. False if only its workers draw from the bucket. */
  readonly isCalledByHand: boolean;
  /** Does the same as {@link Bucket.draw}, for validated options. May throw instead of rejecting. */
  drawByHand(options: ObservedDrawCall): Promise<KeyedSlot>;
  /** Does the same as {@link Bucket.tryDraw}, for validated options. May throw instead of rejecting. */
  tryByHand(options: TryCall): Promise<TryDecision>;
  /**
   * Draws a slot for a worker's job, with validated options. The bucket lists the pending wait in `waits`, so that the
   * worker can cancel it. An `AbortSignal` for each job would cost more than the draw.
   */
  drawForJob(options: WaitOptions, waits: WaitRegistry): Promise<DrawnSlot | NoRoomYet>;
  /**
   * Returns the time that a call with these options uses up in the shared limits and in the limits of its key, in ms.
   * The time is 0 if no rate applies.
   *
   * @throws the errors of {@link Bucket.tryDraw} for an invalid cost.
   */
  stepsOf(options: TryCall): { readonly sharedMs: number; readonly keyMs: number };
  /** Returns the active policy and the state of the bucket. Does not update this process's copy of the policy. */
  inForce(): Promise<InForce>;
  /** Does the same as {@link Bucket.configure}, for another method. Errors name `where`. */
  configureAt(
    where: string,
    policy: PolicyOptions | "code",
    options?: ConfigureOptions,
  ): Promise<void>;
  /** Returns the members of a pool and their state. Returns an empty list for other buckets. */
  members(): Promise<readonly MemberState[]>;
  /** Returns the policy and the state as they would be after a change. Changes nothing. */
  suppose(where: string, change: unknown): Promise<InForce>;
  /** Returns the activity since the last call of this method. */
  takeActivity(): LocalActivity;
  /** Ends an override that has expired. */
  expire(override: Override): Promise<void>;
  /** The number of callers in this process that wait for per-key limits. */
  readonly deferred: number;
  /**
   * Calls `listener` when the limits, a cooldown or a pause change, for one key or for all keys. Returns a function
   * that removes the listener.
   */
  onChange(listener: (key: string | undefined) => void): () => void;
  /**
   * Checks before a call draws whether the call's cost is valid and within the limits.
   *
   * @throws {@link InvalidOptionError} and {@link CostTooLargeError} as {@link Bucket.draw} does.
   */
  checkDrawable(where: string, options: TryCall): Promise<void> | undefined;
  /**
   * Returns the rejection of a call if this process already knows that the call cannot start before its deadline.
   * Otherwise returns undefined.
   */
  refusalKnown(options: ObservedDrawCall): WaitTooLongError | undefined;
  /**
   * Calls `refuse` as soon as this process knows that the call cannot start before its deadline. Used for calls that
   * still wait outside the bucket. Returns a function that removes the callback.
   */
  whenHopeless(options: ObservedDrawCall, refuse: (refusal: WaitTooLongError) => void): () => void;
  /**
   * Reads the result or error of the call in this slot, and slows the bucket down after a refusal. Returns a promise if
   * a body has to be read or the user's `feedback` function is async. Never throws or rejects.
   */
  reportOutcome(
    resultOrError: unknown,
    slot: KeyedSlot,
    cost: Cost | undefined,
    read?: ReadFeedback,
  ): ReportedOutcome | Promise<ReportedOutcome>;
  /**
   * Reads the result or error of a job, like `reportOutcome`, but without the breaker. The worker reports job outcomes
   * to the breaker itself.
   */
  report(resultOrError: unknown, of: ReportedCall): ReportedOutcome | Promise<ReportedOutcome>;
  /** The bucket's breaker. It stops the jobs of this process while the downstream is unreachable. */
  readonly breaker: Breaker;
  /** Reports the start or end of an outage to the event listeners of this process and to all other processes. */
  readonly noteOutage: (key: string | undefined, change: DownstreamChange) => void;
  /** Returns the outages that any process has found. An undefined key means the whole bucket. */
  readonly readOutages: (
    keys: readonly (string | undefined)[],
  ) => Promise<readonly (DownstreamOutage | undefined)[]>;
  /**
   * Stops one key that has its own limits for `forMs`, in all processes; 0 ends the stop. Emits `cooldown`. Unlike
   * `pause`, `hold` writes no change log entry and never shortens a longer pause.
   */
  hold(key: Key, forMs: number): Promise<void>;
  /** Starts a cooldown of the bucket, or of one key with its own limits. */
  readonly coolDown: (key: string | undefined, coolMs: number, cause?: SlowCause) => void;
  /** Resolves when Redis has received all refusals so far. Refusals that could not be sent do not delay this. */
  outcomesReported(): Promise<void>;
  /** Returns a slot that any process drew, so that this process can settle the slot and end its lease. */
  slotOf(facts: SlotFacts): Promise<DrawnSlot>;
  /** Settles the cost that `read` finds in a call's result. Units that `read` omits keep their estimates. */
  settleByResult(read: SettleBy<unknown>, result: unknown, slot: KeyedSlot): void;
  /** Passes the logged warnings of budgets that a reader has not handled yet to the reader, the oldest first. */
  handleWarnings(reader: WarningsReader): Promise<void>;
  /** Draws again for the waiting callers of one key, or of all keys, after a change. */
  redraw(key?: string): void;
  /** Handles a change of one key, or of all keys, as if the store had sent a change message. */
  changed(key?: string): void;
  /**
   * Calls `fail` with the error for waiting calls when the bucket closes, or immediately if it is already closed.
   * Returns a function that removes the listener.
   */
  onClose(fail: (reason: ClosedError) => void): () => void;
  /** Rejects all waiting calls, and returns unused slots. */
  close(): Promise<void>;
}
