/**
 * `configure`, `pause`, `resume` and `undo` change a running bucket for all replicas. Each change is recorded in the
 * change log before it is made, with its author and the previous state. Afterwards, the log entry receives the result.
 */
import { hostname } from "node:os";
import process from "node:process";
import * as z from "zod";
import { assertNoUndefined } from "../../core/input/arguments.ts";
import { describeValue } from "../../core/describe.ts";
import { ChangedError, ClosedError, InvalidOptionError } from "../../core/errors.ts";
import { LONGEST_MS, readOptional, readOptions, wholeNumber } from "../../core/input/options.ts";
import { KEY_SHAPE, oneKey, type KeyGiven } from "../../core/input/key-options.ts";
import { TEXT, WHO_AND_WHY, type WhoAndWhy } from "../../core/input/who-and-why.ts";
import { scopesOf, ownScopeOf } from "../../core/policy/per-key.ts";
import {
  compileOver,
  formatPolicy,
  UNKNOWN_POLICY,
  type Policy,
  type PolicyOptions,
  asFarAsKnown,
} from "../../core/policy/policy.ts";
import {
  createChangeLog,
  endOf,
  makeUnder,
  pauseLeft,
  type Inverse,
} from "../../core/stores/insight/change-log.ts";
import type {
  BucketAction,
  BucketChange,
  KeptBucketChange,
  SteeredState,
} from "../../core/stores/insight/changes.ts";
import {
  overrideOf,
  UNCONFIRMED_MS,
  type InsightStore,
  type Override,
} from "../../core/stores/insight/store.ts";
import type { Member } from "../../core/policy/pool.ts";
import type { Change as StoreChange, LimitedKey, Peeked, PolicySource } from "../../core/store.ts";
import { decodeKey, namedOf, textsOfNamedKeys } from "../../core/key-path.ts";
import { termsOf, unknownPolicy, type BucketContext, type RefreshPolicy } from "../known-policy.ts";
import {
  describeState,
  FOREVER_US,
  msUntil,
  orEndless,
  type BucketState,
  type MemberState,
  type InForce,
} from "./bucket-state.ts";

/** Selects one key, or the start of a key path. Without a key, the method applies to the whole bucket. */
export type KeyOptions = KeyGiven;

/** The author, reason and precondition of an operator's change. */
export interface ByHand extends WhoAndWhy {
  /**
   * The generation that `peek` or `status` returned. If the policy, a pause or a cooldown of the bucket has changed
   * since then, the change is rejected with `ChangedError`. By default, there is no such check.
   */
  readonly generation?: number | undefined;
}

export interface PauseOptions extends KeyOptions, ByHand {
  /** The length of the pause, in ms. By default, the pause has no end. */
  readonly forMs?: number | undefined;
}

export interface ResumeOptions extends KeyOptions, ByHand {}

export interface ConfigureOptions extends ByHand {
  /**
   * How long the policy is active, in ms. After that, the policy of the rules or the code applies again. By default,
   * the policy has no end.
   */
  readonly forMs?: number | undefined;
}

export interface UndoOptions extends ByHand {
  /**
   * The id of the change to undo. Defaults to the latest change. `undo` rejects with `ChangedError` if there is a later
   * change, and with `CannotUndoError` if the change cannot be undone.
   */
  readonly id?: string | undefined;
}

const BY_HAND = {
  ...WHO_AND_WHY,
  generation: wholeNumber(1, Number.MAX_SAFE_INTEGER, "changes").optional(),
};
const FOR = { forMs: wholeNumber(1, LONGEST_MS, "milliseconds").optional() };
const ONE_KEY = z.strictObject(KEY_SHAPE);
const RESUME = ONE_KEY.extend(BY_HAND);
const PAUSE = RESUME.extend(FOR);
const CONFIGURE = z.strictObject({ ...BY_HAND, ...FOR });
const UNDO = z.strictObject({ ...BY_HAND, id: TEXT.optional() });

/** Reads the options of `configure()`. */
export function readConfigureOptions(
  where: string,
  given: ConfigureOptions = {},
): ConfigureOptions {
  return readOptions(where, CONFIGURE, given);
}

export interface LiveControlParts extends BucketContext {
  readonly insight: InsightStore;
  readonly waiting: () => number;
  readonly refreshPolicy: RefreshPolicy;
  /** True if the code of this process declares the policy. */
  readonly isDeclared: boolean;
  /** Returns how to take a grant back. */
  readonly inverseOfGrant: (last: KeptBucketChange) => Promise<Inverse<SteeredState>>;
  /** Called after each change of one key or of all keys, so that waiting calls follow the change at once. */
  readonly onChange: (key: string | undefined) => void;
}

/** Changes and reads one bucket for all replicas. All methods reject with {@link ClosedError} after `close`. */
export interface LiveControl {
  /** `where` is the call that errors name. */
  readonly configure: (
    policy: PolicyOptions | "code",
    options?: ConfigureOptions,
    where?: string,
  ) => Promise<void>;
  readonly pause: (options?: PauseOptions) => Promise<void>;
  readonly resume: (options?: ResumeOptions) => Promise<void>;
  readonly undo: (options?: UndoOptions) => Promise<BucketChange | undefined>;
  /**
   * Pauses a key without a change log entry; 0 ends this pause. Returns false if the key is already paused for longer.
   */
  readonly hold: (key: string, forMs: number) => Promise<boolean>;
  readonly peek: (options?: KeyOptions) => Promise<BucketState>;
  readonly inForce: () => Promise<InForce>;
  /** Returns the members of a pool and their state. Returns an empty list for other buckets. */
  readonly members: () => Promise<readonly MemberState[]>;
  /**
   * Ends an override whose time is over, unless the override has changed. The policy of the rules or the code then
   * applies again.
   */
  readonly expire: (override: Override) => Promise<void>;
  /** Records that balances are restored, and then restores them. */
  readonly recordRestore: <Made>(options: WhoAndWhy, restore: () => Promise<Made>) => Promise<Made>;
  readonly isClosed: () => boolean;
  readonly close: () => void;
}

/** A planned change: the request to the store, and the state before and after. This state is what operators can set. */
interface PlannedChange {
  readonly scope?: LimitedKey | undefined;
  readonly policy?: Policy;
  readonly change: StoreChange;
  readonly before: SteeredState;
  readonly after: SteeredState;
}

interface SetPolicy {
  readonly policy: Policy;
  readonly source: PolicySource;
}

/** The state that operators can set, as read in one generation of the bucket. */
interface Seen {
  readonly policy: Policy;
  readonly generation: number;
  readonly state: SteeredState;
}

export function createLiveControl(parts: LiveControlParts): LiveControl {
  const { store, insight, bucket, known, logger, waiting, refreshPolicy, isDeclared, onChange } =
    parts;
  const { inverseOfGrant } = parts;
  const log = createChangeLog({ store: insight, logger, process: OF_PROCESS });
  const configuring = (): string =>
    `${known.policy.pool === undefined ? "bucket" : "pool"}("${bucket}").configure()`;
  let isClosed = false;

  /** Without this check, changes would still work after `close`, because the store serves other buckets. */
  function assertOpen(): void {
    if (isClosed) throw new ClosedError(`Bucket "${bucket}"`);
  }

  /** Returns a function that makes the change in the store, and then confirms its entry in the change log. */
  function apply({ scope, policy, change, after }: PlannedChange, generation: number | undefined) {
    return async (id: string = ""): Promise<string> => {
      const terms = policy === undefined ? known.terms : termsOf(policy, 0);
      const steered = await store.steer({ bucket, terms, scope, change, generation });
      if (steered.isStale) throw new ChangedError({ bucket, since: generation!, ...steered });
      if (scope === undefined) {
        const made = { bucket, subject: subjectOf(change), after };
        const { generation: own } = steered;
        await log.settle(
          id,
          { bucket },
          insight.confirmChange({ id, change: made, generation: own }),
        );
      }
      onChange(scope?.key);
      return id;
    };
  }

  async function steer(
    action: BucketAction,
    planned: PlannedChange,
    { by, reason, generation, forMs }: ConfigureOptions,
  ): Promise<string> {
    assertOpen();
    const { scope, change, before, after } = planned;
    const what = { bucket, subject: subjectOf(change), action, key: scope?.key, before, after };
    return log.make({ ...what, by, reason, forMs }, apply(planned, generation));
  }

  async function look(given: Policy, key: string | undefined): Promise<Peeked> {
    assertOpen();
    let policy = given;
    if (given === UNKNOWN_POLICY) {
      await refreshPolicy();
      ({ policy } = known);
    }
    const terms = termsOf(policy, known.terms.version);
    const scopes = scopesOf(asFarAsKnown(policy), key, `bucket("${bucket}")`);
    return store.peek({ bucket, terms, scopes });
  }

  /**
   * Returns the state that operators can set. With a key, the state contains the key's own pause instead of the
   * bucket's pause.
   */
  async function steered(key?: string): Promise<Seen> {
    const [ofBucket, ofKey] = await Promise.all([
      look(known.policy, undefined),
      key === undefined ? undefined : look(known.policy, key),
    ]);
    const policy = known.read(ofBucket.text);
    const { nowUs, pausedUntilUs } = ofKey ?? ofBucket;
    const isOwn = ofKey === undefined || pausedUntilUs > ofBucket.pausedUntilUs;
    const pausedForMs = isOwn ? orEndless(msUntil(pausedUntilUs, nowUs)) : 0;
    const { generation, source } = ofBucket;
    return { policy, generation, state: stateOf(policy, source, pausedForMs) };
  }

  async function pauseFor(
    action: "pause" | "resume",
    { key, ...byHand }: ConfigureOptions & { readonly key?: string | undefined },
    pausedForMs: number,
  ): Promise<void> {
    const { policy, state: before } = await steered(key);
    const scope = key === undefined ? undefined : steeredScopeOf(`${action}()`, policy, key);
    await steer(action, pausing(scope, before, pausedForMs), byHand);
  }

  async function inverseOf(
    last: KeptBucketChange,
    { since, nowMs, older }: { since: number; nowMs: number; older: readonly KeptBucketChange[] },
  ): Promise<Inverse<SteeredState>> {
    if (last.subject === "budget") return inverseOfGrant(last);
    const { policy: inForce, state: before } = await steered(last.key);
    let planned: PlannedChange;
    let leftMs: number;
    if (last.subject === "policy") {
      leftMs = endOfPolicyBefore(last, older) - nowMs;
      const isOverride = last.before.source === "override" && leftMs > 0;
      planned = putting(
        isOverride ? { policy: known.read(last.before.text), source: "override" } : await beneath(),
        before,
      );
    } else {
      leftMs = pauseLeft(last.before, last, nowMs);
      const { key } = last;
      const scope = key === undefined ? undefined : steeredScopeOf("undo()", inForce, key);
      planned = pausing(scope, before, leftMs);
    }
    const { after } = planned;
    return { before, after, forMs: endOf(leftMs), make: apply(planned, since) };
  }

  /** Returns the policy that applies without an override: the rules' policy, or otherwise the code's policy. */
  async function beneath(): Promise<SetPolicy> {
    const { rules } = await insight.bucket(bucket);
    if (rules !== undefined) return { policy: known.read(rules.text), source: "rules" };
    return { policy: isDeclared ? known.declared : await declaredElsewhere(), source: "code" };
  }

  async function declaredElsewhere(): Promise<Policy> {
    const text = await insight.declared(bucket);
    if (text === undefined) throw unknownPolicy(bucket);
    return known.read(text);
  }

  /** Does not update this process's copy of the policy. Draws update it. */
  async function inForce(key?: string): Promise<InForce> {
    const keys = key === undefined ? [undefined] : [undefined, key];
    const [first, aways] = await Promise.all([
      look(known.policy, key),
      store.readOutages({ bucket, keys }),
    ]);
    const unreachableForMs = Math.max(0, ...aways.map((away) => away?.inMs ?? 0));
    const policy = known.read(first.text);
    const peeked = policy === known.policy ? first : await look(policy, key);
    const { nowUs, wholeAtUs, gapUs, gapUntilUs } = peeked;
    return {
      policy,
      state: describeState(peeked, key, policy, { waitingHere: waiting(), unreachableForMs }),
      wholeInMs: msUntil(wholeAtUs, nowUs),
      spacedForMs: msUntil(gapUntilUs, nowUs),
      gapMs: gapUs / 1_000,
    };
  }

  async function memberState({ name, isDrained, scope }: Member): Promise<MemberState> {
    const { state } = await inForce(scope.key);
    const { coolingForMs, unreachableForMs, rateFactor } = state;
    const limits = state.limits.filter((limit) => limit.scope === "member");
    return { name, drained: isDrained, coolingForMs, unreachableForMs, rateFactor, limits };
  }

  async function expireSeen(override: Override, { generation, state }: Seen): Promise<void> {
    // An operator may just have prolonged the override. Its new log entry is written before the change, so it is
    // visible here. Otherwise the generation differs.
    const facts = await insight.bucket(bucket);
    const current = state.source === "override" ? overrideOf(facts, state.text) : undefined;
    const isOwn = current?.id === override.id;
    if (current !== undefined && !isOwn && current.generation === undefined) {
      // Waits until the newer change is confirmed or too old. If that change is rejected, this override must still end.
      if (facts.nowMs - current.atMs < UNCONFIRMED_MS) return;
    }
    if (isOwn) {
      const byHand = { by: override.by, reason: "its time is over", generation };
      const undoneBy = await steer("expire", putting(await beneath(), state), byHand);
      await log.settle(override.id, { bucket }, insight.amendChange(override, { undoneBy }));
    }
    await insight.endOverride(override);
  }

  return {
    async configure(given, options = {}, where = configuring()) {
      const read = readConfigureOptions(where, options);
      if (given === "code" && read.forMs !== undefined) {
        const remedy = "the policy of rules or code has no end; leave it out";
        throw new InvalidOptionError({ where, option: "forMs", value: read.forMs, remedy });
      }
      assertOpen();
      const isCode = given === "code";
      const { policy: under, state } = await steered();
      const own = isCode ? undefined : compileOver(where, given, under);
      // An undrained member is as the rules or the code say, so no override needs to stay for it.
      const isOfMembers = Object.keys(given).join() === "members" && read.forMs === undefined;
      const without = isCode || isOfMembers ? await beneath() : undefined;
      const isBeneath = own === undefined || own.text === without?.policy.text;
      const set = isBeneath ? without! : ({ policy: own, source: "override" } as const);
      await steer("configure", putting(set, state), read);
    },
    async pause(options) {
      assertNoUndefined("pause()", options);
      const read = oneKey("pause()", readOptional("pause()", PAUSE, options));
      await pauseFor("pause", read, read.forMs ?? Infinity);
    },
    async resume(options) {
      assertNoUndefined("resume()", options);
      await pauseFor("resume", oneKey("resume()", readOptional("resume()", RESUME, options)), 0);
    },
    async hold(key, forMs) {
      const { policy, state } = await steered(key);
      const { pausedForMs: leftMs } = state;
      if (leftMs === Infinity || (forMs > 0 && leftMs >= forMs)) return false;
      const scope = steeredScopeOf("hold()", policy, key);
      await store.steer({ bucket, terms: known.terms, scope, change: pauseOf(forMs) });
      onChange(key);
      return true;
    },
    async undo(options) {
      const asked = readOptional("undo()", UNDO, options);
      assertOpen();
      return log.undo({ bucket, see: () => look(known.policy, undefined), inverseOf }, asked);
    },
    async peek(options) {
      const { key } = oneKey("peek()", readOptional("peek()", ONE_KEY, options));
      return (await inForce(key)).state;
    },
    inForce: () => inForce(),
    async members() {
      const { policy } = await inForce();
      return Promise.all((policy.pool?.members ?? []).map(memberState));
    },
    expire: (override) =>
      makeUnder(undefined, steered, (_since, seen) => expireSeen(override, seen)),
    async recordRestore({ by, reason }, restore) {
      assertOpen();
      const { state } = await steered();
      const what = { bucket, subject: "budget", action: "restore", before: state } as const;
      return log.make({ ...what, after: state, by, reason }, restore);
    },
    isClosed: () => isClosed,
    close() {
      isClosed = true;
    },
  };
}

/** The recorded author of changes without the option `by`. */
export const OF_PROCESS: string = `${hostname()}:${process.pid}`;

function subjectOf(change: StoreChange): "policy" | "pause" {
  return change.do === "configure" ? "policy" : "pause";
}

function putting({ policy, source }: SetPolicy, before: SteeredState): PlannedChange {
  const after = stateOf(policy, source, before.pausedForMs);
  return { policy, change: { do: "configure", source, doesYield: false }, before, after };
}

function pausing(
  scope: LimitedKey | undefined,
  before: SteeredState,
  pausedForMs: number,
): PlannedChange {
  return { scope, change: pauseOf(pausedForMs), before, after: { ...before, pausedForMs } };
}

function pauseOf(pausedForMs: number): StoreChange {
  return { do: "pause", durationUs: pausedForMs === Infinity ? FOREVER_US : pausedForMs * 1_000 };
}

/**
 * Returns the planned end of the policy that applied before a change. The end is computed from the older change that
 * set this policy. Infinity if the policy has no end.
 */
function endOfPolicyBefore(
  { before }: KeptBucketChange,
  older: readonly KeptBucketChange[],
): number {
  const setter = older.find(
    ({ subject, action, failed }) =>
      subject === "policy" && action !== "rules" && failed === undefined,
  );
  if (before.source !== "override" || setter?.after.text !== before.text) return Infinity;
  return setter.forMs === undefined ? Infinity : setter.atMs + setter.forMs;
}

function stateOf(policy: Policy, source: PolicySource, pausedForMs: number): SteeredState {
  return { policy: formatPolicy(policy), text: policy.text, source, pausedForMs };
}

/** @throws {@link InvalidOptionError} when the key has no state. The error says which key to name instead. */
export function steeredScopeOf(where: string, policy: Policy, key: string): LimitedKey {
  const scope = ownScopeOf(policy, key, where);
  if (scope !== undefined) return scope;
  const { key: path, keys } = namedOf(key);
  const option = keys === undefined ? "key" : "keys";
  throw new InvalidOptionError({
    where,
    option,
    value: keys ?? path,
    remedy: steerRemedy(policy, key),
  });
}

function steerRemedy(policy: Policy, key: string): string {
  if (textsOfNamedKeys(key).length > 1) return "name one of the keys: each has its own state";
  const head = scopesOf(policy, key).at(-1);
  if (head !== undefined) {
    return `only its first names have limits: name ${describeValue(decodeKey(head.key))}, which stands for all below it`;
  }
  const isOfLevels = (policy.perKey?.parts.length ?? 0) > 1;
  const lacking = isOfLevels ? "perKey limits for its level" : "the bucket perKey";
  return `a key without limits has no state; give ${lacking}, or leave the key out`;
}
