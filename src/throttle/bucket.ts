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
import type { DrawnSlot, Slot, SlotFacts } from "./slot/slot.ts";
import type { TryDecision } from "./try/decision.ts";
import type { WaitRegistry } from "./waiting/wait.ts";
import type { NoRoomYet, WaitOptions } from "./waiting/waiting-call.ts";

/**
 * A named source of slots for calls, shared by all replicas. Its events are those of this process's calls, except
 * `"change"`, which is of all replicas; they hold nothing up, and cost nothing while nobody listens.
 */
export interface Bucket extends Emitter<BucketEvents> {
  readonly name: string;
  /** How many callers wait in this process. */
  readonly waiting: number;
  /**
   * Waits for a slot; resolves when the call may start.
   *
   * @throws {@link InvalidOptionError} when an option can never work.
   * @throws {@link CostTooLargeError} when the cost is above what a limit can give at once.
   * @throws {@link WaitTooLongError} when no slot came within `maxWaitMs`.
   * @throws {@link LineFullError} when `maxWaiting` leaves no room for this priority.
   * @throws {@link StoreUnavailableError} when Redis gave no answer in time.
   * @throws {@link ClosedError} when the sluice is closed.
   * @throws the signal's reason, when it is aborted.
   */
  draw(options?: DrawOptions): Promise<Slot>;
  /**
   * Answers at once whether a call may start, and draws for it if so. A refusal is remembered until
   * it can change: until then, further tries of the same key cost Redis nothing.
   *
   * @throws as {@link Bucket.draw} does, but never for a wait.
   */
  tryDraw(options?: TryOptions): Promise<TryDecision>;
  /**
   * Wraps a function: same `this`, arguments and result, but each call waits for its slot.
   * Rejects with what the function throws, and with all that {@link Bucket.draw} throws.
   */
  readonly throttled: Throttle;
  /**
   * Makes one call in its slot, without wrapping: waits, runs the function, and resolves with its result.
   * Rejects with what the function throws, and with all that {@link Bucket.draw} throws.
   */
  run<Result>(fn: () => Result, options?: RunOptions<Result>): Promise<Awaited<Result>>;
  /** A `fetch` that waits for its slots, heeds refusals, and sends a refused request again when the bucket lets it. */
  readonly fetch: ThrottledFetch;
  /**
   * Puts another policy in force for all replicas, over that of the code; `"code"` puts that in force again.
   * Limits that all keys share take the place of all of those, shadows too; shadows alone, only that of shadows. What is
   * left out stays. Counters are not reset. Configured policies outlive restarts, for 30 days after the last draw; with `forMs`, they end
   * by themselves, up to two seconds late, as long as any process uses the bucket.
   *
   * @throws {@link InvalidOptionError} when the policy can never work, or names limits for all keys together where keys are spread over a cluster.
   * @throws {@link ChangedError} when the bucket is of another `generation` than the options say; so do the others below.
   * @throws {@link StoreUnavailableError} when Redis gave no answer in time; so do the others below.
   * @throws {@link ClosedError} when the sluice is closed; so do the others below.
   */
  configure<const Rate extends RateInput = RateInput, const KeyRate extends RateInput = RateInput>(
    policy: PolicyOptions<Rate, KeyRate> | "code",
    options?: ConfigureOptions,
  ): Promise<void>;
  /**
   * Starts no call of any replica for a time, or until {@link Bucket.resume}; with a key, none of that key.
   *
   * @throws {@link InvalidOptionError} when the key has no limits of its own, and so no state.
   */
  pause(options?: PauseOptions): Promise<void>;
  /** Ends a pause of the bucket; with a key, that key's own. Throws as `pause` does. */
  resume(options?: ResumeOptions): Promise<void>;
  /**
   * Takes back the last change that `configure`, `pause` or `resume` made and that is still in force: what was in force
   * before is again, a pause for the rest of its time. Returns that change; undefined if there is none.
   */
  undo(options?: UndoOptions): Promise<BucketChange | undefined>;
  /** The state of the bucket for all replicas; with a key, that key's own limits too. Changes nothing. */
  peek(options?: KeyOptions): Promise<BucketState>;
  /**
   * The bucket as an operator sees it, of all replicas: the cap beside the actual rate, what waits and what holds it back,
   * and who set it. Replicas report each second while something happens, so it may be a second old.
   */
  status(): Promise<BucketStatus>;
  /**
   * What another policy or a pause would do to the callers that wait, and changes nothing: of jobs in a queue,
   * `queue.preview` says it. Refuses what `configure` refuses.
   *
   * @throws {@link InvalidOptionError} when the change could never work, or nothing would change.
   */
  preview<const Rate extends RateInput = RateInput, const KeyRate extends RateInput = RateInput>(
    change: PreviewOptions<Rate, KeyRate>,
  ): Promise<BucketPreview>;
  /** How many calls all replicas started, in steps of ten seconds, of the last 24 hours. */
  history(options?: HistoryOptions): Promise<History>;
}

/** What a process tells of a bucket. */
export interface LocalActivity extends Omit<BucketActivity, "startedIn10s"> {
  /** Calls that started since it told it last. */
  readonly started: number;
  /** Refusals of the downstream since then, after which a cooldown or a cut of the rate followed. */
  readonly refused: number;
}

/** The call whose outcome is reported. */
export interface ReportedCall {
  readonly slot: Slot;
  readonly cost: Cost | undefined;
  /** Whether the bucket's breaker is open by it, so that a refusal that names no time needs no cooldown. */
  readonly isSpared?: boolean | undefined;
  /** Reads it in place of the bucket's own `feedback`. */
  readonly read?: ReadFeedback | undefined;
}

/** A bucket as the rest of this sluice uses it. */
export interface OwnedBucket extends Bucket {
  readonly policy: Policy;
  /** Whether the code of this process says that policy, rather than rules or nobody. */
  readonly isDeclared: boolean;
  readonly logger: Logger;
  /** What each call costs that does not say so itself; undefined if the bucket does not know either. */
  readonly calls: CallDefaults | undefined;
  /** Whether the application itself calls through this bucket, and not only its workers. */
  readonly isCalledByHand: boolean;
  /** {@link Bucket.draw} with options that have been read already. May also throw, instead of rejecting. */
  drawByHand(options: ObservedDrawCall): Promise<Slot>;
  /** {@link Bucket.tryDraw} with options that have been read already. May also throw, instead of rejecting. */
  tryByHand(options: TryCall): Promise<TryDecision>;
  /**
   * Draws with options that have been read already, for a worker. `waits` lists the wait until it is over, so that a
   * worker can end it: a signal for each job would cost more than the draw.
   */
  drawForJob(options: WaitOptions, waits: WaitRegistry): Promise<DrawnSlot | NoRoomYet>;
  /**
   * The interval that such a call takes of the limits that all keys share, and of those of its own key, in ms; 0 where
   * there is no rate.
   *
   * @throws as {@link Bucket.tryDraw} does for such a cost.
   */
  stepsOf(options: TryCall): { readonly sharedMs: number; readonly keyMs: number };
  /** The policy in force and the state of the bucket; the policy that this process knows stays as it is. */
  inForce(): Promise<InForce>;
  /** The same as if a change had been made. */
  suppose(where: string, change: unknown): Promise<InForce>;
  /** What this process has to tell of the bucket; each call that started is told once. */
  takeActivity(): LocalActivity;
  /** Ends a policy that was given for a time. */
  expire(override: Override): Promise<void>;
  /** How many callers wait here because of the limits of their own key. */
  readonly deferred: number;
  /** Calls back when limits, a cooldown or a pause have changed, of one key or of all; returns a function that ends it. */
  onChange(listener: (key: string | undefined) => void): () => void;
  /**
   * Checks what a call would draw, long before it does.
   *
   * @throws {@link InvalidOptionError} and {@link CostTooLargeError} as {@link Bucket.draw} does.
   */
  checkDrawable(where: string, options: TryCall): Promise<void> | undefined;
  /** The refusal of a call that is known to be hopeless, for one that does not wait in the bucket yet. */
  refusalKnown(options: ObservedDrawCall): WaitTooLongError | undefined;
  /**
   * Calls back with that refusal as soon as it is known, maybe at once, for a call that waits elsewhere until then; returns
   * what ends that.
   */
  whenHopeless(options: ObservedDrawCall, refuse: (refusal: WaitTooLongError) => void): () => void;
  /**
   * Reads what a call of this cost, which left on this slot, returned or threw, and slows the bucket down if that is a
   * refusal. A promise if a body has to be read, or the user's own function takes time. Never throws nor rejects.
   */
  reportOutcome(
    resultOrError: unknown,
    slot: Slot,
    cost: Cost | undefined,
    read?: ReadFeedback,
  ): ReportedOutcome | Promise<ReportedOutcome>;
  /** The same for a job, of which the breaker learns from its worker. */
  report(resultOrError: unknown, of: ReportedCall): ReportedOutcome | Promise<ReportedOutcome>;
  /** Keeps jobs from starting while the downstream is away, in this process. */
  readonly breaker: Breaker;
  /** What the breaker has found of the downstream of the bucket, or of one key: told to listeners, and to all processes. */
  readonly noteOutage: (key: string | undefined, change: DownstreamChange) => void;
  /** Whether the downstream is away, of the bucket (undefined) or of single keys, as any process has found. */
  readonly readOutages: (
    keys: readonly (string | undefined)[],
  ) => Promise<readonly (DownstreamOutage | undefined)[]>;
  /**
   * Starts nothing of one key with limits of its own for a while, in any process; 0 ends that. Emits `cooldown`. Unlike `pause`
   * and `resume`, it is no change by hand: it is in no log of changes, and a pause that lasts longer, or that has no end, stays.
   */
  hold(key: Key, forMs: number): Promise<void>;
  /** Starts nothing of the bucket, or of one key with limits of its own, for a while. */
  readonly coolDown: (key: string | undefined, coolMs: number) => void;
  /** Resolves when all refusals so far hold for all replicas, or could not be sent. */
  outcomesReported(): Promise<void>;
  /** A slot that any process of the fleet drew, to settle it and to end its lease. */
  slotOf(facts: SlotFacts): Promise<DrawnSlot>;
  /** Settles the cost that `read` finds in a call's result; what it does not find stays as estimated. */
  settleByResult(read: SettleBy<unknown>, result: unknown, slot: Slot): void;
  /** Draws again for the callers of one key, or of all: the bucket may have changed. */
  redraw(key?: string): void;
  /** Does what a message of the store does: limits, a cooldown or a pause have changed, of one key or of all. */
  changed(key?: string): void;
  /** Calls back when the bucket is closed, at once if it is, with the error of those who wait; returns a function that ends it. */
  onClose(fail: (reason: ClosedError) => void): () => void;
  /** Fails all callers that wait, and gives unused slots back. */
  close(): Promise<void>;
}
