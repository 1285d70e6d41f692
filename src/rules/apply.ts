/**
 * Activates the rules of a file for all processes, and keeps them active. Rules are applied again
 * after Redis has lost its data, after a process died while it applied them, and when code declares
 * a bucket later.
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
import { createReplacementLog, versionOf } from "./replacement-log.ts";
import type { DatedRules } from "./watch.ts";

/** How often a process checks whether its rules are still active, in ms. */
const CHECK_MS = 1_000;
/**
 * How often a process checks while another process is applying rules, or while Redis is
 * unreachable, in ms.
 */
const SOON_MS = 300;
/**
 * How often a process checks whether other processes declare new policies, which the rules must
 * cover, in ms.
 */
const DECLARED_EVERY_MS = 30_000;
/** The delay in ms after which all newly declared buckets are handled together. */
const FIRST_MS = 20;
/** The number of buckets in one batch of changes. Newer rules can take over between two batches. */
const AT_ONCE = 100;
const READ_AT_ONCE = 1_000;

export interface RulesParts {
  readonly insight: InsightStore;
  readonly logger: Logger;
  /**
   * `replica` returns the id of this process in the store. `by` is the name of this process that
   * users see.
   */
  readonly replica: () => string;
  readonly by: string;
  /** Returns the policy that the code of this process declares for a bucket. */
  readonly codeOf: (bucket: string) => Policy | undefined;
  /** Changes a bucket's policy for all processes. An operator's override stays active. */
  readonly steer: (bucket: string, policy: Policy, source: PolicySource) => Promise<void>;
  /**
   * @throws {@link InvalidOptionError} when the rules would store the bucket's keys on a different
   * server than the code does.
   */
  readonly assertSameServers: (where: string, policy: Policy, code: Policy) => void;
}

export interface RulesInUse {
  readonly rules: DatedRules;
  /**
   * Returns the policy that the rules and the code together define for a bucket. Returns undefined
   * if the rules do not mention the bucket, or if they need the code's policy, which is unknown.
   */
  policyOf(where: string, bucket: string, code: Policy | undefined): Policy | undefined;
  replace(rules: DatedRules): void;
  /** Registers that the code of this process has declared a bucket. */
  noteDeclared(bucket: string): void;
  /**
   * Resolves once these rules or newer rules are active. Rejects if the rules cannot be applied,
   * even if only one of several servers fails.
   */
  settle(): Promise<"done" | "older">;
  /** Starts a check soon. Call it when Redis may have lost its data. */
  check(): void;
  /** Postpones all work until `release()`. Must be called immediately after creation. */
  hold(): void;
  release(): void;
  close(): Promise<void>;
}

type Compiled = ReadonlyMap<string, Policy>;

export function putInForce(first: DatedRules, parts: RulesParts): RulesInUse {
  const { insight, logger, replica, by, codeOf, steer, assertSameServers } = parts;
  let rules = first;
  /** The compiled policies. They are based on the declarations that were known at compile time. */
  let policies: ReadonlyMap<string, Policy> | undefined;
  let codes: ReadonlyMap<string, Policy> = new Map();
  /**
   * The buckets on servers that were unreachable at compile time, and the error of one such server.
   */
  let unread: ReadonlySet<string> = new Set();
  let unreachable: StoreUnavailableError | undefined;
  let policiesAtMs = -Infinity;
  /**
   * True if the rules set no limits for a bucket whose code is unknown. The code may set limits, so
   * such rules are checked more often.
   */
  let hasUnlimited = false;
  /** The policies of all buckets at the time when these rules were last applied completely. */
  let done: { readonly digest: string; readonly policies: ReadonlyMap<string, Policy> } | undefined;
  /** The buckets whose active policy may differ from the compiled one. */
  const pending = new Set<string>();
  /**
   * The digests of this process's own earlier and current rules that were active. A server that was
   * unreachable may still store an earlier digest.
   */
  const ownDigests = new Set<string>();
  const logReplacement = createReplacementLog(logger, ownDigests);
  /** The rules whose queue entries have already been checked. */
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
    if (policy !== undefined && code !== undefined) assertSameServers(where, policy, code);
    return policy;
  }

  /**
   * Runs `use` on batches of buckets, one server after another. Stops when `use` returns false
   * because newer rules exist. Returns the buckets of unreachable servers. Rejects if no server is
   * reachable.
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
        unreachable = error;
        for (const name of its) missed.add(name);
      }
    }
    return missed;
  }

  /**
   * Compiles the rules together with the policies that all processes declare. Buckets whose policy
   * changed become pending.
   */
  async function compile(of: DatedRules): Promise<ReadonlyMap<string, Policy>> {
    const compiled = new Map<string, Policy>();
    const ofCode = new Map<string, Policy>();
    [unreachable, hasUnlimited] = [undefined, false];
    if (lookedAt !== of) await assertNoSenders(of, insight);
    lookedAt = of;
    unread = await eachServer([...of.buckets.keys()], READ_AT_ONCE, async (some) => {
      const declared = await insight.declaredOf(some);
      for (const [index, name] of some.entries()) {
        const text = declared[index];
        const where = `bucket("${name}")`;
        // After Redis has lost its data, the policies that other processes declare are missing
        // until they report again. Until then, the last known policy is used.
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

  /**
   * Stores the compiled policies, and records the changes in the change log. Returns false if newer
   * rules exist.
   */
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

  /**
   * Applies the rules to all buckets except those that already have their policy according to
   * `known`.
   */
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

  /**
   * Removes the rules from buckets that they no longer mention. The code's policy then applies. If
   * that policy is unknown, the last policy stays until code declares one.
   */
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

  /**
   * Returns the policy that the rules and the current code define for a bucket. The code may have
   * been declared after the compilation.
   */
  function policyNow(name: string, compiled: ReadonlyMap<string, Policy>): Policy | undefined {
    const code = codeOf(name);
    return code ? policyOf(`bucket("${name}")`, name, code) : compiled.get(name);
  }

  /**
   * Applies the rules to buckets that code declared after the rules were applied, in this process
   * or another one.
   */
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

  /** Applies a policy to one bucket. Returns false if newer rules exist. */
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
    // Newer rules may have replaced these rules during the compilation.
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
    logReplacement(of, answer);
    verdict = answer.verdict;
    if (answer.verdict === "older") return CHECK_MS;
    ownDigests.add(digest);
    if (answer.verdict === "wait") return SOON_MS;
    if (answer.verdict === "apply") {
      // The server that was unreachable at compile time may be reachable again.
      if (known !== undefined && unreachable !== undefined) compiled = await compileNow(of);
      for (const name of pending) {
        // Buckets that were declared during the compilation stay pending.
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
      // Only rules that do not fit the code are logged here, once. An unreachable Redis is not
      // logged, because callers already get errors about it.
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
    // The timer must not keep the process alive.
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
      // Does the work directly instead of waiting for the timer. Otherwise, a caller that closes
      // after a failure would wait for another attempt.
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
          if (verdict === "done" && unreachable !== undefined) throw unreachable;
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
