import { isThenable } from "../core/describe.ts";
import { whenObserved, type Observing } from "../core/events/observer.ts";

/**
 * Wraps a store so that each request is timed under its own name while metrics are collected. All
 * requests pass here, so new methods of a store are timed automatically.
 */
export function observed<Store extends object>(store: Store, observing: Observing): Store {
  const timed = Object.entries(store).map(([name, ask]: [string, unknown]) => {
    if (typeof ask !== "function" || name === "close") return [name, ask];
    const command = commandOf(name);
    const durations = whenObserved(observing, (observer) =>
      observer.series("sluice_store_duration_seconds", command),
    );
    const timedAsk = (...given: unknown[]): unknown => {
      const duration = durations();
      if (duration === undefined) return ask.apply(store, given);
      const sinceMs = performance.now();
      const answer: unknown = ask.apply(store, given);
      const note = (): void => duration.add(performance.now() - sinceMs);
      if (isThenable(answer)) answer.then(note, note);
      return answer;
    };
    return [name, timedAsk];
  });
  return Object.fromEntries(timed) as Store;
}

/** The name in metrics: `giveBack` becomes `give_back`. */
function commandOf(name: string): string {
  return name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}
