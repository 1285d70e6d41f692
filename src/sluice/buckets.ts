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
  type HearStore,
} from "../throttle/bucket/create-bucket.ts";
import { unknownPolicy } from "../throttle/known-policy.ts";
import { createLearned } from "../throttle/wrap/call-defaults.ts";

/** The buckets of one sluice. */
export interface Buckets {
  /**
   * The bucket of this name, the same object each time.
   *
   * @throws {@link InvalidOptionError} when the options can never work, or the bucket was opened with others.
   */
  open(where: string, name: string, options: BucketOptions): OwnedBucket;
  /**
   * The bucket of this name with the limits that rules give it, or other processes; the same object each time.
   *
   * @throws {@link InvalidOptionError} when nobody else could say its limits.
   */
  openByName(where: string, name: string): OwnedBucket;
  of(name: string): OwnedBucket | undefined;
  /** The policy that the code of this process declares. */
  codeOf(name: string): Policy | undefined;
  /**
   * The bucket of this name with the policy that other processes declare, unless this one does; undefined if none has used
   * it in the last 30 days.
   */
  readonly find: (name: string) => Promise<OwnedBucket | undefined>;
  readonly all: () => Iterable<OwnedBucket>;
  /** Whether a bucket with this policy is stored in parts: in a cluster, keys that share no limit are spread over all nodes. */
  readonly isSpread: (policy: Policy) => boolean;
  /** This process, as the store knows it. */
  readonly replica: string;
  /** The store answers again: calls that wait for it are asked for again. */
  askAgain(): void;
  close(): Promise<void>;
}

type OnOpen = (storeName: string, hear: HearStore) => void;

export interface BucketsParts {
  readonly store: Store;
  readonly insight: InsightStore;
  readonly logger: Logger;
  /** Called when something happens in a bucket that has not been told yet. */
  readonly onActivity?: (() => void) | undefined;
  readonly observing?: Observing | undefined;
  readonly rules?: RulesOfBuckets | undefined;
  /** Whether the store lies in Redis, and whether that is a cluster. */
  readonly isRemote: boolean;
  readonly isCluster: boolean;
}

/** The rules of a file, as far as buckets need them. */
type RulesOfBuckets = Pick<RulesInUse, "policyOf" | "noteDeclared">;

/** `fetch` is left out, since it checks its own arguments. */
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
      "on",
      "off",
    ],
  });
}

export function createBuckets(parts: BucketsParts): Buckets {
  const { store, insight, logger, onActivity, observing, isRemote, isCluster } = parts;
  const replica = randomUUID();
  const buckets = new Map<string, OwnedBucket>();
  /** Who hears the store, by the name of a bucket, or of a part of one, in the store. */
  const hearers = new Map<string, HearStore>();
  /** Those that calls are drawn from with the policy of other processes. */
  const used = new Map<string, OwnedBucket>();
  /** The options that each bucket was opened with first. */
  const declarations = new Map<string, Declaration>();
  let isListening = false;

  /** Once for all buckets: a listener needs a connection of its own. */
  function listen(): void {
    if (isListening) return;
    isListening = true;
    store.listen(replica, (storeName, news, key) => hearers.get(storeName)?.(news, key));
  }

  /** In a cluster, keys that share no limit are spread over all nodes. */
  function create(settings: BucketSettings, onOpen: OnOpen): OwnedBucket {
    const placement = { isSpread: isCluster && isSpread(settings.policy), onOpen };
    return withArgumentCount(createBucket(settings, placement));
  }

  function* all(): Iterable<OwnedBucket> {
    yield* buckets.values();
    for (const [name, bucket] of used) if (!buckets.has(name)) yield bucket;
  }

  function register(storeName: string, hear: HearStore): void {
    hearers.set(storeName, hear);
  }

  /** What all buckets are made with. */
  function commonParts() {
    return {
      store,
      insight,
      onActivity,
      observing,
      replica,
      // The parts of a bucket share one sampled logger: they all fail at the same time.
      logger: sampled(logger, () => performance.now()),
      openLocalStore: isRemote ? createMemoryStore : undefined,
    };
  }

  /** One that nothing is drawn from needs no news, and is kept only by whoever has it. */
  function createFound(name: string, policy: Policy): OwnedBucket {
    const opened = new Map<string, HearStore>();
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

  /** What rules, or else the code of other processes, make of a bucket. */
  async function findPolicy(name: string): Promise<string | undefined> {
    const { rules } = await insight.bucket(name);
    const text = rules?.text ?? (await insight.declared(name));
    if (text === undefined || !isCluster) return text;
    const where = `bucket("${name}")`;
    if (!isSpread(readPolicyElsewhere(where, text))) return text;
    const remedy = "its keys are spread over the cluster: give the same options here as elsewhere";
    throw new InvalidOptionError({ where, option: "perKey", value: undefined, remedy });
  }

  return {
    codeOf(name) {
      const bucket = buckets.get(name);
      return bucket?.isDeclared === true ? bucket.policy : undefined;
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
    open(where, name, given) {
      const { policy: unread, ...behaviour } = readBucketOptions(where, given);
      const policy = compilePolicy(where, unread);
      const { feedback, calls: own, ...others } = behaviour;
      // The policy's text does not tell functions or tiers apart.
      const perKey = policy.perKey?.isLocal === true ? given.perKey : undefined;
      const declaration: Declaration = { ...others, ...feedback, ...own, perKey };
      const found = buckets.get(name);
      if (found?.isDeclared === false) {
        const remedy =
          "this sluice made the bucket without options before; give them at the first call";
        throw new InvalidOptionError({ where, option: "options", value: given, remedy });
      }
      if (found !== undefined) {
        assertSame(where, "bucket", { first: declarations.get(name)!, later: declaration });
        assertSamePolicy(where, given, { first: found.policy, later: policy });
        return found;
      }
      const common = { ...commonParts(), listen };
      const learned = createLearned(store, name, common.logger);
      const calls = own && { ...own, learned };
      const startsWith = parts.rules?.policyOf(where, name, policy);
      const bucket = create({ name, policy, startsWith, ...common, ...behaviour, calls }, register);
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
    askAgain() {
      for (const bucket of all()) bucket.askAgain();
    },
    async close() {
      const open = [...all()];
      await Promise.all(open.map((bucket) => bucket.close()));
      await Promise.all(open.map(async ({ calls }) => calls?.learned.settled()));
    },
  };
}

/** Whether a cluster spreads the keys. Keys by name are counted in one step, whatever they are. */
export function isSpread({ limits, perKey }: Policy): boolean {
  return limits.length === 0 && perKey !== undefined && perKey.names === undefined;
}

/** The options that a bucket or a queue was declared with, by name. */
export type Declaration = Readonly<Record<string, unknown>>;

/**
 * Checks a later declaration of the same name against the first, since it has no effect: each option
 * that it has must be the same, and it may leave options out. Values and tables are compared by what
 * they hold; functions and schemas must be the same objects.
 *
 * @throws {@link InvalidOptionError} when an option is another.
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

/** @throws {@link InvalidOptionError} when a later declaration of a bucket gives it another policy. */
function assertSamePolicy(
  where: string,
  given: PolicyOptions,
  { first, later }: { readonly first: Policy; readonly later: Policy },
): void {
  if (meaningOf(later) === meaningOf(first)) return;
  const option = differing(given, first, later);
  const remedy = `this sluice gave the bucket ${formatPolicy(first)} before; give both the same policy`;
  throw new InvalidOptionError({ where, option, value: given[option], remedy });
}

/** The text of a policy without the forms in which its rates were declared: `"60/min"` is `"1/s"`. */
function meaningOf({ text }: Policy): string {
  return text.replaceAll(/,"label":"[^"]*\/[^"]*"/g, "");
}

/** The option by which the two policies differ. */
function differing({ rate }: PolicyOptions, first: Policy, later: Policy): keyof PolicyOptions {
  if (!isDeepStrictEqual(first.limits, later.limits)) return rate === undefined ? "limits" : "rate";
  return isDeepStrictEqual(first.shares, later.shares) ? "perKey" : "shares";
}

/** Whether an error would show the same whole text for both. */
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
