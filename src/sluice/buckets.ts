import { randomUUID } from "node:crypto";
import { isDeepStrictEqual } from "node:util";
import { assertArgumentCount } from "../core/input/arguments.ts";
import { describeValue } from "../core/describe.ts";
import { InvalidOptionError } from "../core/errors.ts";
import { sampled, type Logger } from "../core/logger.ts";
import type { Observing } from "../core/events/observer.ts";
import {
  compilePolicy,
  formatPolicy,
  readPolicyElsewhere,
  UNKNOWN_POLICY,
  type Policy,
  type PolicyOptions,
} from "../core/policy/policy.ts";
import type { InsightStore } from "../core/stores/insight/store.ts";
import type { Store } from "../core/store.ts";
import { createMemoryStore } from "../stores/memory/memory-store.ts";
import type { RulesInUse } from "../rules/apply.ts";
import type { OwnedBucket } from "../throttle/bucket.ts";
import { readBucketOptions, type BucketOptions } from "../throttle/bucket/bucket-options.ts";
import {
  createBucket,
  type BucketSettings,
  type WakeListener,
} from "../throttle/bucket/create-bucket.ts";
import {
  createPool,
  readPoolOptions,
  type KnownMembers,
  type Pool,
} from "../throttle/bucket/pool.ts";
import { unknownPolicy } from "../throttle/known-policy.ts";
import { createLearned } from "../throttle/wrap/call-defaults.ts";

/** The buckets of one sluice. */
export interface Buckets {
  /**
   * Opens the bucket with this name. Returns the same object each time.
   *
   * @throws {@link InvalidOptionError} when the options can never work, or when the bucket was
   * opened with other options before.
   */
  open(where: string, name: string, options: BucketOptions, pool?: KnownMembers): OwnedBucket;
  /**
   * Opens the pool with this name. Returns the same object each time.
   *
   * @throws {@link InvalidOptionError} when the options can never work, or when the pool was opened
   * with other options before.
   */
  openPool(where: string, name: string, options: unknown): Pool;
  /**
   * Opens the bucket with this name, without options. Its limits come from the rules or from other
   * processes. Returns the same object each time.
   *
   * @throws {@link InvalidOptionError} when neither rules nor other processes can set the limits.
   */
  openByName(where: string, name: string): OwnedBucket;
  of(name: string): OwnedBucket | undefined;
  /** Returns the policy that the code of this process declares for a bucket. */
  codeOf(name: string): Policy | undefined;
  /**
   * Returns the names of the members that this process has declared for a bucket. Empty if the
   * bucket is no pool. Undefined if this process does not declare the bucket.
   */
  membersOf(name: string): readonly string[] | undefined;
  /**
   * Finds the bucket with this name. Its policy is the one that this process declares, or else the
   * one that other processes declare. Resolves with undefined if the bucket was not used in the
   * last 30 days.
   */
  readonly find: (name: string) => Promise<OwnedBucket | undefined>;
  readonly all: () => Iterable<OwnedBucket>;
  /**
   * True if a bucket with this policy is stored in several parts. A Redis cluster spreads keys that
   * share no limit over all nodes.
   */
  readonly isSpread: (policy: Policy) => boolean;
  /** The id of this process in the store. */
  readonly replica: string;
  /** Makes calls that waited for the store draw again. */
  redraw(): void;
  close(): Promise<void>;
}

type OnOpen = (storeName: string, hear: WakeListener) => void;

export interface BucketsParts {
  readonly store: Store;
  readonly insight: InsightStore;
  readonly logger: Logger;
  /** Called when a bucket has activity that was not reported yet. */
  readonly onActivity?: (() => void) | undefined;
  readonly observing?: Observing | undefined;
  readonly rules?: RulesOfBuckets | undefined;
  /** `isRemote` is true if the store is in Redis. `isCluster` is true if Redis is a cluster. */
  readonly isRemote: boolean;
  readonly isCluster: boolean;
}

/** The part of the rules interface that buckets need. */
type RulesOfBuckets = Pick<RulesInUse, "policyOf" | "noteDeclared">;

/**
 * Makes the methods of a bucket reject extra arguments. `fetch` is not included, because it checks
 * its own arguments.
 */
function withArgumentCount(bucket: OwnedBucket): OwnedBucket {
  return assertArgumentCount(bucket, {
    throws: ["throttled", "on", "off"],
    only: [
      "draw",
      "tryDraw",
      "run",
      "throttled",
      "configure",
      "pause",
      "resume",
      "undo",
      "peek",
      "status",
      "preview",
      "history",
      "budgets",
      "grant",
      "restore",
      "on",
      "off",
    ],
  });
}

export function createBuckets(parts: BucketsParts): Buckets {
  const { store, insight, logger, onActivity, observing, isRemote, isCluster } = parts;
  const replica = randomUUID();
  const buckets = new Map<string, OwnedBucket>();
  const pools = new Map<string, Pool>();
  const membersOfPools = new Map<string, KnownMembers>();
  /**
   * The listeners for changes. The map key is the name under which the store knows a bucket or a
   * part of a bucket.
   */
  const listeners = new Map<string, WakeListener>();
  /**
   * The found buckets from which calls have been drawn. Their policies come from other processes.
   */
  const used = new Map<string, OwnedBucket>();
  /** The options with which each bucket was first opened. */
  const declarations = new Map<string, Declaration>();
  let isListening = false;

  /**
   * Starts to listen for changes. One listener serves all buckets, because each listener needs its
   * own connection.
   */
  function listen(): void {
    if (isListening) return;
    isListening = true;
    store.listen(replica, (storeName, change, key) => listeners.get(storeName)?.(change, key));
  }

  /** Creates a bucket. In a cluster, keys that share no limit are spread over all nodes. */
  function create(settings: BucketSettings, onOpen: OnOpen): OwnedBucket {
    const placement = { isSpread: isCluster && isSpread(settings.policy), onOpen };
    return withArgumentCount(createBucket(settings, placement));
  }

  function* all(): Iterable<OwnedBucket> {
    yield* buckets.values();
    for (const [name, bucket] of used) if (!buckets.has(name)) yield bucket;
  }

  function register(storeName: string, listener: WakeListener): void {
    listeners.set(storeName, listener);
  }

  /** The parts that all buckets share. */
  function commonParts() {
    return {
      store,
      insight,
      onActivity,
      observing,
      replica,
      // All parts of a bucket share one sampled logger, because they all fail at the same time.
      logger: sampled(logger, () => performance.now()),
      openLocalStore: isRemote ? createMemoryStore : undefined,
    };
  }

  /**
   * Creates a bucket for a policy that other processes declare. Until a call is drawn from this
   * bucket, the bucket receives no change notifications, and only its caller keeps a reference to
   * it.
   */
  function createFound(name: string, policy: Policy): OwnedBucket {
    const opened = new Map<string, WakeListener>();
    let isUsed = false;
    const bucket = create(
      {
        name,
        policy,
        ...commonParts(),
        listen() {
          isUsed = true;
          used.set(name, bucket);
          for (const [storeName, hear] of opened) register(storeName, hear);
          listen();
        },
      },
      (storeName, hear) => {
        opened.set(storeName, hear);
        if (isUsed) register(storeName, hear);
      },
    );
    return bucket;
  }

  /** Finds the policy text of a bucket: in the rules, or else in the code of other processes. */
  async function findPolicy(name: string): Promise<string | undefined> {
    const { rules } = await insight.bucket(name);
    const text = rules?.text ?? (await insight.declared(name));
    if (text === undefined || !isCluster) return text;
    const where = `bucket("${name}")`;
    if (!isSpread(readPolicyElsewhere(where, text))) return text;
    const remedy = "its keys are spread over the cluster: give the same options here as elsewhere";
    throw new InvalidOptionError({ where, option: "perKey", value: undefined, remedy });
  }

  const opened: Buckets = {
    codeOf(name) {
      const bucket = buckets.get(name);
      return bucket?.isDeclared === true ? bucket.policy : undefined;
    },
    membersOf(name) {
      const isDeclared = buckets.get(name)?.isDeclared === true;
      return isDeclared ? [...(membersOfPools.get(name)?.keys() ?? [])] : undefined;
    },
    openByName(where, name) {
      const found = buckets.get(name);
      if (found !== undefined) return found;
      const ruled = parts.rules?.policyOf(where, name, undefined);
      if (ruled === undefined && !isRemote) throw unknownPolicy(name);
      const common = { ...commonParts(), listen, findPolicy };
      const bucket = create({ name, policy: ruled ?? UNKNOWN_POLICY, ...common }, register);
      buckets.set(name, bucket);
      declarations.set(name, {});
      return bucket;
    },
    openPool(where, name, given) {
      const { options, known } = readPoolOptions(where, given);
      const bucket = opened.open(where, name, options, known);
      const pool = pools.get(name) ?? createPool(bucket, known);
      if (!pools.has(name)) membersOfPools.set(name, known);
      pools.set(name, pool);
      return pool;
    },
    open(where, name, given, members) {
      const isPool = members !== undefined;
      const { policy: unread, ...behaviour } = readBucketOptions(where, given, isPool);
      const policy = compilePolicy(where, unread);
      const { feedback, calls: ofCalls, ...others } = behaviour;
      // The policy text does not distinguish functions or tiers, so those are compared separately.
      const perKey = policy.perKey?.isLocal === true ? given.perKey : undefined;
      const declaration: Declaration = {
        ...others,
        ...feedback,
        ...(isPool ? { members: Object.fromEntries(members) } : ofCalls),
        perKey,
      };
      const found = buckets.get(name);
      if (found?.isDeclared === false) {
        const remedy =
          "this sluice opened the bucket without options before; give them in the first call";
        throw new InvalidOptionError({ where, option: "options", value: given, remedy });
      }
      if (found !== undefined) {
        assertSame(where, "bucket", { first: declarations.get(name)!, later: declaration });
        assertSamePolicy(where, given, { first: found.policy, later: policy });
        return found;
      }
      const common = { ...commonParts(), listen };
      const learned = createLearned(store, name, common.logger);
      const calls = ofCalls && { ...ofCalls, learned };
      const startsWith = parts.rules?.policyOf(where, name, policy);
      const usesMember = members && ((member: string) => members.has(member));
      const own = { ...behaviour, usesMember, calls };
      const bucket = create({ name, policy, startsWith, ...common, ...own }, register);
      buckets.set(name, bucket);
      declarations.set(name, declaration);
      parts.rules?.noteDeclared(name);
      return bucket;
    },
    of: (name) => buckets.get(name),
    async find(name) {
      const own = buckets.get(name);
      if (own !== undefined) return own;
      const declared = (await insight.declared(name)) ?? (await insight.bucket(name)).rules?.text;
      if (declared === undefined) return undefined;
      const found = used.get(name);
      if (found?.policy.text === declared) return found;
      return createFound(name, readPolicyElsewhere(`bucket("${name}")`, declared));
    },
    all,
    isSpread: (policy) => isCluster && isSpread(policy),
    replica,
    redraw() {
      for (const bucket of all()) bucket.redraw();
    },
    async close() {
      const open = [...all()];
      await Promise.all(open.map((bucket) => bucket.close()));
      await Promise.all(open.map(async ({ calls }) => calls?.learned.settled()));
    },
  };
  return opened;
}

/**
 * True if a cluster spreads the keys of a bucket over its nodes. Named keys are not spread, because
 * they are counted in one step.
 */
export function isSpread({ limits, perKey, pool }: Policy): boolean {
  return (
    pool === undefined && limits.length === 0 && perKey !== undefined && perKey.names === undefined
  );
}

/** The options, by name, with which a bucket or queue was declared. */
export type Declaration = Readonly<Record<string, unknown>>;

/**
 * Compares a later declaration with the first declaration of the same name. Later options have no
 * effect, so each later option must be omitted or equal the first one. Values and tables are
 * compared by content. Functions and schemas must be the same objects.
 *
 * @throws {@link InvalidOptionError} when an option differs.
 */
export function assertSame(
  where: string,
  what: "bucket" | "queue",
  { first, later }: { readonly first: Declaration; readonly later: Declaration },
): void {
  for (const [option, value] of Object.entries(later)) {
    if (value === undefined || isSame(value, first[option])) continue;
    const remedy = isSameText(value, first[option])
      ? `this sluice made the ${what} before, with other functions or schemas of the same text; make it once, and keep it`
      : `this sluice made the ${what} with another before; give both the same`;
    throw new InvalidOptionError({ where, option, value, remedy });
  }
}

/**
 * @throws {@link InvalidOptionError} when a later declaration of a bucket has a different policy.
 */
function assertSamePolicy(
  where: string,
  given: PolicyOptions,
  { first, later }: { readonly first: Policy; readonly later: Policy },
): void {
  if (meaningOf(later) === meaningOf(first)) return;
  const option = differing(given, first, later);
  const remedy = `this sluice gave the bucket ${formatPolicy(first)} before; give both the same policy`;
  const value = (given as Declaration)[option];
  throw new InvalidOptionError({ where, option, value, remedy });
}

/**
 * Returns the policy text without the declared forms of its rates, so that `"60/min"` equals
 * `"1/s"`.
 */
function meaningOf({ text }: Policy): string {
  return text.replaceAll(/,"label":"[^"]*\/[^"]*"/g, "");
}

/** Returns the option in which two policies differ. */
function differing(
  { rate }: PolicyOptions,
  first: Policy,
  later: Policy,
): keyof PolicyOptions | "members" {
  if (!isDeepStrictEqual(first.limits, later.limits)) return rate === undefined ? "limits" : "rate";
  if (!isDeepStrictEqual(first.pool, later.pool)) return "members";
  if (!isDeepStrictEqual(first.shares, later.shares)) return "shares";
  return isDeepStrictEqual(first.fair, later.fair) ? "perKey" : "fair";
}

/** True if an error would show the same complete text for both values. */
function isSameText(value: unknown, other: unknown): boolean {
  const text = describeValue(value);
  return text === describeValue(other) && !text.includes("…");
}

function isSame(value: unknown, other: unknown): boolean {
  return value === other || (isTable(value) && isDeepStrictEqual(value, other));
}

function isTable(value: unknown): boolean {
  if (typeof value !== "object" || value === null) return false;
  if (Array.isArray(value)) return true;
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}
