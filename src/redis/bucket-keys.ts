import type { Limit } from "../core/limits/limit.ts";
import { ruleOf } from "../core/limits/registry.ts";

/** A key of a bucket that has limits of its own. */
export interface LimitedKey {
  readonly key: string;
  readonly limits: readonly Limit[];
}

/**
 * The keys of one bucket in Redis, as `lua/lib/limits.lua` binds them; the bucket's
 * name is their hash tag, so that a cluster keeps them on one node.
 */
export function bucketKeys(
  prefix: string,
  bucket: string,
  limits: readonly Limit[],
  keys: readonly LimitedKey[],
): string[] {
  const tagged = `${prefix}:{${bucket}}`;
  const own = keys.flatMap(({ key, limits: keyLimits }) => {
    const base = `${tagged}:key:${key}`;
    return [`${base}:state`, `${base}:turns`, ...partsOf(base, keyLimits)];
  });
  return [
    `${tagged}:state`,
    `${tagged}:turns`,
    `${tagged}:holes`,
    ...partsOf(tagged, limits),
    ...own,
  ];
}

/** A limit of another kind in the same place finds nothing of its predecessor's. */
function partsOf(base: string, limits: readonly Limit[]): string[] {
  return limits.flatMap(({ kind }, index) =>
    (ruleOf(kind).parts ?? []).map((part) => `${base}:${index}:${part}`),
  );
}
