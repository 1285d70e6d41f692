import { expect, inject } from "vitest";
import type { RealSluices } from "../setup/real-sluice.ts";
import { scriptProcesses, type ScriptProcess } from "../children/script-process.ts";

export type Environment = Readonly<Record<string, string>>;

export interface WorkerFiles {
  /** Runs a file of workers/ on the test's Redis. */
  start(file: string, env: Environment): ScriptProcess;
}

/** A variable, a value that can never work, and what the worker says to give instead. */
export type RefusedSetting = readonly [variable: string, value: string, remedy: string];

/** Starts a worker with all of these values, and checks that it ends with one line for each, and nothing else. */
export async function expectRefused(
  refused: readonly RefusedSetting[],
  startWorker: (env: Environment) => ScriptProcess,
): Promise<void> {
  const worker = startWorker(
    Object.fromEntries(refused.map(([variable, value]) => [variable, value])),
  );

  expect(await worker.ended).toBe(2);

  const lines = worker.stderr.trimEnd().split("\n");
  for (const [variable, , remedy] of refused) {
    const line = lines.find((each) => each.startsWith(`${variable} `));
    expect(line, variable).toContain(remedy);
  }
  expect(lines).toHaveLength(refused.length);
  expect(worker.stderr).not.toContain("password");
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
