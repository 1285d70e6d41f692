import { z } from "zod";
import { ClosedError, InvalidOptionError } from "../../core/errors.ts";
import { formatLimit } from "../../core/limits/registry.ts";
import { KEY, LONGEST_MS, readOptions, wholeNumber } from "../../core/options.ts";
import { keyLimitsOf } from "../../core/policy/per-key.ts";
import {
  compileOver,
  formatPolicy,
  type Policy,
  type PolicyOptions,
} from "../../core/policy/policy.ts";
import type { Change, Peeked, ScopeRequest } from "../../core/store.ts";
import { termsOf, type BucketContext } from "../known-policy.ts";

/** Which key something is about; left out, the whole bucket. */
export interface KeyOptions {
  readonly key?: string | undefined;
}

export interface PauseOptions extends KeyOptions {
  /** For how long. Defaults to until it is resumed. */
  readonly forMs?: number | undefined;
}

/** Live changes of one bucket, for every replica. */
interface Steering {
  readonly configure: (policy: PolicyOptions | "code") => Promise<void>;
  readonly pause: (options?: PauseOptions) => Promise<void>;
  readonly resume: (options?: KeyOptions) => Promise<void>;
  readonly peek: (options?: KeyOptions) => Promise<BucketState>;
}

/** How a bucket stands, beside the policy that holds for all replicas now. */
export interface InForce {
  readonly policy: Policy;
  readonly state: BucketState;
  /** Ms until the whole rate is in force again: `0` if it is. */
  readonly wholeInMs: number;
  /** For how many ms calls keep a distance that their answers asked for, and which. */
  readonly spacedForMs: number;
  readonly gapMs: number;
}

const ONE_KEY = z.strictObject({ key: KEY.optional() });
const PAUSE = ONE_KEY.extend({ forMs: wholeNumber(1, LONGEST_MS, "milliseconds").optional() });

export interface LiveControlOptions extends BucketContext {
  readonly declared: Policy;
  readonly waiting: () => number;
  /** Callers here are to feel the change at once: those of one key, or all. */
  readonly onChange: (key: string | undefined) => void;
}

/** The same, as the bucket that it belongs to uses it. */
interface OwnedSteering extends Steering {
  readonly inForce: () => Promise<InForce>;
  /** From now on all of it rejects with {@link ClosedError}, also where the store would still answer. */
  readonly close: () => void;
}

export function createLiveControl(parts: LiveControlOptions): OwnedSteering {
  const { store, bucket, declared, known, waiting, onChange } = parts;
  let isClosed = false;

  function assertOpen(): void {
    if (isClosed) throw new ClosedError(`Bucket "${bucket}"`);
  }

  async function steer(
    change: Change,
    { terms = known.terms, key, keyLimits = [] }: Partial<Omit<ScopeRequest, "bucket">> = {},
  ): Promise<void> {
    assertOpen();
    await store.steer({ bucket, terms, key, keyLimits, change });
    onChange(key);
  }

  async function pause(where: string, key: string | undefined, forUs: number): Promise<void> {
    const change: Change = { do: "pause", forUs };
    if (key === undefined) return steer(change);
    const keyLimits = keyLimitsOf(await policyInForce(), key);
    if (keyLimits.length === 0) {
      const remedy =
        "nothing is kept of a key that has no limits of its own; give the bucket perKey, or leave the key out";
      throw new InvalidOptionError({ where, option: "key", value: key, remedy });
    }
    await steer(change, { key, keyLimits });
  }

  async function look(policy: Policy, key: string | undefined): Promise<Peeked> {
    assertOpen();
    const keyLimits = keyLimitsOf(policy, key);
    const own = keyLimits.length > 0 ? key : undefined;
    const terms = termsOf(policy, known.terms.version);
    return store.peek({ bucket, terms, key: own, keyLimits });
  }

  /** The policy that holds for all replicas now. */
  async function policyInForce(): Promise<Policy> {
    const { text } = await look(known.policy, undefined);
    return known.read(text);
  }

  /** Another policy than this process knows may be in force; its draws will learn it, not a look. */
  async function inForce(key?: string): Promise<InForce> {
    const first = await look(known.policy, key);
    const policy = known.read(first.text);
    const peeked = policy === known.policy ? first : await look(policy, key);
    const { nowUs, wholeAtUs, gapUs, gapUntilUs } = peeked;
    return {
      policy,
      state: describeState(peeked, key, policy, waiting()),
      wholeInMs: msUntil(wholeAtUs, nowUs),
      spacedForMs: msUntil(gapUntilUs, nowUs),
      gapMs: gapUs / 1_000,
    };
  }

  return {
    async configure(given) {
      const where = `bucket("${bucket}").configure()`;
      const isCode = given === "code";
      const policy = isCode ? declared : compileOver(where, given, await policyInForce());
      const change: Change = { do: "configure", isOverride: !isCode };
      await steer(change, { terms: termsOf(policy, 0) });
    },
    async pause(options = {}) {
      const { key, forMs } = readOptions("pause()", PAUSE, options);
      await pause("pause()", key, forMs === undefined ? FOREVER_US : forMs * 1_000);
    },
    async resume(options = {}) {
      const { key } = readOptions("resume()", ONE_KEY, options);
      await pause("resume()", key, 0);
    },
    async peek(options = {}) {
      const { key } = readOptions("peek()", ONE_KEY, options);
      return (await inForce(key)).state;
    },
    inForce: () => inForce(),
    close() {
      isClosed = true;
    },
  };
}

/** How one limit stands. The numbers are of 100 calls a minute, 97 of them used. */
export interface LimitState {
  /** `"100/min"`. */
  readonly name: string;
  readonly unit: string;
  readonly scope: "bucket" | "key";
  /** `100`. */
  readonly capacity: number;
  /** What is used: `97`. */
  readonly level: number;
  /** What could pass now: `3`. */
  readonly remaining: number;
  /** Ms until a call of cost 1 may pass: `0`. Undefined if nobody can tell, as of a concurrency limit that is used up. */
  readonly nextFreeMs: number | undefined;
}

/** How a bucket stands, for all replicas. */
export interface BucketState {
  /** The policy in force: `"100/s"`. */
  readonly policy: string;
  /** Whether it comes from the code or was configured over it. */
  readonly policyFrom: "code" | "configured";
  readonly generation: number;
  /** Ms until a cooldown ends: `0` if there is none. */
  readonly coolingForMs: number;
  /** Ms until a pause ends: `0` if there is none; Infinity if it has no end. */
  readonly pausedForMs: number;
  /** The part of the rate that is in force after a refusal: `1` is all of it. */
  readonly rateFactor: number;
  /** How many replicas drew of late. */
  readonly replicas: number;
  /** How many callers wait in this process. */
  readonly waitingHere: number;
  readonly limits: readonly LimitState[];
}

/** A pause without an end: some 30 years. */
const FOREVER_US = 1e15;

/** What a look at a bucket tells its user. */
function describeState(
  peeked: Peeked,
  key: string | undefined,
  policy: Policy,
  waitingHere: number,
): BucketState {
  const { nowUs, statuses, coolUntilUs, pausedUntilUs } = peeked;
  const shutUntilUs = Math.max(coolUntilUs, pausedUntilUs);
  const limits = [...policy.limits, ...keyLimitsOf(policy, key)].map((limit, index): LimitState => {
    const { remaining = limit.capacity, nextUs = nowUs } = statuses[index] ?? {};
    return {
      name: formatLimit(limit),
      unit: limit.unit,
      scope: index < policy.limits.length ? "bucket" : "key",
      capacity: limit.capacity,
      level: limit.capacity - remaining,
      remaining,
      nextFreeMs: nextUs === Infinity ? undefined : msUntil(Math.max(nextUs, shutUntilUs), nowUs),
    };
  });
  return {
    policy: formatPolicy(policy),
    policyFrom: peeked.isOverride ? "configured" : "code",
    generation: peeked.generation,
    coolingForMs: msUntil(coolUntilUs, nowUs),
    pausedForMs: orEndless(msUntil(pausedUntilUs, nowUs)),
    rateFactor: peeked.factor / 1_000,
    replicas: peeked.alive,
    waitingHere,
    limits,
  };
}

/** Infinity for what is left of a pause without an end. */
export function orEndless(ms: number): number {
  return ms > FOREVER_US / 2_000 ? Infinity : ms;
}

function msUntil(us: number, nowUs: number): number {
  return Math.max(0, Math.ceil((us - nowUs) / 1_000));
}
