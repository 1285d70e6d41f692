/**
 * The names of all keys in Redis.
 *
 * - A bucket: `<prefix>:{<bucket>}:state`, `…:line`, `…:holes`, and `…:<part>:<n>` for each part of a limit.
 * - A key with limits, and each level of its path: `<prefix>:{<bucket>}:key:<key>:state`, and so on. Its text is that of
 *   `core/key-path.ts`.
 * - Shadow limits: `…:shadows`, and `…:shadow:<part>:<n>`.
 * - A slot that a server has granted: `…:slot:<name>`.
 * - A bucket whose keys are spread over a cluster has several names, `<bucket>:<n>`.
 * - A queue: `<prefix>:{<queue>}:…`, for BullMQ and for this package.
 *
 * The braces are the hash tag. It keeps all keys of a bucket on one node of a cluster.
 */
import { countSameKindBefore, isLeased, ruleOf } from "../../../core/limits/registry.ts";
import type { Limit } from "../../../core/limits/rule.ts";
import type { LimitedKey } from "../../../core/store.ts";

/** The keys of one bucket, or of one part of it, in the order in which `lua/lib/limits/read-limits.lua` binds them. */
export function bucketKeys(
  prefix: string,
  bucket: string,
  limits: readonly Limit[],
  keys: readonly LimitedKey[],
  shadows: readonly Limit[] = [],
): string[] {
  const tagged = `${prefix}:{${bucket}}`;
  const own = keys.flatMap(({ key, limits: keyLimits }) => {
    const base = `${tagged}:key:${encoded(key)}`;
    return [`${base}:state`, `${base}:line`, ...partsOf(base, keyLimits)];
  });
  return [
    `${tagged}:state`,
    `${tagged}:line`,
    `${tagged}:holes`,
    ...partsOf(tagged, limits),
    ...own,
    ...(shadows.length === 0 ? [] : [`${tagged}:shadows`]),
    ...partsOf(`${tagged}:shadow`, shadows),
  ];
}

/** A limit of which calls hold leases, with the Redis keys of its parts; without a key, the bucket's. */
export interface LeasedLimit {
  readonly limit: Limit;
  readonly key: string | undefined;
  readonly parts: readonly string[];
}

/** The limits of a bucket and of some of its keys of which calls hold leases. */
export function leasedLimits(
  prefix: string,
  bucket: string,
  limits: readonly Limit[],
  keys: readonly LimitedKey[],
): LeasedLimit[] {
  const tagged = `${prefix}:{${bucket}}`;
  const of = (base: string, all: readonly Limit[], key: string | undefined): LeasedLimit[] =>
    all.flatMap((limit, index) =>
      isLeased(limit) ? [{ limit, key, parts: partsOfLimit(base, all, index) }] : [],
    );
  const own = keys.flatMap((each) =>
    of(`${tagged}:key:${encoded(each.key)}`, each.limits, each.key),
  );
  return [...of(tagged, limits, undefined), ...own];
}

/** The `:state` keys alone, of a bucket and of some of its keys. */
export function stateKeys(prefix: string, bucket: string, keys: readonly string[]): string[] {
  const tagged = `${prefix}:{${bucket}}`;
  const names = [`${tagged}:state`];
  for (const key of keys) names.push(`${tagged}:key:${encoded(key)}:state`);
  return names;
}

/** The ratios of the real costs of a bucket to their estimates. */
export function ratiosKey(prefix: string, bucket: string): string {
  return `${prefix}:{${bucket}}:ratios`;
}

/** Exists while the downstream of a bucket, or of one of its keys, is unreachable. Holds ms, as text. */
export function awayKey(prefix: string, bucket: string, key: string | undefined): string {
  return `${prefix}:{${bucket}}:away:${key === undefined ? "" : encoded(key)}`;
}

/** The state of a slot that a server has granted to a caller. */
export function slotNoteKey(prefix: string, bucket: string, slot: string): string {
  return `${prefix}:{${bucket}}:slot:${slot}`;
}

/** The content of a request that may be repeated. */
export function requestNoteKey(prefix: string, queue: string, name: string): string {
  return `${prefix}:{${queue}}:request:${name}`;
}

/** Encodes the colons of a key, such as an IPv6 address, because colons separate the parts of a name. */
export function encoded(key: string): string {
  return /[%:]/.test(key) ? key.replaceAll("%", "%25").replaceAll(":", "%3A") : key;
}

/**
 * Parts that survive a change of the policy have a number among the limits of the same kind. They are then found after
 * other limits were added or removed. All other parts have the number of their limit.
 */
function partsOf(base: string, limits: readonly Limit[]): string[] {
  return limits.flatMap((_, index) => partsOfLimit(base, limits, index));
}

function partsOfLimit(base: string, limits: readonly Limit[], index: number): string[] {
  const { parts = [], isKept } = ruleOf(limits[index]!.kind);
  const number = isKept === true ? countSameKindBefore(limits, index) : index;
  return parts.map((part) => `${base}:${part}:${number}`);
}

export interface QueueName {
  readonly prefix: string;
  readonly queue: string;
}

/** The beginning of all keys of a queue. */
export function baseOf({ prefix, queue }: QueueName): string {
  return `${prefix}:{${queue}}:`;
}

/** Makes the keys of a queue that have these names. */
export function queueKeys(...names: readonly string[]): (queue: QueueName) => readonly string[] {
  return (queue) => {
    const base = baseOf(queue);
    return names.map((name) => base + name);
  };
}
