import * as z from "zod";
import { isThenable, reasonOf } from "../describe.ts";
import { InvalidOptionError } from "../errors.ts";
import type { Logger } from "../logger.ts";
import { readOptions } from "../input/options.ts";

/** The options of `on()`. */
export interface ListenOptions {
  /** Removes the listener when the signal is aborted. */
  readonly signal?: AbortSignal | undefined;
}

/** Adds and removes listeners for named events. */
export interface Emitter<Events> {
  /**
   * Calls the listener for each event with this name. Returns a function that removes the listener. Errors of the
   * listener are logged.
   *
   * @throws {@link InvalidOptionError} when the event does not exist, or the listener is not a function.
   */
  on<Name extends keyof Events>(
    event: Name,
    listener: (event: Events[Name]) => unknown,
    options?: ListenOptions,
  ): () => void;
  /** Removes the listener. */
  off<Name extends keyof Events>(event: Name, listener: (event: Events[Name]) => unknown): void;
}

export interface OwnedEmitter<Events> extends Emitter<Events> {
  emit<Name extends keyof Events>(name: Name, event: Events[Name]): void;
  /** True if the event has a listener. */
  hasListener(name: keyof Events): boolean;
}

type Listener<Event> = (event: Event) => unknown;

/** For each event, a map from each listener to the function that stops watching the listener's abort signal. */
type Listeners<Events> = {
  [Name in keyof Events]?: Map<Listener<Events[Name]>, () => void>;
};

const LISTEN_OPTIONS = z.strictObject({
  signal: z.instanceof(AbortSignal, { error: "give an AbortSignal" }).optional(),
});

const stopsOf = new WeakMap<AbortSignal, Set<() => void>>();

/**
 * Calls `stop` when the signal is aborted. Returns a function that cancels this. One signal may have any number of
 * callbacks, whereas Node warns about more than ten listeners.
 */
function whenAborted(signal: AbortSignal, stop: () => void): () => void {
  const stops = stopsOf.get(signal) ?? new Set();
  if (!stopsOf.has(signal)) {
    stopsOf.set(signal, stops);
    const stopAll = (): void => {
      for (const each of stops) each();
    };
    signal.addEventListener("abort", stopAll, { once: true });
  }
  stops.add(stop);
  return () => stops.delete(stop);
}

/** Creates an emitter of these events. The log messages about failed listeners show `owner`: `'queue "mail"'`. */
export function createEmitter<Events>(
  owner: string,
  names: readonly (keyof Events & string)[],
  logger: Logger,
): OwnedEmitter<Events> {
  const known = new Set<PropertyKey>(names);
  const listeners: Listeners<Events> = {};

  function report(event: PropertyKey, error: unknown): void {
    const reason = reasonOf(error);
    const problem = `A listener to "${String(event)}" of ${owner} failed: ${reason}`;
    logger.error({ event, reason }, problem);
  }

  function assertKnown(where: string, event: PropertyKey): void {
    if (known.has(event)) return;
    const remedy = `the events are ${names.join(", ")}`;
    throw new InvalidOptionError({ where, option: "event", value: event, remedy });
  }

  function remove<Name extends keyof Events>(event: Name, listener: Listener<Events[Name]>): void {
    const stopSignal = listeners[event]?.get(listener);
    listeners[event]?.delete(listener);
    stopSignal?.();
  }

  return {
    on(event, listener, options = {}) {
      assertKnown("on()", event);
      if (typeof listener !== "function") {
        const remedy = "give the function to call on each event";
        throw new InvalidOptionError({
          where: "on()",
          option: "listener",
          value: listener,
          remedy,
        });
      }
      const { signal } = readOptions("on()", LISTEN_OPTIONS, options);
      const stop = (): void => remove(event, listener);
      if (signal?.aborted === true) return stop;
      const ofEvent = (listeners[event] ??= new Map());
      ofEvent.get(listener)?.();
      ofEvent.set(listener, signal === undefined ? () => {} : whenAborted(signal, stop));
      return stop;
    },
    off(event, listener) {
      assertKnown("off()", event);
      remove(event, listener);
    },
    emit(name, event) {
      for (const listener of listeners[name]?.keys() ?? []) {
        try {
          const result = listener(event);
          // An async listener returns a promise, which may reject later.
          if (isThenable(result)) result.then(undefined, (error: unknown) => report(name, error));
        } catch (error) {
          report(name, error);
        }
      }
    },
    hasListener: (name) => (listeners[name]?.size ?? 0) > 0,
  };
}

/** A Redis server stopped responding, or responds again. */
export interface StoreEvent {
  /** `"down"` means that the server gets no requests until it replies to a probe. `"up"` means that it has replied. */
  readonly state: "up" | "down";
  /** The address of the server, without user and password: `"10.0.0.7:6379"`. */
  readonly server: string;
  /**
   * For `"down"`, the last error of the connection: `"connect ECONNREFUSED 10.0.0.7:6379"`. Undefined if there was
   * none, and for `"up"`.
   */
  readonly reason: string | undefined;
}

/** The events of a sluice, by name. */
export interface SluiceEvents {
  readonly store: StoreEvent;
}
