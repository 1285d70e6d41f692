import process from "node:process";

const EXIT_CODE_OF = { SIGHUP: 129, SIGINT: 130, SIGTERM: 143 } as const;
type Stop = keyof typeof EXIT_CODE_OF;
/** Signals this close together count as one Ctrl-C, which the terminal and npm both pass on. */
const TOGETHER_MS = 500;

/** Returns a signal that aborts at the first SIGHUP, SIGINT or SIGTERM, which also sets the exit code; a later one exits at once. */
export function stopSignals(): AbortSignal {
  const stop = new AbortController();
  let stoppedAtMs: number | undefined;
  for (const signal of Object.keys(EXIT_CODE_OF) as Stop[]) {
    process.on(signal, () => {
      stoppedAtMs ??= performance.now();
      // The children end with this process, so none stays behind.
      if (performance.now() - stoppedAtMs > TOGETHER_MS) process.exit(EXIT_CODE_OF[signal]);
      process.exitCode = EXIT_CODE_OF[signal];
      stop.abort();
    });
  }
  return stop.signal;
}
