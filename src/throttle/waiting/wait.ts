/** How a registry ends a wait. */
export type CancellableWait = Pick<Wait, "cancel">;

/** Lists waits while they last: a set, or an object that holds one wait at a time. */
export interface WaitRegistry {
  add(wait: CancellableWait): unknown;
  delete(wait: CancellableWait): unknown;
}

/** What can end a wait early. */
export interface WaitLimits {
  readonly signal?: AbortSignal | undefined;
  /** The deadline, on `performance.now()`. */
  readonly untilMs?: number | undefined;
  /** The registry that lists the wait, so that its owner can cancel it. */
  readonly waits?: WaitRegistry | undefined;
  /**
   * Registers a callback for the close of the bucket; calls it at once if that is closed. Returns how to unregister.
   */
  readonly onClose?: ((cancel: (reason: unknown) => void) => () => void) | undefined;
}

/** Receives the end of a wait. At most one of these is called, at most once, and never after {@link Wait.end}. */
export interface WaitHandlers {
  /** The wait was cancelled, for example by its signal. */
  onCancel(reason: unknown): void;
  /** The deadline passed. */
  onExpire(): void;
}

/**
 * One wait until it ends: by its signal, its deadline, a close, or the owner of its registry. It holds a timer and a
 * listener only until then. A class, because 100,000 of them may be pending, and closures would double their size.
 */
export class Wait {
  /** Undefined after the wait has ended. */
  #waiting: WaitHandlers | undefined;
  readonly #signal: AbortSignal | undefined;
  readonly #waits: WaitRegistry | undefined;
  readonly #timer: NodeJS.Timeout | undefined;
  readonly #stopListening: (() => void) | undefined;

  constructor(waiting: WaitHandlers, { signal, untilMs, waits, onClose }: WaitLimits) {
    this.#waiting = waiting;
    this.#signal = signal;
    this.#waits = waits;
    waits?.add(this);
    signal?.addEventListener("abort", this, { once: true });
    if (untilMs !== undefined) {
      const leftMs = Math.max(1, Math.ceil(untilMs - performance.now()));
      this.#timer = setTimeout(expire, leftMs, this);
    }
    this.#stopListening = onClose?.((reason) => this.cancel(reason));
    // `onClose` may have cancelled the wait at once, before there was anything to unregister.
    if (this.#waiting === undefined) this.#stopListening?.();
  }

  /** Ends the wait successfully; false if it had ended before. */
  end(): boolean {
    if (this.#waiting === undefined) return false;
    this.#waiting = undefined;
    clearTimeout(this.#timer);
    this.#signal?.removeEventListener("abort", this);
    this.#waits?.delete(this);
    this.#stopListening?.();
    return true;
  }

  /** Cancels the wait, unless it has ended. */
  cancel(reason: unknown): void {
    const waiting = this.#waiting;
    if (this.end()) waiting?.onCancel(reason);
  }

  /** Ends the wait at its deadline, unless it has ended. */
  expire(): void {
    const waiting = this.#waiting;
    if (this.end()) waiting?.onExpire();
  }

  /** Called by the signal when it is aborted. */
  handleEvent(): void {
    this.cancel(this.#signal?.reason);
  }
}

/** One function for all timers, so that no timer needs a closure. */
function expire(wait: Wait): void {
  wait.expire();
}

/** Resolves after `ms`, or earlier if the owner of `waits` cancels it. */
export function pauseFor(ms: number, waits: WaitRegistry): Promise<void> {
  return new Promise((resolve) => {
    const waiting: WaitHandlers = { onCancel: () => resolve(), onExpire: () => resolve() };
    new Wait(waiting, { untilMs: performance.now() + ms, waits });
  });
}
