/** What the log of a process says of rules that take the place of others. */
import type { Logger } from "../core/logger.ts";
import type { RulesAnswer, RulesInForce } from "../core/stores/insight/rules.ts";
import type { DatedRules } from "./watch.ts";

/** Of rules that were offered, and of the answer, says what is to be known, once for each change. */
export function createTeller(
  logger: Logger,
  /** Rules of this process that were in force: a server that was away may still have the ones before the last. */
  ownDigests: ReadonlySet<string>,
): (of: DatedRules, answer: RulesAnswer) => void {
  let toldOf: string | undefined;
  return (of, { verdict, before }) => {
    if (before === undefined || before.digest === of.digest) {
      if (verdict !== "older") toldOf = undefined;
      return;
    }
    const facts = {
      file: of.file,
      version: versionOf(of),
      other: before.file,
      otherVersion: before.version,
    };
    if (verdict === "older") {
      if (toldOf === before.digest) return;
      toldOf = before.digest;
      const remedy = "give this file a greater version, or all processes the same file";
      logger.warn(
        facts,
        `${nameOf(of)} is not in force: ${nameOf(before, "v")} of ${before.by} is newer; ${remedy}.`,
      );
    } else if (!ownDigests.has(before.digest)) {
      logger.warn(
        facts,
        `${nameOf(of)} is in force now, in place of ${nameOf(before, "v")} of ${before.by}.`,
      );
    }
  };
}

export function versionOf({ version, changedAtMs }: DatedRules): number {
  return version ?? changedAtMs;
}

function nameOf(rules: DatedRules | RulesInForce, initial = "V"): string {
  const version = "buckets" in rules ? versionOf(rules) : rules.version;
  return `${initial}ersion ${version} of the rules (${rules.file})`;
}
