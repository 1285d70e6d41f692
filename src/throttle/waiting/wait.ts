/** The part of a wait that a registry needs: how to end it. */
export type CancellableWait = Pick<Wait, "leave">;

/** Where waits are listed while they last: a set, or a holder of one wait at a time. */
export interface WaitRegistry {
  add(wait: CancellableWait): unknown;
  delete(wait: CancellableWait): unknown;
}

/** What may end a wait before its time. */
export interface WaitLimits {
  readonly signal?: AbortSignal | undefined;
  /** Its deadline, on `performance.now()`. */
  readonly untilMs?: number | undefined;
  /** Whoever has these can end the wait: see {@link Wait.leave}. */
  readonly waits?: WaitRegistry | undefined;
  /** Calls back when what is waited for is closed, at once if it is; returns what ends that. */
  readonly onClose?: ((leave: (reason: unknown) => void) => () => void) | undefined;
}

/** What waits. At most one of these is called, once, and not after {@link Wait.end}. */
export interface WaitHandlers {
  /** The wait was ended for a reason: that of its signal, or another. */
  onLeave(reason: unknown): void;
  /** The deadline is over. */
  onExpire(): void;
}

/**
 * One wait, until it ends: by its signal, by its time, by a close, or by whoever has it in a list. It is listed from
 * here on, and holds a timer and a listener until then.
 * A class, since 100,000 of them may be under way, and closures would double their size.
 */
export class Wait {
  /** Undefined once the wait is over. */
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
    this.#stopListening = onClose?.((reason) => this.leave(reason));
    // It was closed already.
    if (this.#waiting === undefined) this.#stopListening?.();
  }

  /** Ends the wait, which has come to what it was for; false if it was over before. */
  end(): boolean {
    if (this.#waiting === undefined) return false;
    this.#waiting = undefined;
    clearTimeout(this.#timer);
    this.#signal?.removeEventListener("abort", this);
    this.#waits?.delete(this);
    this.#stopListening?.();
    return true;
  }

  /** Ends the wait for a reason, if it is not over. */
  leave(reason: unknown): void {
    const waiting = this.#waiting;
    if (this.end()) waiting?.onLeave(reason);
  }

  /** Ends the wait because it takes too long, if it is not over. */
  expire(): void {
    const waiting = this.#waiting;
    if (this.end()) waiting?.onExpire();
  }

  /** The signal was aborted. */
  handleEvent(): void {
    this.leave(this.#signal?.reason);
  }
}

/** One function for all timers: none has to hold a closure. */
function expire(wait: Wait): void {
  wait.expire();
}

/** Resolves after a while, or earlier if the wait for that is left. */
export function pauseFor(ms: number, waits: WaitRegistry): Promise<void> {
  return new Promise((resolve) => {
    const waiting: WaitHandlers = { onLeave: () => resolve(), onExpire: () => resolve() };
    new Wait(waiting, { untilMs: performance.now() + ms, waits });
  });
}
