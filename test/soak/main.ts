import { createPaint } from "../../examples/demo/view/terminal.ts";
import { stopSignals } from "../../examples/shared/stop-signals.ts";
import { readArguments } from "./arguments.ts";
import { formatStruck, reportOf } from "./judge/report.ts";
import { judge } from "./judge/verdict.ts";
import { formatPlan, planOf, type Plan } from "./plan/plan.ts";
import { runPlan } from "./plan/run-plan.ts";
import type { Struck } from "./records.ts";
import { closeAndLook, settle } from "./settle.ts";
import { openStage, type Stage } from "./stage/stage.ts";

const stop = stopSignals();

try {
  const { minutes, seed, isPlanOnly, only, beside } = readArguments(process.argv.slice(2));
  const plan = planOf(seed, minutes, only);
  if (isPlanOnly) process.stdout.write(`${formatPlan(plan).join("\n")}\n`);
  else {
    const isKept = await runSoak(plan, { signal: stop, beside });
    process.exitCode ??= isKept === false ? 1 : 0;
  }
} catch (error) {
  process.stderr.write(`soak: ${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode ??= 1;
}
// A library may still hold something open; that must not block the terminal.
process.exit();

/** Runs a plan and judges the results; resolves with whether every promise was kept, or undefined if it was stopped. */
export async function runSoak(
  plan: Plan,
  { signal, beside }: { signal: AbortSignal; beside: string | undefined },
): Promise<boolean | undefined> {
  for (const line of formatPlan(plan)) print(line);
  await using stage = await openStage(plan, beside);
  const stopped = new Promise<undefined>((resolve) => {
    if (signal.aborted) resolve(undefined);
    signal.addEventListener("abort", () => resolve(undefined), { once: true });
  });
  // Awaited here, because the stage is closed when this function returns.
  return await Promise.race([stopped, load(stage, plan, { signal, beside })]);
}

async function load(
  stage: Stage,
  plan: Plan,
  { signal, beside }: { signal: AbortSignal; beside: string | undefined },
): Promise<boolean> {
  const struck: Struck[] = [];
  const beganMs = stage.nowMs();
  const secondsAt = (ms: number): string => `${((ms - beganMs) / 1_000).toFixed(1)} s`;
  print("");
  const { replicas, producer, tenantsProducer } = stage;
  for (const actor of [...replicas, producer, tenantsProducer]) actor.send({ kind: "go" });
  await runPlan(stage, plan, {
    signal,
    onStruck(each) {
      struck.push(each);
      print(formatStruck(each, secondsAt));
    },
  });
  const replicaPids = stage.replicas.map(({ pid }) => pid);
  const settled = await settle(stage);
  const leftovers = await closeAndLook(stage);
  const run = { plan, beside, struck, log: stage.log, replicaPids, settled, leftovers, secondsAt };
  const verdict = judge(run);
  print("");
  for (const line of reportOf(run, verdict, createPaint(process.stdout))) print(line);
  return verdict.promises.every(({ isKept }) => isKept);
}

function print(line: string): void {
  process.stdout.write(`${line}\n`);
}
