import process from "node:process";

/** Signals that come together are one Ctrl-C: the terminal and npm both pass it on. */
export const TOGETHER_MS = 500;

/** Resolves at the first SIGINT or SIGTERM; a later one ends the process at once with code 1. */
export function untilSignal(): Promise<NodeJS.Signals> {
  let firstAtMs: number | undefined;
  return new Promise((resolve) => {
    const onSignal = (signal: NodeJS.Signals): void => {
      firstAtMs ??= performance.now();
      if (performance.now() - firstAtMs > TOGETHER_MS) process.exit(1);
      resolve(signal);
    };
    process.on("SIGINT", onSignal);
    process.on("SIGTERM", onSignal);
  });
}
