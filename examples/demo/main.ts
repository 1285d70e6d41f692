import process from "node:process";
import { createPaint } from "./view/terminal.ts";
import { readArguments, USAGE, UsageError } from "./arguments.ts";
import { runDemo } from "./run-demo.ts";
import { stopSignals } from "../shared/stop-signals.ts";

const BAD_USAGE = 2;
const stop = stopSignals();

try {
  const given = readArguments(process.argv.slice(2));
  if (given === undefined) process.stdout.write(`${USAGE}\n`);
  else {
    const wasKept = await runDemo(given, stop);
    process.exitCode ??= wasKept ? 0 : 1;
  }
} catch (error) {
  const isUsage = error instanceof UsageError;
  const message = error instanceof Error ? error.message : String(error);
  process.stderr.write(`${createPaint(process.stderr).bad("demo:")} ${message}\n`);
  process.exitCode ??= isUsage ? BAD_USAGE : 1;
}
// Exits explicitly, because a library may still hold a resource open, which would block the terminal.
process.exit();
