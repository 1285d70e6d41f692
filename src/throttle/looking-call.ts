import { WaitTooLongError } from "../core/errors.ts";
import { UNKNOWN_MS } from "./decisions.ts";
import type { DrawOptions } from "./draw-options.ts";
import { UNANSWERED } from "./estimates.ts";
import type { Wait, Waits } from "./waiting-call.ts";

/** What bounds a wait. */
export type Bounds = Pick<DrawOptions, "key" | "maxWaitMs" | "signal">;

/** One call while the policy in force is looked up for it: its wait may end as it may in the line. */
export class LookingCall implements Wait {
  readonly #bucket: string;
  readonly #bounds: Bounds;
  readonly #waits: Waits | undefined;
  readonly #reject: (reason: unknown) => void;
  readonly #timer: NodeJS.Timeout | undefined;
  #isOver = false;

  constructor(parts: {
    readonly bucket: string;
    readonly bounds: Bounds;
    /** Where it is listed until it is over. */
    readonly waits: Waits | undefined;
    readonly reject: (reason: unknown) => void;
  }) {
    this.#bucket = parts.bucket;
    this.#bounds = parts.bounds;
    this.#waits = parts.waits;
    this.#reject = parts.reject;
    this.#waits?.add(this);
    const { signal, maxWaitMs } = this.#bounds;
    signal?.addEventListener("abort", this, { once: true });
    if (maxWaitMs !== undefined) {
      this.#timer = setTimeout(() => this.#expire(maxWaitMs), maxWaitMs);
    }
  }

  /** Ends the wait, as the look has; false if it was over before. */
  end(): boolean {
    if (this.#isOver) return false;
    this.#isOver = true;
    clearTimeout(this.#timer);
    this.#bounds.signal?.removeEventListener("abort", this);
    this.#waits?.delete(this);
    return true;
  }

  leave(reason: unknown): void {
    this.end();
    this.#reject(reason);
  }

  /** The signal was aborted. */
  handleEvent(): void {
    this.leave(this.#bounds.signal?.reason);
  }

  #expire(maxWaitMs: number): void {
    const facts = { bucket: this.#bucket, key: this.#bounds.key, maxWaitMs };
    const estimates = { retryAfterMs: UNKNOWN_MS, limitedBy: UNANSWERED };
    this.leave(new WaitTooLongError({ ...facts, ...estimates }));
  }
}
