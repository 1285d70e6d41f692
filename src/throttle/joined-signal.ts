import { setMaxListeners } from "node:events";

/** One signal in place of several. */
export interface JoinedSignal {
  /** Aborted with the first of them; undefined when there is none. */
  readonly signal: AbortSignal | undefined;
  /** Ends the listening to them. */
  leave(): void;
}

/** `AbortSignal.any` leaves something on each signal, for as long as that signal lives: this does not, once it is left. */
export function joinSignals(given: readonly (AbortSignal | undefined)[]): JoinedSignal {
  const signals = given.filter((signal) => signal !== undefined);
  if (signals.length < 2) return { signal: signals[0], leave() {} };
  const joined = new AbortController();
  const leave = (): void => {
    for (const signal of signals) signal.removeEventListener("abort", pass);
  };
  function pass(this: AbortSignal): void {
    leave();
    joined.abort(this.reason);
  }
  for (const signal of signals) {
    // One signal may well end a hundred calls; Node would call that a leak.
    setMaxListeners(0, signal);
    signal.addEventListener("abort", pass, { once: true });
  }
  const aborted = signals.find((signal) => signal.aborted);
  if (aborted !== undefined) pass.call(aborted);
  return { signal: joined.signal, leave };
}
