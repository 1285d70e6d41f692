/**
 * Puts the rules of a file in force for all processes, and keeps them there: after a Redis that lost all, after a process
 * that died half-way, and where code comes later that the rules are to be put over.
 */
import { setTimeout as delay } from "node:timers/promises";
import { reasonOf } from "../core/describe.ts";
import { StoreUnavailableError } from "../core/errors.ts";
import type { Logger } from "../core/logger.ts";
import { readPolicyElsewhere, type Policy } from "../core/policy/policy.ts";
import type { PolicySource } from "../core/store.ts";
import { settingOf, type RulesAnswer } from "../core/stores/insight/rules.ts";
import type { InsightStore } from "../core/stores/insight/store.ts";
import { policyUnder } from "./compile.ts";
import { noteRuled, type RuledChange } from "./log.ts";
import { assertNoSenders, noteSettings } from "./settings.ts";
import { createTeller, versionOf } from "./tell.ts";
import type { DatedRules } from "./watch.ts";

/** How often a process looks whether its rules are still in force … */
const CHECK_MS = 1_000;
/** … and whether another one is done that is putting them in force, or Redis answers again. */
const SOON_MS = 300;
/** How often it looks whether other processes declare other policies, over which rules are to be put. */
const DECLARED_EVERY_MS = 30_000;
/** Buckets are told of together. */
const FIRST_MS = 20;
/** Buckets that are changed at a time: between two lots, rules of others may come. */
const AT_ONCE = 100;
const READ_AT_ONCE = 1_000;

export interface RulesParts {
  readonly insight: InsightStore;
  readonly logger: Logger;
  /** This process, as the store knows it, and as people do. */
  readonly replica: () => string;
  readonly by: string;
  /** The policy that the code of this process declares. */
  readonly codeOf: (bucket: string) => Policy | undefined;
  /** Changes a bucket for all processes; what was set by hand stays. */
  readonly steer: (bucket: string, policy: Policy, source: PolicySource) => Promise<void>;
  /** @throws {@link InvalidOptionError} when the bucket's keys would be looked for elsewhere than the code does. */
  readonly assertPlace: (where: string, policy: Policy, code: Policy) => void;
}

export interface RulesInUse {
  readonly rules: DatedRules;
  /** What rules make of a bucket; undefined if they say nothing of it, or only what needs the code of it. */
  policyOf(where: string, bucket: string, code: Policy | undefined): Policy | undefined;
  replace(rules: DatedRules): void;
  /** The code of this process has declared a bucket. */
  noteDeclared(bucket: string): void;
  /** Puts them in force and resolves when they are, or newer ones; rejects with what goes wrong, also on one of several servers. */
  settle(): Promise<"done" | "older">;
  /** Redis may have lost all. */
  check(): void;
  /** Called right after they were made: puts nothing in force until `release()`. */
  hold(): void;
  release(): void;
  close(): Promise<void>;
}

type Compiled = ReadonlyMap<string, Policy>;

export function putInForce(first: DatedRules, parts: RulesParts): RulesInUse {
  const { insight, logger, replica, by, codeOf, steer, assertPlace } = parts;
  let rules = first;
  /** What they come to, by the code that was known then. */
  let policies: ReadonlyMap<string, Policy> | undefined;
  let codes: ReadonlyMap<string, Policy> = new Map();
  /** Buckets of servers that were away then, and what such a server answers. */
  let unread: ReadonlySet<string> = new Set();
  let away: StoreUnavailableError | undefined;
  let policiesAtMs = -Infinity;
  /** Whether rules let all calls of a bucket pass of which no code is known: it may have limits, so it is looked for often. */
  let hasUnlimited = false;
  /** What all buckets have, since these rules were done. */
  let done: { readonly digest: string; readonly policies: ReadonlyMap<string, Policy> } | undefined;
  /** Buckets whose policies may be others than those in force. */
  const pending = new Set<string>();
  /** Rules of this process that were in force: a server that was away may still have the ones before the last. */
  const ownDigests = new Set<string>();
  const tellOf = createTeller(logger, ownDigests);
  /** Rules of which the queues were looked up. */
  let lookedAt: DatedRules | undefined;
  let verdict: RulesAnswer["verdict"] | undefined;
  let hasFailed = false;
  let timer: NodeJS.Timeout | undefined;
  let timerAtMs = Infinity;
  let isClosed = false;
  let isHeld = false;
  let working = Promise.resolve();

  function policyOf(where: string, bucket: string, code: Policy | undefined): Policy | undefined {
    const options = rules.buckets.get(bucket);
    if (options === undefined) return undefined;
    const policy = policyUnder(`${where} by the rules of ${rules.file}`, options, code);
    if (policy !== undefined && code !== undefined) assertPlace(where, policy, code);
    return policy;
  }

  /**
   * Does something with some buckets at a time, until that answers false: other rules have come. Answers the buckets of the
   * servers that are away; without any server it rejects.
   */
  async function eachServer(
    names: readonly string[],
    atOnce: number,
    use: (some: readonly string[]) => Promise<boolean>,
  ): Promise<Set<string>> {
    const missed = new Set<string>();
    for (const its of insight.byServer?.(names) ?? [names]) {
      try {
        for (let at = 0; at < its.length; at += atOnce) {
          if (!(await use(its.slice(at, at + atOnce)))) return missed;
        }
      } catch (error) {
        if (!(error instanceof StoreUnavailableError) || insight.byServer === undefined)
          throw error;
        away = error;
        for (const name of its) missed.add(name);
      }
    }
    return missed;
  }

  /** Reads what all processes declare, and what the rules make of that; what has changed is pending then. */
  async function compile(of: DatedRules): Promise<ReadonlyMap<string, Policy>> {
    const compiled = new Map<string, Policy>();
    const ofCode = new Map<string, Policy>();
    [away, hasUnlimited] = [undefined, false];
    if (lookedAt !== of) await assertNoSenders(of, insight);
    lookedAt = of;
    unread = await eachServer([...of.buckets.keys()], READ_AT_ONCE, async (some) => {
      const declared = await insight.declaredOf(some);
      for (const [index, name] of some.entries()) {
        const text = declared[index];
        const where = `bucket("${name}")`;
        // A Redis that lost all does not yet know again what other processes declare.
        const code =
          codeOf(name) ?? (text === undefined ? codes.get(name) : readPolicyElsewhere(where, text));
        const policy = policyOf(where, name, code);
        if (code !== undefined) ofCode.set(name, code);
        if (policy !== undefined) compiled.set(name, policy);
        hasUnlimited ||= code === undefined && policy?.limits.length === 0 && !policy.perKey;
      }
      return true;
    });
    for (const [name, { text }] of compiled) {
      if (policies !== undefined && policies.get(name)?.text !== text) pending.add(name);
    }
    codes = ofCode;
    return compiled;
  }

  function ruled([bucket, policy]: readonly [string, Policy]): Omit<RuledChange, "earlier"> {
    return { bucket, policy, code: codeOf(bucket) ?? codes.get(bucket) };
  }

  /** Notes what rules make of buckets, in the log of changes, too; false if other rules have come. */
  async function note(
    of: DatedRules,
    some: readonly Omit<RuledChange, "earlier">[],
  ): Promise<boolean> {
    const version = versionOf(of);
    const noted = some.map(({ bucket, policy }) => [bucket, policy?.text] as const);
    const earlier = await insight.noteRules({ digest: of.digest, version, policies: noted });
    if (earlier === undefined) return false;
    const changes = some.map((each, at) => ({ ...each, earlier: earlier[at] }));
    await noteRuled(changes, `version ${version} of ${of.file}, by ${by}`, parts);
    return true;
  }

  /** `known`: what buckets have already. */
  async function applyAll(
    of: DatedRules,
    compiled: ReadonlyMap<string, Policy>,
    known?: ReadonlyMap<string, Policy>,
  ): Promise<void> {
    const before = await insight.ruledNames();
    const over = before.filter(
      (name) => settingOf(name) === undefined && !compiled.has(name) && !unread.has(name),
    );
    const earlier = before.filter((name) => settingOf(name) !== undefined);
    const settings = [...new Set([...of.settings.keys(), ...earlier])];
    let isOvertaken = false;
    const unlessOvertaken = async (going: Promise<boolean>): Promise<boolean> => {
      isOvertaken = !(await going);
      return !isOvertaken;
    };
    const unnoted = await eachServer(settings, AT_ONCE, (names) =>
      unlessOvertaken(noteSettings(of, names, parts)),
    );
    if (isOvertaken) return;
    const unchanged = await eachServer([...compiled.keys()], AT_ONCE, (names) =>
      unlessOvertaken(applySome(of, names, { compiled, known })),
    );
    if (isOvertaken) return;
    const unended = await eachServer(over, AT_ONCE, (names) => unlessOvertaken(endFor(of, names)));
    if (isOvertaken) return;
    await insight.rulesApplied(of, new Set([...unread, ...unnoted, ...unchanged, ...unended]));
  }

  async function applySome(
    of: DatedRules,
    names: readonly string[],
    { compiled, known }: { readonly compiled: Compiled; readonly known: Compiled | undefined },
  ): Promise<boolean> {
    const some = names.map((name) => [name, compiled.get(name)!] as const);
    if (!(await note(of, some.map(ruled)))) return false;
    const changed = some.filter(([name, { text }]) => known?.get(name)?.text !== text);
    await Promise.all(changed.map(([name, policy]) => steer(name, policy, "rules")));
    return true;
  }

  /** Rules no longer say anything of these: the code's policy holds; without one, the last holds until some code comes. */
  async function endFor(of: DatedRules, names: readonly string[]): Promise<boolean> {
    const declared = await insight.declaredOf(names);
    const reading = names.map(async (name, at) => {
      const text = declared[at] ?? (await insight.bucket(name)).rules?.text;
      return codeOf(name) ?? (text && readPolicyElsewhere(`bucket("${name}")`, text));
    });
    const policies = (await Promise.all(reading)).map((policy) => policy || undefined);
    const ended = names.map((bucket, at) => ({ bucket, policy: undefined, code: policies[at] }));
    if (!(await note(of, ended))) return false;
    const steering = names.map(async (name, at) => {
      const policy = policies[at];
      if (policy) await steer(name, policy, "code");
    });
    await Promise.all(steering);
    return true;
  }

  /** What rules make of a bucket by the code of now: it may have come after they were compiled. */
  function policyNow(name: string, compiled: ReadonlyMap<string, Policy>): Policy | undefined {
    const code = codeOf(name);
    return code ? policyOf(`bucket("${name}")`, name, code) : compiled.get(name);
  }

  /** Buckets whose code came later than the rules, here or elsewhere. */
  async function applyPending(
    of: DatedRules,
    compiled: ReadonlyMap<string, Policy>,
  ): Promise<void> {
    for (const name of pending) {
      pending.delete(name);
      try {
        if (!(await applyOne(of, name, policyNow(name, compiled)))) return;
      } catch (error) {
        pending.add(name);
        throw error;
      }
    }
  }

  /** Whether no other rules have come. */
  async function applyOne(of: DatedRules, name: string, policy?: Policy): Promise<boolean> {
    if (policy === undefined) return true;
    const { rules: noted } = await insight.bucket(name);
    if (noted?.text === policy.text) return true;
    if (!(await note(of, [ruled([name, policy])]))) return false;
    await steer(name, policy, "rules");
    return true;
  }

  async function compileNow(of: DatedRules): Promise<Compiled> {
    const compiled = await compile(of);
    // Others may have come meanwhile.
    if (of === rules) policies = compiled;
    policiesAtMs = performance.now();
    return compiled;
  }

  async function work(): Promise<number> {
    const of = rules;
    const isOld = performance.now() > policiesAtMs + (hasUnlimited ? CHECK_MS : DECLARED_EVERY_MS);
    const known = isOld ? undefined : policies;
    let compiled = known ?? (await compileNow(of));
    const { file, digest, changedAtMs } = of;
    const answer = await insight.offerRules({
      version: versionOf(of),
      changedAtMs,
      digest,
      file,
      by,
      replica: replica(),
    });
    tellOf(of, answer);
    verdict = answer.verdict;
    if (answer.verdict === "older") return CHECK_MS;
    ownDigests.add(digest);
    if (answer.verdict === "wait") return SOON_MS;
    if (answer.verdict === "apply") {
      // A server that was away is back.
      if (known !== undefined && away !== undefined) compiled = await compileNow(of);
      for (const name of pending) {
        // What was declared while the rules were compiled stays.
        if (policyNow(name, compiled)?.text === compiled.get(name)?.text) pending.delete(name);
      }
      const { before } = answer;
      const isNext =
        before !== undefined && before.digest !== digest && before.digest === done?.digest;
      await applyAll(of, compiled, isNext ? done?.policies : undefined);
    } else {
      await applyPending(of, compiled);
      done = { digest, policies: compiled };
    }
    return of === rules ? CHECK_MS : FIRST_MS;
  }

  async function tryToWork(): Promise<number> {
    try {
      const inMs = await work();
      hasFailed = false;
      return inMs;
    } catch (error) {
      // Who draws hears of a Redis that does not answer; a file that does not fit the code is heard of here, once.
      if (!hasFailed && !isClosed && !(error instanceof StoreUnavailableError)) {
        hasFailed = true;
        const reason = reasonOf(error);
        logger.error({ file: rules.file, reason }, `The rules were not put in force: ${reason}`);
      }
      return error instanceof StoreUnavailableError ? SOON_MS : CHECK_MS;
    }
  }

  function wait(ms: number): void {
    if (isClosed || isHeld || timerAtMs <= performance.now() + ms) return;
    clearTimeout(timer);
    timerAtMs = performance.now() + ms;
    timer = setTimeout(() => {
      timerAtMs = Infinity;
      working = working.then(tryToWork).then(wait);
    }, ms);
    // Rules keep no process alive.
    timer.unref();
  }

  wait(0);
  return {
    get rules() {
      return rules;
    },
    policyOf,
    replace(newer) {
      rules = newer;
      policies = undefined;
      hasFailed = false;
      wait(0);
    },
    noteDeclared(bucket) {
      if (!rules.buckets.has(bucket)) return;
      pending.add(bucket);
      wait(FIRST_MS);
    },
    async settle() {
      // It works itself: whoever closes after its failure would wait for another try.
      clearTimeout(timer);
      timerAtMs = Infinity;
      try {
        for (;;) {
          const run = working.then(work);
          working = run.then(
            () => undefined,
            () => undefined,
          );
          await run;
          if (verdict === "done" && away !== undefined) throw away;
          if (verdict === "done" || verdict === "older") return verdict;
          await delay(verdict === "wait" ? SOON_MS : 0);
        }
      } finally {
        wait(CHECK_MS);
      }
    },
    check: () => wait(0),
    hold() {
      isHeld = true;
      clearTimeout(timer);
      timerAtMs = Infinity;
    },
    release() {
      isHeld = false;
      wait(0);
    },
    async close() {
      isClosed = true;
      clearTimeout(timer);
      await working;
    },
  };
}
