import { stopSignals } from "../../examples/demo/stop-signals.ts";
import { readArguments } from "./arguments.ts";
import { formatPlan, planOf } from "./plan.ts";
import { runSoak } from "./run-soak.ts";

const stop = stopSignals();

try {
  const { minutes, seed, isPlanOnly } = readArguments(process.argv.slice(2));
  const plan = planOf(seed, minutes);
  if (isPlanOnly) process.stdout.write(`${formatPlan(plan).join("\n")}\n`);
  else {
    const isKept = await runSoak(plan, stop);
    process.exitCode ??= isKept === false ? 1 : 0;
  }
} catch (error) {
  process.stderr.write(`soak: ${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode ??= 1;
}
// Nothing is left to do; what a library may still hold open must not keep the terminal.
process.exit();
