import type { Limit } from "../core/limits/limit.ts";
import { ordinalOf, ruleOf } from "../core/limits/registry.ts";

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
    const base = `${tagged}:key:${encoded(key)}`;
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

/** An IPv6 address has colons, which tell the parts of a key in Redis apart. */
function encoded(key: string): string {
  return /[%:]/.test(key) ? key.replaceAll("%", "%25").replaceAll(":", "%3A") : key;
}

/** Limits of one kind are counted among themselves, so that they find what is theirs when others come or go. */
function partsOf(base: string, limits: readonly Limit[]): string[] {
  return limits.flatMap((limit, index) =>
    (ruleOf(limit.kind).parts ?? []).map((part) => `${base}:${part}:${ordinalOf(limits, index)}`),
  );
}
