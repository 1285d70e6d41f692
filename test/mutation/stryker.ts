import { Stryker } from "@stryker-mutator/core";
import type { MutantResult, PartialStrykerOptions } from "@stryker-mutator/api/core";

export interface StrykerRun {
  readonly files: readonly string[];
  /** How many mutants are run, of those that a test reaches. All if left out. */
  readonly sample: number | undefined;
  readonly seed: number;
}

/** Mutates a copy of the project in `.stryker-tmp`, which goes at the end. */
export async function mutateTypeScript(run: StrykerRun): Promise<readonly MutantResult[]> {
  const options: PartialStrykerOptions & { sample: number | undefined; seed: number } = {
    mutate: [...run.files],
    testRunner: "vitest",
    vitest: { configFile: "test/mutation/vitest.config.ts", related: false },
    plugins: ["@stryker-mutator/vitest-runner", "./test/mutation/stryker-plugins.ts"],
    checkers: ["sample"],
    checkerNodeArgs: ["--import", "tsx"],
    // TypeScript 7 has no programming interface for Stryker to read the configuration with.
    tsconfigFile: "none.json",
    coverageAnalysis: "perTest",
    // The types check most texts, and the rest are messages.
    mutator: { excludedMutations: ["StringLiteral"] },
    // What runs once at the start of a process would need a new one for each mutant.
    ignoreStatic: true,
    ignorePatterns: ["dist", ".git", "docs", "bench"],
    reporters: ["line", "clear-text"],
    clearTextReporter: { reportTests: false, logTests: false },
    warnings: {
      // `sample` and `seed` are for the checker.
      unknownOptions: false,
      preprocessorErrors: true,
      unserializableOptions: true,
      slow: true,
    },
    concurrency: 1,
    timeoutMS: 20_000,
    timeoutFactor: 1.2,
    dryRunTimeoutMinutes: 20,
    sample: run.sample,
    seed: run.seed,
  };
  return new Stryker(options).runMutationTest();
}
