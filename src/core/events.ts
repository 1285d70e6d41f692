import { reasonOf } from "./describe.ts";
import { InvalidOptionError } from "./errors.ts";
import type { Logger } from "./logger.ts";

/** Calls listeners on events, by the events' names. */
export interface Emitter<Events> {
  /**
   * Calls the listener on each event of this name. Errors of the listener go to the logger.
   *
   * @throws {@link InvalidOptionError} when there is no such event, or the listener is not a function.
   */
  on<Name extends keyof Events>(event: Name, listener: (event: Events[Name]) => unknown): void;
  /** Removes the listener. */
  off<Name extends keyof Events>(event: Name, listener: (event: Events[Name]) => unknown): void;
}

export interface OwnedEmitter<Events> extends Emitter<Events> {
  emit<Name extends keyof Events>(name: Name, event: Events[Name]): void;
  /** Whether the event has a listener. */
  hasListener(name: keyof Events): boolean;
}

type Listeners<Events> = {
  [Name in keyof Events]?: Set<(event: Events[Name]) => unknown>;
};

/** An emitter of these events and no others. `owner` names it in the errors of listeners: `'queue "mail"'`. */
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

  return {
    on(event, listener) {
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
      (listeners[event] ??= new Set()).add(listener);
    },
    off(event, listener) {
      assertKnown("off()", event);
      listeners[event]?.delete(listener);
    },
    emit(name, event) {
      for (const listener of listeners[name] ?? []) {
        try {
          // An async listener may reject later.
          Promise.resolve(listener(event)).catch((error) => report(name, error));
        } catch (error) {
          report(name, error);
        }
      }
    },
    hasListener: (name) => (listeners[name]?.size ?? 0) > 0,
  };
}

/** A Redis server stopped answering, or answers again. */
export interface StoreEvent {
  /** `"down"`: the server gets no requests until it answers a probe; `"up"`: it has answered one. */
  readonly state: "up" | "down";
  /** Its address, without user and password: `"10.0.0.7:6379"`. */
  readonly server: string;
  /** Of `"down"`, the last error of the connection: `"connect ECONNREFUSED 10.0.0.7:6379"`. Undefined if there was none, and for `"up"`. */
  readonly reason: string | undefined;
}

/** The events of a sluice, by name. */
export interface SluiceEvents {
  readonly store: StoreEvent;
}
