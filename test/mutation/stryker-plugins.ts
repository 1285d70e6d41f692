import { CheckStatus, type Checker, type CheckResult } from "@stryker-mutator/api/check";
import type { Mutant, MutantResult, StrykerOptions } from "@stryker-mutator/api/core";
import {
  commonTokens,
  declareFactoryPlugin,
  PluginKind,
  tokens,
  type Injector,
  type PluginContext,
} from "@stryker-mutator/api/plugin";
import type { Reporter } from "@stryker-mutator/api/report";
import { sampleOf } from "./sample.ts";

/**
 * Stryker can choose lines, but no mutants. So this says of all that are not in
 * the sample that they do not compile, which leaves them out of the score.
 */
function createSampleChecker(injector: Injector<PluginContext>): Checker {
  const { sample, seed } = injector.resolve(commonTokens.options) as StrykerOptions & {
    readonly sample?: number;
    readonly seed: number;
  };
  const chosen = new Set<string>();
  return {
    async init() {},
    // Stryker shows all mutants here at once, before any is checked.
    async group(mutants) {
      for (const { id } of sampleOf(mutants, nameOf, { size: sample, seed })) chosen.add(id);
      return [mutants.map(({ id }) => id)];
    },
    async check(mutants) {
      const results = mutants.map(({ id }): [string, CheckResult] => [
        id,
        chosen.has(id)
          ? { status: CheckStatus.Passed }
          : { status: CheckStatus.CompileError, reason: "not in the sample" },
      ]);
      return Object.fromEntries(results);
    },
  };
}
createSampleChecker.inject = tokens(commonTokens.injector);

/** Says at once which mutants survive: a run takes long, and may be ended early. */
function createLineReporter(): Reporter {
  const counts = new Map<string, number>();
  return {
    onMutantTested({ status, fileName, location, mutatorName, replacement }: MutantResult) {
      if (!["Killed", "Survived", "Timeout", "RuntimeError"].includes(status)) return;
      counts.set(status, (counts.get(status) ?? 0) + 1);
      const all = [...counts].map(([each, count]) => `${each} ${count}`).join(", ");
      const { line, column } = location.start;
      const where = `${fileName}:${line}:${column}: ${mutatorName} -> ${replacement}`;
      console.log(status === "Killed" ? all : `${all}: ${status}: ${where}`);
    },
  };
}

function nameOf({ fileName, location, mutatorName, replacement }: Mutant): string {
  return JSON.stringify([fileName.split("/src/").at(-1), location, mutatorName, replacement]);
}

export const strykerPlugins = [
  declareFactoryPlugin(PluginKind.Checker, "sample", createSampleChecker),
  declareFactoryPlugin(PluginKind.Reporter, "line", createLineReporter),
];
