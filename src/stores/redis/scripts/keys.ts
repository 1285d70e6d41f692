/**
 * The names of all keys in Redis.
 *
 * - A bucket: `<prefix>:{<bucket>}:state`, `…:line`, `…:holes`, and `…:<part>:<n>` for each part of
 *   a limit.
 * - A limited key, and each level of its path: `<prefix>:{<bucket>}:key:<key>:state`, and so on.
 *   `<key>` is the key's text from `core/key-path.ts`.
 * - A budget: `…:budget:<unit>:<period>` and `…:reserved:<unit>:<period>`, and `…:budgets` with the
 *   names of all ledgers of the bucket. `…:warnings` is the log of their warnings, and
 *   `…:warnings:<reader>` the position of a reader in it.
 * - Shadow limits: `…:shadows`, and `…:shadow:<part>:<n>`.
 * - A slot that a server has granted: `…:slot:<name>`.
 * - A bucket whose keys are spread over a cluster has several names, `<bucket>:<n>`.
 * - A queue: `<prefix>:{<queue>}:…`, for BullMQ and for this package.
 *
 * The braces are the hash tag. It keeps all Redis keys of a bucket on one node of a cluster.
 */
import { budgetName } from "../../../core/limits/budget.ts";
import { countKeptBefore, isLeased, ruleOf } from "../../../core/limits/registry.ts";
import type { Limit } from "../../../core/limits/rule.ts";
import type { LimitedKey } from "../../../core/store.ts";

/**
 * Returns the Redis keys of one bucket, or of one of the parts that it is spread over. They have
 * the order in which `lua/lib/limits/read-limits.lua` binds them.
 */
export function bucketKeys(
  prefix: string,
  bucket: string,
  limits: readonly Limit[],
  keys: readonly LimitedKey[],
  shadows: readonly Limit[] = [],
): string[] {
  const tagged = `${prefix}:{${bucket}}`;
  const names = [`${tagged}:state`, `${tagged}:line`, `${tagged}:holes`];
  names.push(...partsOf(tagged, limits, tagged));
  for (const { key, limits: keyLimits } of keys) {
    const base = `${tagged}:key:${encoded(key)}`;
    names.push(`${base}:state`, `${base}:line`, ...partsOf(base, keyLimits, tagged));
  }
  if (shadows.length > 0)
    names.push(`${tagged}:shadows`, ...partsOf(`${tagged}:shadow`, shadows, tagged));
  return names;
}

/**
 * A limit whose calls hold leases, with the Redis keys of its structures. The limit belongs to
 * `key`, or to the bucket if `key` is undefined.
 */
export interface LeasedLimit {
  readonly limit: Limit;
  readonly key: string | undefined;
  readonly parts: readonly string[];
}

/** Returns the limits whose calls hold leases, of a bucket and of some of its keys. */
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

/** Returns only the `:state` keys, of a bucket and of some of its keys. */
export function stateKeys(prefix: string, bucket: string, keys: readonly string[]): string[] {
  const tagged = `${prefix}:{${bucket}}`;
  const names = [`${tagged}:state`];
  for (const key of keys) names.push(`${tagged}:key:${encoded(key)}:state`);
  return names;
}

/**
 * Returns the Redis key that stores the tags of keys that take turns. The names below a head are
 * stored at this key, a separator that no name contains, and the head.
 */
export function fairKey(prefix: string, bucket: string): string {
  return `${prefix}:{${bucket}}:fair`;
}

/** Returns the Redis key that stores the ratios of a bucket's real costs to the estimated costs. */
export function ratiosKey(prefix: string, bucket: string): string {
  return `${prefix}:{${bucket}}:ratios`;
}

/**
 * Returns the Redis key that exists while the downstream of a bucket, or of one of its keys, is
 * unreachable. The value is a number of ms, as text.
 */
export function awayKey(prefix: string, bucket: string, key: string | undefined): string {
  return `${prefix}:{${bucket}}:away:${key === undefined ? "" : encoded(key)}`;
}

/** Returns the Redis key with the state of a slot that a server has granted to a caller. */
export function slotNoteKey(prefix: string, bucket: string, slot: string): string {
  return `${prefix}:{${bucket}}:slot:${slot}`;
}

/** Returns the Redis key with the content of a request that may be repeated. */
export function requestNoteKey(prefix: string, queue: string, name: string): string {
  return `${prefix}:{${queue}}:request:${name}`;
}

/** Encodes the colons of a key, such as an IPv6 address, because colons separate the parts of a name. */
export function encoded(key: string): string {
  return /[%:]/.test(key) ? key.replaceAll("%", "%25").replaceAll(":", "%3A") : key;
}

/**
 * Returns the Redis keys of the structures that some limits need, such as a sorted set. Some of
 * these structures survive a change of the policy. Their number counts only limits whose structures
 * survive, so they are found again after other limits were added or removed. All other structures
 * have their limit's number.
 */
function partsOf(base: string, limits: readonly Limit[], tagged: string): string[] {
  const names: string[] = [];
  for (const [index, { budget }] of limits.entries()) {
    if (budget === undefined) names.push(...partsOfLimit(base, limits, index));
    else {
      const own = budgetKeys(base, budgetName(limits[index]!));
      names.push(...own, budgetIndexKey(tagged), warningsKey(tagged));
    }
  }
  return names;
}

/** Returns the Redis keys of one budget. They keep their names when the rest of the policy changes. */
function budgetKeys(base: string, name: string): readonly [ledger: string, reserved: string] {
  return [`${base}:budget:${name}`, `${base}:reserved:${name}`];
}

function budgetIndexKey(tagged: string): string {
  return `${tagged}:budgets`;
}

function warningsKey(tagged: string): string {
  return `${tagged}:warnings`;
}

/** Returns the Redis keys of the log of a bucket's warnings, and of a reader's position in it. */
export function warningKeys(
  prefix: string,
  bucket: string,
  reader: string,
): readonly [log: string, cursor: string] {
  const log = warningsKey(`${prefix}:{${bucket}}`);
  return [log, `${log}:${reader}`];
}

/** Returns the Redis key with the names of all ledgers of a bucket, or of one of its parts. */
export function budgetsKey(prefix: string, bucket: string): string {
  return budgetIndexKey(`${prefix}:{${bucket}}`);
}

/** Returns the keys, encoded as for the store, to which ledgers belong. Undefined stands for the bucket. */
export function ownersOfLedgers(ledgers: readonly string[]): (string | undefined)[] {
  return [...new Set(ledgers.map((ledger) => readLedgerName(ledger).key))];
}

/** The budget that a ledger belongs to: its encoded key, undefined for the bucket, and its unit and period. */
export function readLedgerName(ledger: string): {
  readonly key: string | undefined;
  readonly unit: string;
  readonly per: string;
} {
  const [, encodedKey, unit = "", per = ""] =
    /}(?::key:([^:]*))?:budget:([^:]*):([^:]*)$/.exec(ledger) ?? [];
  return { key: encodedKey === undefined ? undefined : decoded(encodedKey), unit, per };
}

function decoded(encodedKey: string): string {
  return encodedKey.replaceAll("%3A", ":").replaceAll("%25", "%");
}

function partsOfLimit(base: string, limits: readonly Limit[], index: number): string[] {
  const { parts = [], isKept } = ruleOf(limits[index]!.kind);
  const number = isKept === true ? countKeptBefore(limits, index) : index;
  return parts.map((part) => `${base}:${part}:${number}`);
}

export interface QueueName {
  readonly prefix: string;
  readonly queue: string;
}

/** Returns the prefix of all Redis keys of a queue. */
export function baseOf({ prefix, queue }: QueueName): string {
  return `${prefix}:{${queue}}:`;
}

/** Returns a function that creates a queue's Redis keys with these names. */
export function queueKeys(...names: readonly string[]): (queue: QueueName) => readonly string[] {
  return (queue) => {
    const base = baseOf(queue);
    return names.map((name) => base + name);
  };
}
