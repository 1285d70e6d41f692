import { reasonOf } from "./describe.ts";
import { InvalidOptionError } from "./errors.ts";
import type { Logger } from "./logger.ts";

/** Calls a listener on each event of a name. */
export interface Emitter<Events> {
  /**
   * What a listener throws goes to the logger.
   *
   * @throws {@link InvalidOptionError} when there is no such event, or the listener is no function.
   */
  on<Name extends keyof Events>(event: Name, listener: (event: Events[Name]) => unknown): void;
  /** Calls the listener no more. */
  off<Name extends keyof Events>(event: Name, listener: (event: Events[Name]) => unknown): void;
}

export interface OwnedEmitter<Events> extends Emitter<Events> {
  emit<Name extends keyof Events>(name: Name, event: Events[Name]): void;
  /** Whether anybody listens to it. */
  isHeard(name: keyof Events): boolean;
}

type Listeners<Events> = {
  [Name in keyof Events]?: Set<(event: Events[Name]) => unknown>;
};

/** An emitter of these events, and of no others; `whose` they are is told of listeners that fail. */
export function createEmitter<Events>(
  whose: string,
  names: readonly (keyof Events & string)[],
  logger: Logger,
): OwnedEmitter<Events> {
  const known = new Set<PropertyKey>(names);
  const listeners: Listeners<Events> = {};

  function report(event: PropertyKey, error: unknown): void {
    const reason = reasonOf(error);
    const problem = `A listener to "${String(event)}" of ${whose} has failed: ${reason}`;
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
          // One that is async may reject later.
          Promise.resolve(listener(event)).catch((error) => report(name, error));
        } catch (error) {
          report(name, error);
        }
      }
    },
    isHeard: (name) => (listeners[name]?.size ?? 0) > 0,
  };
}

/** What a sluice tells of its Redis servers. */
export interface StoreEvent {
  /** `"down"`: the server is asked no more until it answers a probe; `"up"`: it has answered one. */
  readonly state: "up" | "down";
  /** Where it is, without user and password: `"10.0.0.7:6379"`. */
  readonly server: string;
  /** Of `"down"`, what the connection met last: `"connect ECONNREFUSED 10.0.0.7:6379"`. Undefined for silence, and for `"up"`. */
  readonly reason: string | undefined;
}

/** The events of a sluice, by name. */
export interface SluiceEvents {
  readonly store: StoreEvent;
}
