import { isThenable } from "../core/describe.ts";
import { whenObserved, type Observing } from "../core/events/observer.ts";

/**
 * The one place through which all requests to a store pass, whatever store that is: here they are timed while somebody
 * hears of it, by their own names. What is added to a store is timed without more.
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

/** `giveBack` is `give_back` in metrics. */
function commandOf(name: string): string {
  return name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}
