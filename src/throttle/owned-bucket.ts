import type { ClosedError } from "../core/errors.ts";
import type { Policy } from "../core/policy/policy.ts";
import type { News } from "../core/store.ts";
import type { Bucket } from "./bucket.ts";
import type { Cost } from "./costs.ts";
import type { DrawOptions, SettleBy, TryOptions } from "./draw-options.ts";
import type { ReadFeedback } from "./feedback-options.ts";
import type { Heard } from "./listener.ts";
import type { Slot } from "./slot.ts";
import type { InForce } from "./steering.ts";
import type { TooFar, WaitOptions, Waits } from "./waiting-call.ts";

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
  readonly heldBack: number;
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
  lookIn(key?: string, news?: News): void;
  /** Slots that are held, of one key or of all, are worthless. */
  forget(key: string | undefined): void;
  /** Calls back when the bucket is closed, at once if it is, with what those who wait fail with; returns what ends it. */
  onClose(fail: (reason: ClosedError) => void): () => void;
  /** Fails all who wait, and gives unused slots back. */
  close(): Promise<void>;
}
