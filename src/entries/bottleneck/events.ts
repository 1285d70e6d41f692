import { isThenable } from "../../core/describe.ts";

/** A listener. The value that it returns, or resolves with, goes to the caller of `trigger`. */
// oxlint-disable-next-line typescript/no-explicit-any -- the arguments depend on the name of the event
export type Listener = (...args: any[]) => unknown;

interface Registered {
  readonly listener: Listener;
  readonly isOnce: boolean;
}

/** The methods that {@link Events} adds to an object. */
export interface Emits {
  on(name: string, listener: Listener): this;
  once(name: string, listener: Listener): this;
  removeAllListeners(name?: string): void;
}

/**
 * Adds `on`, `once` and `removeAllListeners` to an object. Only the owner of the `Events` object can trigger events.
 */
export class Events {
  readonly #listeners = new Map<string, Registered[]>();

  constructor(owner: object) {
    const emitter = owner as Partial<Emits>;
    if (emitter.on !== undefined || emitter.once !== undefined) {
      throw new Error("This object already has an emitter; create only one Events object for it");
    }
    const add = (name: string, listener: Listener, isOnce: boolean): object => {
      this.#listeners.set(name, [...(this.#listeners.get(name) ?? []), { listener, isOnce }]);
      return owner;
    };
    Object.assign(owner, {
      on: (name: string, listener: Listener) => add(name, listener, false),
      once: (name: string, listener: Listener) => add(name, listener, true),
      removeAllListeners: (name?: string | null) => {
        if (name === undefined || name === null) this.#listeners.clear();
        else this.#listeners.delete(name);
      },
    });
  }

  listenerCount(name: string): number {
    return this.#listeners.get(name)?.length ?? 0;
  }

  /**
   * Calls the listeners in the order in which they were added. Resolves with the first result that is neither null nor
   * undefined. An error of a listener becomes an `"error"` event.
   */
  async trigger(name: string, ...args: readonly unknown[]): Promise<unknown> {
    if (name !== "debug") void this.trigger("debug", `Event triggered: ${name}`, args);
    const called = this.#listeners.get(name) ?? [];
    const kept = called.filter(({ isOnce }) => !isOnce);
    if (kept.length < called.length) this.#listeners.set(name, kept);
    const results = await Promise.all(
      called.map(({ listener }) => this.#call(name, listener, args)),
    );
    return results.find((result) => result !== undefined && result !== null);
  }

  #call(name: string, listener: Listener, args: readonly unknown[]): unknown {
    const fail = (error: unknown): void => {
      // An error in an error listener must not trigger that listener again.
      if (name !== "error") void this.trigger("error", error);
    };
    // Bottleneck accepts listeners that are no functions, and ignores them.
    if (typeof listener !== "function") return undefined;
    try {
      const result = listener(...args);
      return isThenable(result) ? Promise.resolve(result).catch(fail) : result;
    } catch (error) {
      return fail(error);
    }
  }
}
