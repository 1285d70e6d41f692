import { inject } from "vitest";
import type { RealSluices } from "../setup/real-sluice.ts";
import { scriptProcesses, type ScriptProcess } from "../children/script-process.ts";

export type Environment = Readonly<Record<string, string>>;

export interface WorkerFiles {
  /** Runs a file of workers/ on the test's Redis. */
  start(file: string, env: Environment): ScriptProcess;
}

/** All that a worker says of a variable that can never work: one line, with the remedy. */
export function refusalOf(variable: string, remedy: string): RegExp {
  const escaped = remedy.replaceAll(/[^\w ]/g, String.raw`\$&`);
  return new RegExp(`^${variable} .*${escaped}.*\n$`);
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
