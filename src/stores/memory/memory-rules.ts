import {
  areNewer,
  type RuledPolicy,
  type RulesInForce,
  type RulesStore,
} from "../../core/stores/insight/rules.ts";

/** Stores the active rules in this process's memory. */
export interface MemoryRules extends Omit<RulesStore, "declaredOf"> {
  readonly ruled: ReadonlyMap<string, RuledPolicy>;
}

export function createMemoryRules(): MemoryRules {
  const ruled = new Map<string, RuledPolicy>();
  let inForce: RulesInForce | undefined;
  let applied: string | undefined;
  return {
    ruled,
    async offerRules({ version, changedAtMs, digest, file, by }) {
      const offer = { version, changedAtMs, digest, file, by };
      const before = inForce;
      const isOther = before !== undefined && before.digest !== offer.digest;
      if (isOther && !areNewer(offer, before)) return { verdict: "older", before };
      if (before?.digest !== offer.digest) inForce = offer;
      return { verdict: applied === offer.digest ? "done" : "apply", before };
    },
    async rules() {
      return inForce;
    },
    async noteRules({ digest, version, policies }) {
      if (inForce?.digest !== digest) return undefined;
      const earlier = policies.map(([bucket]) => ruled.get(bucket)?.text);
      for (const [bucket, text] of policies) {
        if (text === undefined) ruled.delete(bucket);
        else ruled.set(bucket, { text, version });
      }
      return earlier;
    },
    async rulesApplied({ digest }) {
      applied = inForce?.digest === digest ? digest : undefined;
    },
    async ruledOf(names) {
      return names.map((name) => ruled.get(name));
    },
    async ruledNames() {
      return [...ruled.keys()];
    },
  };
}
