import process from "node:process";

const EXIT_CODE_OF = { SIGHUP: 129, SIGINT: 130, SIGTERM: 143 } as const;
type Stop = keyof typeof EXIT_CODE_OF;
/** Signals that come together are one Ctrl-C: the terminal and npm both pass it on. */
const TOGETHER_MS = 500;

/** Aborted at the first signal that asks this process to stop, which has set its exit code then; a later one ends it at once. */
export function stopSignals(): AbortSignal {
  const stop = new AbortController();
  let stoppedAtMs: number | undefined;
  for (const signal of Object.keys(EXIT_CODE_OF) as Stop[]) {
    process.on(signal, () => {
      stoppedAtMs ??= performance.now();
      // The children end with this process, so nothing stays behind.
      if (performance.now() - stoppedAtMs > TOGETHER_MS) process.exit(EXIT_CODE_OF[signal]);
      process.exitCode = EXIT_CODE_OF[signal];
      stop.abort();
    });
  }
  return stop.signal;
}
