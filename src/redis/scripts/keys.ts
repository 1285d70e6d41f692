import { countSameKindBefore, ruleOf } from "../../core/limits/registry.ts";
import type { Limit } from "../../core/limits/rule.ts";

/** A key of a bucket that has limits of its own. */
export interface LimitedKey {
  readonly key: string;
  readonly limits: readonly Limit[];
}

/**
 * The keys of one bucket in Redis, or of one part of it, as `lua/lib/limits/read-limits.lua` binds
 * them; its name is their hash tag, so that a cluster keeps them on one node.
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

/** The states of a bucket and of some of its keys, as {@link bucketKeys} names them. */
export function stateKeys(prefix: string, bucket: string, keys: readonly string[]): string[] {
  const tagged = `${prefix}:{${bucket}}`;
  const names = [`${tagged}:state`];
  for (const key of keys) names.push(`${tagged}:key:${encoded(key)}:state`);
  return names;
}

/** An IPv6 address has colons, which tell the parts of a key in Redis apart. */
function encoded(key: string): string {
  return /[%:]/.test(key) ? key.replaceAll("%", "%25").replaceAll(":", "%3A") : key;
}

/**
 * What outlives a policy is counted among its own kind, so that it is found when other limits come or
 * go; the rest stands where the limit's numbers do.
 */
function partsOf(base: string, limits: readonly Limit[]): string[] {
  return limits.flatMap((limit, index) => {
    const { parts = [], isKept } = ruleOf(limit.kind);
    const place = isKept === true ? countSameKindBefore(limits, index) : index;
    return parts.map((part) => `${base}:${part}:${place}`);
  });
}

export interface QueueName {
  readonly prefix: string;
  readonly queue: string;
}

/** What the names of all keys of a queue begin with, BullMQ's and ours: one hash tag for each queue. */
export function baseOf({ prefix, queue }: QueueName): string {
  return `${prefix}:{${queue}}:`;
}
