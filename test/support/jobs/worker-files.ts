import { inject } from "vitest";
import type { RealSluices } from "../setup/real-sluice.ts";
import { scriptProcesses, type ScriptProcess } from "../children/script-process.ts";

export type Environment = Readonly<Record<string, string>>;

export interface WorkerFiles {
  /** Runs a file of workers/ on the test's Redis. */
  start(file: string, env: Environment): ScriptProcess;
}

/** A variable, a value that can never work, and what the worker says to give instead. */
export type RefusedSetting = readonly [variable: string, value: string, remedy: string];

/** Starts a worker with all of these values, and lists what is wrong unless it ends with one line for each. */
export async function faultsOfRefusal(
  refused: readonly RefusedSetting[],
  startWorker: (env: Environment) => ScriptProcess,
): Promise<string[]> {
  const worker = startWorker(
    Object.fromEntries(refused.map(([variable, value]) => [variable, value])),
  );
  const exitCode = await worker.ended;
  const lines = worker.stderr.trimEnd().split("\n");
  const unnamed = refused.filter(
    ([variable, , remedy]) =>
      !lines.some((line) => line.startsWith(`${variable} `) && line.includes(remedy)),
  );
  return [
    ...(exitCode === 2 ? [] : [`ended with ${exitCode}`]),
    ...unnamed.map(([variable]) => `${variable}: no line with the remedy in ${worker.stderr}`),
    ...(lines.length === refused.length ? [] : [`wrote ${lines.length} lines: ${worker.stderr}`]),
    ...(worker.stderr.includes("password") ? ["wrote a password"] : []),
  ];
}

/** Real processes of workers/; those that a test leaves are killed after it. */
export function workerFiles(sluices: RealSluices): WorkerFiles {
  const scripts = scriptProcesses();
  return {
    start(file, env) {
      const where = { REDIS_URL: inject("redisUrl"), SLUICE_PREFIX: sluices.prefix() };
      const all = { ...where, LOG_LEVEL: "trace", ...env };
      return scripts.start(`workers/${file}`, { env: all });
    },
  };
}
