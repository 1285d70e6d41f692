import process from "node:process";

const EXIT_CODE_OF = { SIGHUP: 129, SIGINT: 130, SIGTERM: 143 } as const;
type Stop = keyof typeof EXIT_CODE_OF;
/** Signals within this time count as one Ctrl-C, because the terminal and npm both forward it. */
const TOGETHER_MS = 500;

/**
 * Returns a signal that aborts at the first SIGHUP, SIGINT or SIGTERM, which also sets the exit code. A later one
 * exits immediately.
 */
export function stopSignals(): AbortSignal {
  const stop = new AbortController();
  let stoppedAtMs: number | undefined;
  for (const signal of Object.keys(EXIT_CODE_OF) as Stop[]) {
    process.on(signal, () => {
      stoppedAtMs ??= performance.now();
      // The child processes end with this process, so none keeps running.
      if (performance.now() - stoppedAtMs > TOGETHER_MS) process.exit(EXIT_CODE_OF[signal]);
      process.exitCode = EXIT_CODE_OF[signal];
      stop.abort();
    });
  }
  return stop.signal;
}
