/**
 * `configure`, `pause`, `resume` and `undo`: what operators change of a bucket while it runs, for all replicas. Each
 * change is noted before it is made, with who made it and what was there before; what came of it is noted after.
 */
import { hostname } from "node:os";
import process from "node:process";
import * as z from "zod";
import { refuseUndefined } from "../../core/input/arguments.ts";
import { reasonOf, describeValue } from "../../core/describe.ts";
import {
  ChangedError,
  ClosedError,
  InvalidOptionError,
  StoreUnavailableError,
} from "../../core/errors.ts";
import { LONGEST_MS, readOptional, readOptions, wholeNumber } from "../../core/input/options.ts";
import { KEY_SHAPE, oneKey } from "../../core/input/key-options.ts";
import { TEXT, WHO_AND_WHY } from "../../core/input/who-and-why.ts";
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
  overrideOf,
  UNCONFIRMED_MS,
  type InsightStore,
  type NewChange,
  type Override,
  type SteeredState,
} from "../../core/stores/insight/store.ts";
import type { Change as StoreChange, LimitedKey, Peeked, PolicySource } from "../../core/store.ts";
import { keyOfText, namedOf, textsOfNamedKeys } from "../../core/key-path.ts";
import { termsOf, unknownPolicy, type BucketContext, type RefreshPolicy } from "../known-policy.ts";
import {
  describeState,
  FOREVER_US,
  msUntil,
  orEndless,
  type BucketState,
  type InForce,
} from "./bucket-state.ts";
import {
  describeChange,
  type BucketChange,
  type ByHand,
  type ConfigureOptions,
  type KeyOptions,
  type PauseOptions,
  type ResumeOptions,
  type UndoOptions,
} from "./facts/changes.ts";
import { endOf, findLastChange, type LastChange } from "./facts/last-change.ts";

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

export interface LiveControlParts extends BucketContext {
  readonly insight: InsightStore;
  readonly waiting: () => number;
  readonly refreshPolicy: RefreshPolicy;
  /** Whether the code of this process says the policy. */
  readonly isDeclared: boolean;
  /** Called after each change of one key, or of all: calls that wait here follow it at once. */
  readonly onChange: (key: string | undefined) => void;
}

/** Live changes of one bucket, for every replica, and a look at it. All of it rejects with {@link ClosedError} after `close`. */
export interface LiveControl {
  readonly configure: (policy: PolicyOptions | "code", options?: ConfigureOptions) => Promise<void>;
  readonly pause: (options?: PauseOptions) => Promise<void>;
  readonly resume: (options?: ResumeOptions) => Promise<void>;
  readonly undo: (options?: UndoOptions) => Promise<BucketChange | undefined>;
  /** Pauses a key without a note in the log of changes; 0 ends that. False if a pause by hand holds it for longer. */
  readonly hold: (key: string, forMs: number) => Promise<boolean>;
  readonly peek: (options?: KeyOptions) => Promise<BucketState>;
  readonly inForce: () => Promise<InForce>;
  /** Puts the rules' or the code's policy in force in place of one whose time is over, unless that has been changed since. */
  readonly expire: (override: Override) => Promise<void>;
  readonly close: () => void;
}

/** A change, and what the store is to do for it. */
interface Steering {
  readonly action: NewChange["action"];
  readonly scope?: LimitedKey | undefined;
  readonly policy?: Policy;
  readonly change: StoreChange;
  readonly before: SteeredState;
  readonly after: SteeredState;
  readonly undoes?: string | undefined;
}

/** A policy, and where it comes from. */
interface SetPolicy {
  readonly policy: Policy;
  readonly source: PolicySource;
}

/** What can be set by hand, as it was in a generation. */
interface Seen {
  readonly policy: Policy;
  readonly generation: number;
  readonly state: SteeredState;
}

/** How often what hangs on a generation is tried: cooldowns change it, too, and come at any time. */
const MOST_TRIES = 5;

export function createLiveControl(parts: LiveControlParts): LiveControl {
  const { store, insight, bucket, known, logger, waiting, refreshPolicy, isDeclared, onChange } =
    parts;
  let isClosed = false;

  /** The store would still answer after a close. */
  function assertOpen(): void {
    if (isClosed) throw new ClosedError(`Bucket "${bucket}"`);
  }

  /** What became of a change stands before it is known whether this could be noted: that is heard in the log. */
  async function noteFate(id: string, ...noting: readonly Promise<void>[]): Promise<void> {
    await Promise.all(noting).catch((error: unknown) => {
      const reason = reasonOf(error);
      logger.warn({ bucket, change: id, reason }, `What became of change ${id} was not noted.`);
    });
  }

  /** Of a change that surely was not made, nothing stays in force either. */
  async function fail(id: string, failed: string, isSure: boolean): Promise<void> {
    const noting = [insight.amendChange({ bucket, id }, { failed })];
    if (isSure) noting.push(insight.endOverride({ bucket, id }));
    await noteFate(id, ...noting);
  }

  async function steer(
    { action, scope, policy, change, before, after, undoes }: Steering,
    { by = OF_PROCESS, reason, generation }: ByHand,
    forMs?: number,
  ): Promise<string> {
    assertOpen();
    const key = scope?.key;
    const subject = change.do === "configure" ? ("policy" as const) : ("pause" as const);
    const noted = { bucket, subject, action, key, by, reason, forMs, before, after, undoes };
    const id = await insight.noteChange(noted);
    const terms = policy === undefined ? known.terms : termsOf(policy, 0);
    const steered = await store
      .steer({ bucket, terms, scope, change, generation })
      .catch(async (error: unknown) => {
        // A reply that was lost may have been of a change that was made.
        await fail(id, reasonOf(error), !(error instanceof StoreUnavailableError));
        throw error;
      });
    if (steered.isStale) {
      const error = new ChangedError({ bucket, since: generation!, ...steered });
      await fail(id, error.message, true);
      throw error;
    }
    if (key === undefined) {
      const made = { id, change: noted, generation: steered.generation };
      await noteFate(id, insight.confirmChange(made));
    }
    onChange(key);
    return id;
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

  /** What can be set by hand, as it is; of a key, its own pause. */
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
    { key, ...byHand }: ByHand & { readonly key?: string | undefined },
    forMs: number | undefined,
  ): Promise<void> {
    const { policy, state: before } = await steered(key);
    const scope = key === undefined ? undefined : steeredScopeOf(`${action}()`, policy, key);
    const pausedForMs = action === "resume" ? 0 : (forMs ?? Infinity);
    const steering = { action, scope, change: pauseOf(pausedForMs), before };
    await steer({ ...steering, after: { ...before, pausedForMs } }, byHand, forMs);
  }

  async function putInForce(
    { action, before, undoes }: Pick<Steering, "action" | "before" | "undoes">,
    { policy, source }: SetPolicy,
    { forMs, ...byHand }: ConfigureOptions,
  ): Promise<string> {
    const change: StoreChange = { do: "configure", source, doesYield: false };
    const after = stateOf(policy, source, before.pausedForMs);
    return steer({ action, policy, change, before, after, undoes }, byHand, forMs);
  }

  async function takeBack(
    { last, policyForMs, pausedForMs }: LastChange,
    { policy: inForce, state: before }: Seen,
    byHand: ByHand,
  ): Promise<string> {
    const { key } = last;
    const undoing = { action: "undo" as const, before, undoes: last.id };
    if (last.subject === "policy") {
      const isOverride = last.before.source === "override" && policyForMs > 0;
      const set: SetPolicy = isOverride
        ? { policy: known.read(last.before.text), source: "override" }
        : await beneath();
      return putInForce(undoing, set, { ...byHand, forMs: endOf(policyForMs) });
    }
    const scope = key === undefined ? undefined : steeredScopeOf("undo()", inForce, key);
    const after = { ...before, pausedForMs };
    const change = pauseOf(pausedForMs);
    return steer({ ...undoing, scope, change, after }, byHand, endOf(pausedForMs));
  }

  async function undoLast(
    id: string | undefined,
    byHand: ByHand,
  ): Promise<BucketChange | undefined> {
    const { generation } = await look(known.policy, undefined);
    const found = await findLastChange(insight, bucket, id);
    if (found === undefined) return undefined;
    const { last } = found;
    const seen = await steered(last.key);
    // If another change comes meanwhile, that is the last one, and stays as it is.
    const undoneBy = await takeBack(found, seen, { generation, ...byHand });
    await noteFate(last.id, insight.amendChange(last, { undoneBy }));
    return describeChange({ ...last, undoneBy });
  }

  /** What holds where nothing was set by hand: the rules' policy, or without one that of the code. */
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

  /** False if the bucket has changed meanwhile. */
  async function expireOnce(override: Override): Promise<boolean> {
    const { generation, state } = await steered();
    // Whoever gave the same policy for longer has noted that before: it is seen here, or the generation is another.
    const facts = await insight.bucket(bucket);
    const current = state.source === "override" ? overrideOf(facts, state.text) : undefined;
    const isOwn = current?.id === override.id;
    if (current !== undefined && !isOwn && current.generation === undefined) {
      // It may still be refused, and then this one is to be ended.
      if (facts.nowMs - current.atMs < UNCONFIRMED_MS) return true;
    }
    if (isOwn) {
      const given = await beneath();
      const byHand = { by: override.by, reason: "its time is over", generation };
      try {
        const undoneBy = await putInForce({ action: "expire", before: state }, given, byHand);
        await noteFate(override.id, insight.amendChange(override, { undoneBy }));
      } catch (error) {
        if (isOtherGeneration(error)) return false;
        throw error;
      }
    }
    await insight.endOverride(override);
    return true;
  }

  return {
    async configure(given, options = {}) {
      const where = `bucket("${bucket}").configure()`;
      const read = readOptions(where, CONFIGURE, options);
      if (given === "code" && read.forMs !== undefined) {
        const remedy = "the policy of rules or code has no end; leave it out";
        throw new InvalidOptionError({ where, option: "forMs", value: read.forMs, remedy });
      }
      assertOpen();
      const isCode = given === "code";
      const { policy: under, state } = await steered();
      const set: SetPolicy = isCode
        ? await beneath()
        : { policy: compileOver(where, given, under), source: "override" };
      await putInForce({ action: "configure", before: state }, set, read);
    },
    async pause(options) {
      refuseUndefined("pause()", options);
      const { forMs, ...others } = oneKey("pause()", readOptional("pause()", PAUSE, options));
      await pauseFor("pause", others, forMs);
    },
    async resume(options) {
      refuseUndefined("resume()", options);
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
      const { id, ...byHand } = readOptional("undo()", UNDO, options);
      assertOpen();
      for (let time = 1; ; time++) {
        try {
          return await undoLast(id, byHand);
        } catch (error) {
          const isOver = byHand.generation !== undefined || time === MOST_TRIES;
          if (isOver || !isOtherGeneration(error)) throw error;
        }
      }
    },
    async peek(options) {
      const { key } = oneKey("peek()", readOptional("peek()", ONE_KEY, options));
      return (await inForce(key)).state;
    },
    inForce: () => inForce(),
    async expire(override) {
      for (let time = 1; time <= MOST_TRIES; time++) {
        if (await expireOnce(override)) return;
      }
    },
    close() {
      isClosed = true;
    },
  };
}

/** Who changes something, unless that is said. */
export const OF_PROCESS: string = `${hostname()}:${process.pid}`;

/** Whether a change was refused since the bucket has changed, by hand or by a cooldown. */
function isOtherGeneration(error: unknown): boolean {
  return error instanceof ChangedError && typeof error.since === "number";
}

function pauseOf(pausedForMs: number): StoreChange {
  return { do: "pause", durationUs: pausedForMs === Infinity ? FOREVER_US : pausedForMs * 1_000 };
}

function stateOf(policy: Policy, source: PolicySource, pausedForMs: number): SteeredState {
  return { policy: formatPolicy(policy), text: policy.text, source, pausedForMs };
}

/** @throws {@link InvalidOptionError} when the key has no state; it says what to name instead. */
function steeredScopeOf(where: string, policy: Policy, key: string): LimitedKey {
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
  if (textsOfNamedKeys(key).length > 1) return "name one of the keys: each has a state of its own";
  const head = scopesOf(policy, key).at(-1);
  if (head !== undefined) {
    return `only its first names have limits: name ${describeValue(keyOfText(head.key))}, which stands for all below it`;
  }
  const isOfLevels = (policy.perKey?.parts.length ?? 0) > 1;
  const lacking = isOfLevels ? "perKey limits for its level" : "the bucket perKey";
  return `a key without limits of its own has no state; give ${lacking}, or leave the key out`;
}
