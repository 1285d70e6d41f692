import { WaitTooLongError } from "../core/errors.ts";
import type { Priority } from "../core/priority.ts";
import type { HeldSlot } from "./held-slots.ts";
import type { DrawOptions } from "./draw-options.ts";
import type { Caller, Pacer } from "./pacer.ts";
import type { Slot } from "./slot.ts";

/** What a call needs to know of the bucket that it waits for. */
export interface CallContext {
  readonly bucket: string;
  readonly pacer: Pacer;
  /** The limit as errors name it: `"100/s"`. */
  readonly limitedBy: () => string;
}

/**
 * One call in the line, until it gets its slot or its wait ends otherwise.
 * A class, since 100,000 of them may wait and closures would double their size.
 */
export class WaitingCall implements Caller {
  readonly priority: Priority;
  previous: Caller | undefined = undefined;
  next: Caller | undefined = undefined;
  readonly #context: CallContext;
  readonly #options: DrawOptions;
  readonly #resolve: (slot: Slot) => void;
  readonly #reject: (reason: unknown) => void;
  readonly #sinceMs = performance.now();
  #timer: NodeJS.Timeout | undefined;

  constructor(
    context: CallContext,
    options: DrawOptions,
    settle: { resolve: (slot: Slot) => void; reject: (reason: unknown) => void },
  ) {
    this.#context = context;
    this.#options = options;
    this.#resolve = settle.resolve;
    this.#reject = settle.reject;
    this.priority = options.priority ?? "normal";
    options.signal?.addEventListener("abort", this, { once: true });
    if (options.maxWaitMs !== undefined) {
      this.#timer = setTimeout(expire, options.maxWaitMs, this);
    }
  }

  go(slot: HeldSlot, generation: number): void {
    this.#release();
    this.#resolve({
      bucket: this.#context.bucket,
      key: this.#options.key,
      atMs: slot.slotUs / 1_000,
      waitedMs: performance.now() - this.#sinceMs,
      generation,
    });
  }

  fail(reason: unknown): void {
    this.#release();
    this.#reject(reason);
  }

  /** The signal was aborted. */
  handleEvent(): void {
    this.leave(this.#options.signal?.reason);
  }

  /** Ends the wait for a reason of the caller's. */
  leave(reason: unknown): void {
    this.#context.pacer.leave(this);
    this.fail(reason);
  }

  expire(): void {
    const { bucket, pacer, limitedBy } = this.#context;
    const retryAfterMs = pacer.estimateMs();
    pacer.leave(this);
    this.fail(
      new WaitTooLongError({
        bucket,
        key: this.#options.key,
        maxWaitMs: this.#options.maxWaitMs!,
        retryAfterMs,
        limitedBy: limitedBy(),
      }),
    );
  }

  #release(): void {
    clearTimeout(this.#timer);
    this.#options.signal?.removeEventListener("abort", this);
  }
}

/** One function for all timers: none has to hold a closure. */
function expire(call: WaitingCall): void {
  call.expire();
}
