/**
 * Logs when rules replace other rules, and when rules are ignored because newer rules are active.
 */
import type { Logger } from "../core/logger.ts";
import type { RulesAnswer, RulesInForce } from "../core/stores/insight/rules.ts";
import type { DatedRules } from "./watch.ts";

/** Returns a function that logs the store's reply to offered rules, once for each change. */
export function createReplacementLog(
  logger: Logger,
  /**
   * The digests of this process's own earlier and current rules that were active. A server that was
   * unreachable may still store an earlier digest.
   */
  ownDigests: ReadonlySet<string>,
): (of: DatedRules, answer: RulesAnswer) => void {
  let reportedDigest: string | undefined;
  return (of, { verdict, before }) => {
    if (before === undefined || before.digest === of.digest) {
      if (verdict !== "older") reportedDigest = undefined;
      return;
    }
    const facts = {
      file: of.file,
      version: versionOf(of),
      other: before.file,
      otherVersion: before.version,
    };
    if (verdict === "older") {
      if (reportedDigest === before.digest) return;
      reportedDigest = before.digest;
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
