/** `configure`, `pause`, `resume` and `peek`: what users change and see of a bucket while it runs. */
import * as z from "zod";
import { refuseUndefined } from "../../core/input/arguments.ts";
import { ClosedError, InvalidOptionError } from "../../core/errors.ts";
import { formatLimit } from "../../core/limits/registry.ts";
import { sayEndless } from "../../core/describe.ts";
import { LONGEST_MS, readOptions, wholeNumber } from "../../core/input/options.ts";
import { KEY_SHAPE, oneKey, type KeyGiven } from "../../core/input/key-options.ts";
import { namedOf } from "../../core/key-path.ts";
import { ownScopeOf, scopesOf, whoseLimits } from "../../core/policy/per-key.ts";
import {
  compileOver,
  formatPolicy,
  type Policy,
  type PolicyOptions,
} from "../../core/policy/policy.ts";
import { limitsOfCall, type Change, type Peeked, type SteerRequest } from "../../core/store.ts";
import { termsOf, type BucketContext } from "../known-policy.ts";

/** Names one key, or the head of a path; without it, the whole bucket is meant. */
export type KeyOptions = KeyGiven;

export interface PauseOptions extends KeyOptions {
  /** For how long. Defaults to until it is resumed. */
  readonly forMs?: number | undefined;
}

/** The policy in force for all replicas, and the state of the bucket under it. */
export interface InForce {
  readonly policy: Policy;
  readonly state: BucketState;
  /** Ms until the whole rate is in force again: `0` if it is. */
  readonly wholeInMs: number;
  /** For how many ms calls keep a distance that answers asked for: `0` if there is none. */
  readonly spacedForMs: number;
  /** That distance, in ms. */
  readonly gapMs: number;
}

const ONE_KEY = z.strictObject(KEY_SHAPE);
const PAUSE = ONE_KEY.extend({ forMs: wholeNumber(1, LONGEST_MS, "milliseconds").optional() });

export interface LiveControlParts extends BucketContext {
  readonly waiting: () => number;
  /** Called after each change of one key, or of all: calls that wait here follow it at once. */
  readonly onChange: (key: string | undefined) => void;
}

/** Live changes of one bucket, for every replica, and a look at it. All of it rejects with {@link ClosedError} after `close`. */
export interface LiveControl {
  readonly configure: (policy: PolicyOptions | "code") => Promise<void>;
  readonly pause: (options?: PauseOptions) => Promise<void>;
  readonly resume: (options?: KeyOptions) => Promise<void>;
  readonly peek: (options?: KeyOptions) => Promise<BucketState>;
  readonly inForce: () => Promise<InForce>;
  readonly close: () => void;
}

export function createLiveControl(parts: LiveControlParts): LiveControl {
  const { store, bucket, known, waiting, onChange } = parts;
  let isClosed = false;

  /** The store would still answer after a close. */
  function assertOpen(): void {
    if (isClosed) throw new ClosedError(`Bucket "${bucket}"`);
  }

  async function steer(
    change: Change,
    { terms = known.terms, scope }: Partial<Pick<SteerRequest, "terms" | "scope">> = {},
  ): Promise<void> {
    assertOpen();
    await store.steer({ bucket, terms, scope, change });
    onChange(scope?.key);
  }

  async function pause(where: string, key: string | undefined, durationUs: number): Promise<void> {
    const change: Change = { do: "pause", durationUs };
    if (key === undefined) return steer(change);
    const scope = ownScopeOf(await policyInForce(), key);
    if (scope === undefined) {
      const { key: path, keys } = namedOf(key);
      const option = keys === undefined ? "key" : "keys";
      const remedy =
        keys !== undefined && Object.keys(keys).length > 1
          ? "name one of the keys: each has a state of its own"
          : "a key without limits of its own has no state; give the bucket perKey, or leave the key out";
      throw new InvalidOptionError({ where, option, value: keys ?? path, remedy });
    }
    await steer(change, { scope });
  }

  async function look(policy: Policy, key: string | undefined): Promise<Peeked> {
    assertOpen();
    const terms = termsOf(policy, known.terms.version);
    return store.peek({ bucket, terms, scopes: scopesOf(policy, key) });
  }

  async function policyInForce(): Promise<Policy> {
    const { text } = await look(known.policy, undefined);
    return known.read(text);
  }

  /** Leaves the policy that this process knows as it is, also where another is in force: its draws learn that. */
  async function inForce(key?: string): Promise<InForce> {
    const keys = key === undefined ? [undefined] : [undefined, key];
    const [first, aways] = await Promise.all([
      look(known.policy, key),
      store.readAway({ bucket, keys }),
    ]);
    const awayForMs = Math.max(0, ...aways.map((away) => away?.inMs ?? 0));
    const policy = known.read(first.text);
    const peeked = policy === known.policy ? first : await look(policy, key);
    const { nowUs, wholeAtUs, gapUs, gapUntilUs } = peeked;
    return {
      policy,
      state: describeState(peeked, key, policy, { waitingHere: waiting(), awayForMs }),
      wholeInMs: msUntil(wholeAtUs, nowUs),
      spacedForMs: msUntil(gapUntilUs, nowUs),
      gapMs: gapUs / 1_000,
    };
  }

  return {
    async configure(given) {
      const where = `bucket("${bucket}").configure()`;
      const isCode = given === "code";
      const policy = isCode ? known.declared : compileOver(where, given, await policyInForce());
      const change: Change = { do: "configure", isOverride: !isCode };
      await steer(change, { terms: termsOf(policy, 0) });
    },
    async pause(options = {}) {
      refuseUndefined("pause()", options);
      const { key, forMs } = oneKey("pause()", readOptions("pause()", PAUSE, options));
      await pause("pause()", key, forMs === undefined ? FOREVER_US : forMs * 1_000);
    },
    async resume(options = {}) {
      refuseUndefined("resume()", options);
      const { key } = oneKey("resume()", readOptions("resume()", ONE_KEY, options));
      await pause("resume()", key, 0);
    },
    async peek(options = {}) {
      const { key } = oneKey("peek()", readOptions("peek()", ONE_KEY, options));
      return (await inForce(key)).state;
    },
    inForce: () => inForce(),
    close() {
      isClosed = true;
    },
  };
}

/** The state of one limit. The numbers are of 100 calls a minute, 97 of them used. */
export interface LimitState {
  /** `"100/min"`; where keys have several levels or names, with that: `"2/s (level 1)"`. */
  readonly name: string;
  readonly unit: string;
  /** Whether the whole bucket shares it (`"bucket"`) or each key has its own (`"key"`); of keys by name, the name. */
  readonly scope: string;
  /** Which name of a path it is for: `0` is the first. Undefined of the bucket, and of keys by name. */
  readonly keyLevel: number | undefined;
  /** `100`. */
  readonly capacity: number;
  /** What is used: `97`. */
  readonly level: number;
  /** What could pass now: `3`. */
  readonly remaining: number;
  /** Ms until a call of cost 1 may pass: `0`. Undefined if it is unknown, as of a concurrency limit that is used up. */
  readonly nextFreeMs: number | undefined;
}

/** The state of a bucket, for all replicas. */
export interface BucketState {
  /** The policy in force: `"100/s"`. */
  readonly policy: string;
  /** Whether it comes from the code or was configured over it. */
  readonly policyFrom: "code" | "configured";
  readonly generation: number;
  /** Ms until a cooldown ends: `0` if there is none. */
  readonly coolingForMs: number;
  /** Ms until a pause ends: `0` if there is none; Infinity if it has no end, which JSON says as `"forever"`. */
  readonly pausedForMs: number;
  /**
   * While the downstream is away, of the bucket or of the key, as some process has found: ms until the next job tries
   * whether it is back, at least 1. Else 0.
   */
  readonly awayForMs: number;
  /** The part of the rate that is in force after a refusal: `1` is all of it. */
  readonly rateFactor: number;
  /** How many replicas drew in this second or the last. */
  readonly replicas: number;
  /** How many callers wait in this process. */
  readonly waitingHere: number;
  readonly limits: readonly LimitState[];
}

/** A pause without an end: about 30 years. */
const FOREVER_US = 1e15;

function describeState(
  peeked: Peeked,
  key: string | undefined,
  policy: Policy,
  seen: Pick<BucketState, "waitingHere" | "awayForMs">,
): BucketState {
  const { nowUs, statuses, coolUntilUs, pausedUntilUs } = peeked;
  const closedUntilUs = Math.max(coolUntilUs, pausedUntilUs);
  const scopes = scopesOf(policy, key);
  const whose = whoseLimits(policy, scopes);
  const limits = limitsOfCall(policy.limits, scopes).map((limit, index): LimitState => {
    const { scope, level, suffix } = whose[index]!;
    const { remaining = limit.capacity, nextUs = nowUs } = statuses[index] ?? {};
    return {
      name: formatLimit(limit) + suffix,
      unit: limit.unit,
      scope,
      keyLevel: level,
      capacity: limit.capacity,
      level: limit.capacity - remaining,
      remaining,
      nextFreeMs: nextUs === Infinity ? undefined : msUntil(Math.max(nextUs, closedUntilUs), nowUs),
    };
  });
  return sayEndless({
    policy: formatPolicy(policy),
    policyFrom: peeked.isOverride ? "configured" : "code",
    generation: peeked.generation,
    coolingForMs: msUntil(coolUntilUs, nowUs),
    pausedForMs: orEndless(msUntil(pausedUntilUs, nowUs)),
    rateFactor: peeked.factor / 1_000,
    replicas: peeked.alive,
    ...seen,
    limits,
  });
}

/** Infinity for the rest of a pause without an end. */
export function orEndless(ms: number): number {
  return ms > FOREVER_US / 2_000 ? Infinity : ms;
}

function msUntil(us: number, nowUs: number): number {
  return Math.max(0, Math.ceil((us - nowUs) / 1_000));
}
