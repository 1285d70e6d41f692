import { hostname } from "node:os";
import process from "node:process";
import { InvalidOptionError } from "../core/errors.ts";
import type { Logger } from "../core/logger.ts";
import { formatPolicy } from "../core/policy/policy.ts";
import type { Store } from "../core/store.ts";
import type { InsightStore } from "../core/stores/insight/store.ts";
import { putInForce, type RulesInUse } from "../rules/apply.ts";
import { readRulesFile, watchRulesFile } from "../rules/watch.ts";
import { createPartStores } from "../throttle/bucket/part-stores.ts";
import { termsOf } from "../throttle/known-policy.ts";
import { isSpread, type Buckets } from "./buckets.ts";

export interface RulesOfSluice {
  readonly store: Store;
  readonly insight: InsightStore;
  readonly logger: Logger;
  readonly isCluster: boolean;
  readonly buckets: () => Pick<Buckets, "replica" | "codeOf">;
}

/**
 * Reads a rules file and keeps its rules active in all processes. Returns undefined without a file.
 *
 * @throws {@link InvalidOptionError} when the rules file does not exist, or contains anything that
 * can never work.
 */
export function useRules(
  file: string | undefined,
  { store, isCluster, buckets, ...parts }: RulesOfSluice,
): RulesInUse | undefined {
  if (file === undefined) return undefined;
  const first = readRulesFile(file);
  const rules = putInForce(first.rules, {
    ...parts,
    replica: () => buckets().replica,
    codeOf: (bucket) => buckets().codeOf(bucket),
    by: `${hostname()}:${process.pid}`,
    async steer(bucket, policy, source) {
      const change = { do: "configure", source, doesYield: true } as const;
      const isInParts = isCluster && isSpread(policy);
      const owner = isInParts ? createPartStores(store, bucket)[0]!.store : store;
      await owner.steer({ bucket, terms: termsOf(policy, 0), scope: undefined, change });
    },
    assertSameServers(where, policy, code) {
      if (!isCluster || isSpread(policy) === isSpread(code)) return;
      const remedy = isSpread(code)
        ? "the code gives limits per key alone, and its keys are spread over the cluster: give no others"
        : "the code gives limits that its keys share: give some, too";
      throw new InvalidOptionError({
        where,
        option: "limits",
        value: formatPolicy(policy),
        remedy,
      });
    },
  });
  const watch = watchRulesFile(first, {
    logger: parts.logger,
    onChange: (newer) => rules.replace(newer),
  });
  return {
    ...rules,
    get rules() {
      return rules.rules;
    },
    async close() {
      watch.close();
      await rules.close();
    },
  };
}
