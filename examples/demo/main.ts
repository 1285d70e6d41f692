import process from "node:process";
import { createPaint } from "./paint.ts";
import { readArguments, USAGE, UsageError } from "./arguments.ts";
import { runDemo } from "./run-demo.ts";

const BAD_USAGE = 2;
const EXIT_CODE_OF = { SIGHUP: 129, SIGINT: 130, SIGTERM: 143 } as const;
type Stop = keyof typeof EXIT_CODE_OF;
/** Signals that come together are one Ctrl-C: the terminal and npm both pass it on. */
const TOGETHER_MS = 500;

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

try {
  const given = readArguments(process.argv.slice(2));
  if (given === undefined) process.stdout.write(`${USAGE}\n`);
  else {
    const wasKept = await runDemo(given, stop.signal);
    process.exitCode ??= wasKept ? 0 : 1;
  }
} catch (error) {
  const isUsage = error instanceof UsageError;
  const message = error instanceof Error ? error.message : String(error);
  process.stderr.write(`${createPaint(process.stderr).bad("demo:")} ${message}\n`);
  process.exitCode ??= isUsage ? BAD_USAGE : 1;
}
// Nothing is left to do; what a library may still hold open must not keep the terminal.
process.exit();
