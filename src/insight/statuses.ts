/**
 * Reads the states of many buckets together, so that an overview does not request them one by one.
 */
import { readPolicyElsewhere, readPolicyText, type Policy } from "../core/policy/policy.ts";
import type { Peeked, Store } from "../core/store.ts";
import {
  overrideInForce,
  type BucketLook,
  type Glance,
  type InsightStore,
} from "../core/stores/insight/store.ts";
import type { OwnedBucket } from "../throttle/bucket.ts";
import { termsOf } from "../throttle/known-policy.ts";
import { createLru } from "../throttle/lru.ts";
import { describeBriefly, describeState } from "../throttle/bucket/bucket-state.ts";
import {
  briefOf,
  describeStatus,
  type BucketBrief,
  type BucketStatus,
} from "../throttle/bucket/facts/status.ts";

/**
 * The status of one bucket, or the error of reading it. `status` is undefined if the bucket does
 * not exist.
 */
type StatusFound<Status> =
  | { readonly name: string; readonly status: Status | undefined }
  | { readonly name: string; readonly error: unknown };

export interface Statuses {
  readonly whole: (names: readonly string[]) => Promise<readonly StatusFound<BucketStatus>[]>;
  /** Returns statuses without `limits`, because reading limits takes one request per bucket. */
  readonly brief: (names: readonly string[]) => Promise<readonly StatusFound<BucketBrief>[]>;
}

export interface StatusesParts {
  readonly store: Pick<Store, "peek" | "readOutages">;
  readonly insight: Pick<InsightStore, "looks">;
  /** Returns the bucket with this name if this process declares it. */
  readonly of: (name: string) => OwnedBucket | undefined;
  /** Finds the bucket with this name, whichever process declares it. */
  readonly find: (name: string) => Promise<OwnedBucket | undefined>;
  /** Returns true if a bucket with this policy is stored in several parts. */
  readonly isSpread: (policy: Policy) => boolean;
}

type Look = Extract<BucketLook, { readonly facts: unknown }>;

/** The maximum number of cached parsed policies. */
const POLICIES_KEPT = 5_000;

export function createStatuses(parts: StatusesParts): Statuses {
  const { store, insight, of, find, isSpread } = parts;
  const policies = createLru<Policy>(POLICIES_KEPT);

  /** Returns the policy that this process's code declares. */
  function codeOf(name: string): Policy | undefined {
    const own = of(name);
    return own?.isDeclared === true ? own.policy : undefined;
  }

  function policyOf(name: string, text: string): Policy {
    const own = codeOf(name);
    if (own !== undefined) {
      return own.text === text ? own : readPolicyText(`bucket("${name}")`, text, own);
    }
    const known = policies.get(text);
    if (known !== undefined) return known;
    const read = readPolicyElsewhere(`bucket("${name}")`, text);
    policies.set(text, read);
    return read;
  }

  /**
   * Returns the active policy according to `look`. Undefined if the bucket does not exist or is
   * stored in several parts.
   */
  function policyBy(name: string, { facts, declared, glance }: Look): Policy | undefined {
    const ofCode = codeOf(name)?.text ?? declared ?? facts.rules?.text;
    if (ofCode === undefined) return undefined;
    const policy = policyOf(
      name,
      glance?.text ?? overrideInForce(facts)?.text ?? facts.rules?.text ?? ofCode,
    );
    return isSpread(policy) ? undefined : policy;
  }

  function peek(name: string, policy: Policy): Promise<Peeked> {
    return store.peek({ bucket: name, terms: termsOf(policy, 0), scopes: [] });
  }

  async function unreachableForMs(name: string, glance: Glance | undefined): Promise<number> {
    if (glance !== undefined) return glance.unreachableForMs;
    const [away] = await store.readOutages({ bucket: name, keys: [undefined] });
    return away?.inMs ?? 0;
  }

  async function whole(name: string, look: Look | undefined): Promise<BucketStatus | undefined> {
    const expected = look && policyBy(name, look);
    if (look === undefined || expected === undefined) return (await find(name))?.status();
    const [first, away] = await Promise.all([
      peek(name, expected),
      unreachableForMs(name, look.glance),
    ]);
    const policy = first.text === expected.text ? expected : policyOf(name, first.text);
    const peeked = policy === expected ? first : await peek(name, policy);
    const seen = { waitingHere: of(name)?.waiting ?? 0, unreachableForMs: away };
    const state = describeState(peeked, undefined, policy, seen);
    return describeStatus(name, policy, state, look.facts);
  }

  async function brief(name: string, look: Look | undefined): Promise<BucketBrief | undefined> {
    const policy = look?.glance && policyBy(name, look);
    if (policy === undefined || policy.shadows.length > 0) {
      const status = await whole(name, look);
      return status && briefOf(status);
    }
    const { facts, glance } = look!;
    const waitingHere = of(name)?.waiting ?? 0;
    const state = describeBriefly(glance!, policy, { ...glance!, waitingHere });
    return describeStatus(name, policy, state, facts);
  }

  async function readAll<Status>(
    names: readonly string[],
    read: (name: string, look: Look | undefined) => Promise<Status | undefined>,
  ): Promise<StatusFound<Status>[]> {
    const looks = names.length === 0 ? undefined : await insight.looks?.(names);
    return Promise.all(
      names.map(async (name): Promise<StatusFound<Status>> => {
        const look = looks?.get(name);
        if (look !== undefined && "error" in look) return { name, error: look.error };
        try {
          return { name, status: await read(name, look) };
        } catch (error) {
          return { name, error };
        }
      }),
    );
  }

  return {
    whole: (names) => readAll(names, whole),
    brief: (names) => readAll(names, brief),
  };
}
