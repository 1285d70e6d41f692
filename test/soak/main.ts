import { readArguments } from "./arguments.ts";
import { formatPlan, planOf } from "./plan.ts";
import { runSoak } from "./run-soak.ts";

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
  const { minutes, seed, isPlanOnly } = readArguments(process.argv.slice(2));
  const plan = planOf(seed, minutes);
  if (isPlanOnly) process.stdout.write(`${formatPlan(plan).join("\n")}\n`);
  else {
    const isKept = await runSoak(plan, stop.signal);
    process.exitCode ??= isKept === false ? 1 : 0;
  }
} catch (error) {
  process.stderr.write(`soak: ${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode ??= 1;
}
// Nothing is left to do; what a library may still hold open must not keep the terminal.
process.exit();
