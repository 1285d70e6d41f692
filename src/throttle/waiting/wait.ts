/** The part of a wait that a registry uses to end it. */
export type CancellableWait = Pick<Wait, "cancel">;

/** Lists the waits that are pending: a set, or an object that holds one wait at a time. */
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
   * Registers a callback for when the bucket closes. If the bucket is already closed, calls the
   * callback immediately. Returns a function that unregisters the callback.
   */
  readonly onClose?: ((cancel: (reason: unknown) => void) => () => void) | undefined;
}

/**
 * Receives the end of a wait. At most one of these handlers is called, at most once, and never
 * after {@link Wait.end}.
 */
export interface WaitHandlers {
  /** Called when the wait is cancelled, for example by its signal. */
  onCancel(reason: unknown): void;
  /** Called when the deadline passes. */
  onExpire(): void;
}

/**
 * One pending wait. Its signal, its deadline, a close or the owner of its registry can end it. It
 * keeps a timer and a listener only until then. This is a class to save memory: 100,000 waits may
 * be pending, and closures would double their size.
 */
export class Wait {
  /** The handlers of the wait. Undefined after the wait has ended. */
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
    // `onClose` may have cancelled the wait immediately, before the unregister function was
    // available.
    if (this.#waiting === undefined) this.#stopListening?.();
  }

  /** Ends the wait successfully. Returns false if the wait has already ended. */
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

/** The callback of all timers. Sharing one function saves a closure per timer. */
function expire(wait: Wait): void {
  wait.expire();
}

/** Resolves after `ms`, or earlier if the owner of `waits` cancels the wait. */
export function pauseFor(ms: number, waits: WaitRegistry): Promise<void> {
  return new Promise((resolve) => {
    const waiting: WaitHandlers = { onCancel: () => resolve(), onExpire: () => resolve() };
    new Wait(waiting, { untilMs: performance.now() + ms, waits });
  });
}
