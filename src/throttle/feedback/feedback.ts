/**
 * Turns the results and errors of a bucket's calls into changes of the bucket:
 *
 * - A refusal such as a 429 becomes a cooldown (`cool`), or with `adaptive` a cut of the rate (`cut`).
 * - With `pace: "headers"`, a low quota becomes a minimum time between calls (`space`).
 *
 * The store applies each change for all replicas: see `lua/lib/draw/steer.lua`.
 */
import { types } from "node:util";
import type { Answer, Feedback, QuotaPeriod, ReadFeedback, SlowCause } from "../../core/answer.ts";
import { describeValue, isThenable, ignoreRejection, reasonOf } from "../../core/describe.ts";
import { MOST_LEVELS, namedOf } from "../../core/key-path.ts";
import { scopesOfRejection, type RejectionTarget } from "../../core/policy/per-key.ts";
import type { Change, LimitedKey } from "../../core/store.ts";
import type { FeedbackOptions } from "../call-options.ts";
import type { Estimate } from "../costs.ts";
import type { BucketContext } from "../known-policy.ts";
import { createLru } from "../lru.ts";
import { interpretWithBody, NO_ANSWER, USUAL_MS, type InterpretationWithBody } from "./answer.ts";
import { readRemaining } from "./remaining.ts";

/** The call whose result or error is interpreted. */
interface AnsweredCall {
  readonly key: string | undefined;
  /** The time of the call's slot, in ms on the bucket's clock. */
  readonly atMs: number;
  /** True if the call opened its bucket's breaker. A refusal without a retry time then needs no cooldown. */
  readonly isSpared?: boolean | undefined;
  /** @throws {@link CostTooLargeError} when the cost exceeds the capacity of a limit in a newer policy. */
  readonly estimate: () => Estimate;
}

/** The interpretation of a call's result or error, after the bucket has reacted to it. */
export interface ReportedOutcome {
  /** True if the downstream refused the call. The resulting cooldown or rate cut is already being sent to the store. */
  readonly isRefusal: boolean;
  /**
   * The wait that the downstream asked for, in ms: `1500`. Never longer than the longest cooldown. Undefined if the
   * downstream named no time.
   */
  readonly askedMs: number | undefined;
  /** The bucket's own interpretation. */
  readonly heard: Answer;
  /** The interpretation that applies: `heard`, unless the user's `feedback` function returned another. */
  readonly answer: Answer;
  /**
   * Set in a pool if the call's member gets no calls now and another member does. `"safe"`: the member has not carried
   * out the request, so another member may get it. `"if idempotent"`: the member may have carried it out.
   */
  readonly takeover?: "safe" | "if idempotent" | undefined;
}

/** Interprets the results and errors of calls, and slows the bucket down for all replicas after a refusal. */
export interface FeedbackReader {
  /**
   * Interprets the outcome of one call. `read` replaces the bucket's `feedback`. Returns a promise if a body must be
   * read or the user's function is async. The promise resolves within two seconds. Never throws or rejects.
   */
  readOutcome(
    resultOrError: unknown,
    call: AnsweredCall,
    read?: ReadFeedback,
  ): ReportedOutcome | Promise<ReportedOutcome>;
  /**
   * Starts a cooldown of the bucket, or of one key with its own limits. Defaults to the cause that its downstream is
   * unreachable.
   */
  coolDown(key: string | undefined, coolMs: number, cause?: SlowCause): void;
  /** Resolves when the store has replied to all changes so far, or failed. */
  settled(): Promise<void>;
}

/**
 * The longest cooldown, and the longest cooldown for a used-up quota. The latter is a day plus an hour for daylight
 * saving time.
 */
const [MAX_COOL_MS, MAX_LASTING_MS] = [900_000, 90_000_000];
/**
 * The longest cooldown for repeated refusals that name no retry time. The second value is for an overloaded downstream.
 */
const [MAX_GROWN_MS, MAX_GROWN_OVERLOADED_MS] = [60_000, 8_000];
/** A refusal counts as repeated if it comes within this many cooldown lengths after the last cooldown. */
const REPEATS_WITHIN = 4;
/** The fraction of the rate that a rate cut leaves, in thousandths. */
const [CUT_TO, NO_CUT] = [700, 1_000];
/**
 * The bounds for the time in which the rate grows back after a cooldown. Within these bounds, this takes as long as the
 * cooldown.
 */
const [LEAST_RAMP_US, MOST_RAMP_US] = [1_000_000, 10_000_000];
/** The shortest time between two `space` changes of a key or bucket, because every response may have quota headers. */
const SPACE_EVERY_MS = 200;
/** The most keys for which the last `space` change and the repeated refusals are stored. */
const MOST_KEYS = 10_000;
/** The longest time that the user's async function may take. */
const LONGEST_READ_MS = 1_000;
/** Stands for the whole bucket in place of a key. No real key is empty. */
const ALL_KEYS = "";
const NOTHING = NO_ANSWER.answer;
const NO_OUTCOME: ReportedOutcome = Object.freeze({
  isRefusal: false,
  askedMs: undefined,
  heard: NOTHING,
  answer: NOTHING,
});

/** The interpretation that applies to a call, and the scope that must cool down: the bucket or a key. */
interface Verdict extends RejectionTarget {
  readonly answer: Answer;
  /** Defaults to a refusal. */
  readonly cause?: SlowCause | undefined;
}

export function createFeedbackReader(
  parts: BucketContext & {
    readonly onChange: (key: string | undefined, change: Change, cause: SlowCause) => void;
  },
  options: FeedbackOptions,
): FeedbackReader {
  const { store, bucket, known, logger, onChange } = parts;
  const { maxCooldownMs, adaptive, pace } = options;
  const underWay = new Set<Promise<unknown>>();
  const spacedAtMs = createLru<number>(MOST_KEYS);
  /** The consecutive refusals without a retry time, by key. */
  const repeats = createLru<{ readonly count: number; readonly endsAtMs: number }>(MOST_KEYS);
  const warned = new Set<string>();

  function readOutcome(
    resultOrError: unknown,
    call: AnsweredCall,
    read: ReadFeedback | undefined,
  ): ReportedOutcome | Promise<ReportedOutcome> {
    if (read === false) return NO_OUTCOME;
    const heard = interpretWithBody(resultOrError);
    const judge = (all: InterpretationWithBody): ReportedOutcome | Promise<ReportedOutcome> =>
      read === undefined ? act(all, byDefault(all), call) : ask(read, resultOrError, all, call);
    return heard instanceof Promise ? heard.then(judge) : judge(heard);
  }

  /** Calls the user's `feedback` function. If this function fails, the bucket's own interpretation applies. */
  function ask(
    read: ReadFeedback & object,
    resultOrError: unknown,
    heard: InterpretationWithBody,
    call: AnsweredCall,
  ): ReportedOutcome | Promise<ReportedOutcome> {
    const { answer, body } = heard;
    let given: unknown;
    try {
      const context = { answer, heard: answer, ...namedOf(call.key), bucket, body };
      given = read(resultOrError, context);
    } catch (error) {
      return fallBack(`failed (${reasonOf(error)})`, heard, call);
    }
    if (!isThenable(given)) return judgeGiven(given, heard, call);
    if (isSuccess(resultOrError, answer)) {
      ignoreRejection(given);
      return ignore("a promise, which is ignored; return at once for a successful call", answer);
    }
    return inTime(given).then(
      (value) => judgeGiven(value, heard, call),
      (error: unknown) => fallBack(`failed (${reasonOf(error)})`, heard, call),
    );
  }

  function judgeGiven(
    given: unknown,
    heard: InterpretationWithBody,
    call: AnsweredCall,
  ): ReportedOutcome {
    const { answer } = heard;
    if (given === undefined) return { ...NO_OUTCOME, heard: answer };
    const problem = problemOf(given, known.policy.perKey?.names ?? []);
    if (problem !== undefined) return ignore(problem, answer);
    return act(heard, toVerdict(given as Feedback, answer), call);
  }

  function ignore(problem: string, heard: Answer): ReportedOutcome {
    warnOnce("returned", `returned ${problem}`);
    return { ...NO_OUTCOME, heard };
  }

  function fallBack(
    problem: string,
    heard: InterpretationWithBody,
    call: AnsweredCall,
  ): ReportedOutcome {
    warnOnce("failed", `${problem}; the bucket used its own interpretation`);
    return act(heard, byDefault(heard), call);
  }

  function warnOnce(kind: string, problem: string): void {
    if (warned.has(kind)) return;
    warned.add(kind);
    logger.warn({ bucket }, `feedback() ${problem}. This is logged once.`);
  }

  function act(
    heard: InterpretationWithBody,
    verdict: Verdict,
    call: AnsweredCall,
  ): ReportedOutcome {
    const { answer } = verdict;
    const { refused, stated, afterMs } = answer;
    if (refused && (stated || call.isSpared !== true)) cool(verdict, call);
    else if (!refused) {
      if (repeats.size > 0)
        for (const scope of scopesOfRejection(known.policy, call.key, verdict))
          repeats.delete(scope?.key ?? ALL_KEYS);
      if (pace === "headers") space(heard, call);
    }
    const askedMs =
      stated && afterMs !== undefined ? Math.min(afterMs, longestMs(answer)) : undefined;
    return { isRefusal: refused, askedMs, heard: heard.answer, answer };
  }

  function longestMs({ lasts }: Answer): number {
    return maxCooldownMs ?? (lasts ? MAX_LASTING_MS : MAX_COOL_MS);
  }

  /** Starts a cooldown, or with `adaptive`, cuts the rate. */
  function cool(verdict: Verdict, { key, atMs }: Pick<AnsweredCall, "key" | "atMs">): void {
    for (const scope of scopesOfRejection(known.policy, key, verdict))
      coolScope(verdict, scope, atMs);
  }

  function coolScope(
    { answer, cause }: Verdict,
    scope: LimitedKey | undefined,
    atMs: number,
  ): void {
    const { afterMs, overloaded, lasts } = answer;
    // Without a wait there is no cooldown: waiting would not help this call, and other calls may still pass.
    if (afterMs === undefined) return;
    const coolMs = answer.stated ? afterMs : grown(scope?.key ?? ALL_KEYS, afterMs, overloaded);
    const durationUs = Math.round(Math.min(Math.max(coolMs, 0), longestMs(answer)) * 1_000);
    if (!Number.isSafeInteger(durationUs)) return;
    const slotUs = Math.round(atMs * 1_000);
    if (adaptive !== undefined) {
      const factor = overloaded || lasts ? NO_CUT : CUT_TO;
      const floor = Math.ceil(adaptive.floor * 1_000);
      const recoverUs = adaptive.recoverMs * 1_000;
      steer(scope, { do: "cut", factor, floor, recoverUs, durationUs, slotUs }, cause);
    } else if (durationUs > 0) {
      // A refusal that allows an immediate retry starts no cooldown.
      const rampUs = Math.min(Math.max(durationUs, LEAST_RAMP_US), MOST_RAMP_US);
      steer(scope, { do: "cool", durationUs, rampUs, slotUs }, cause);
    }
  }

  /**
   * Returns the length of the cooldown for a refusal without a retry time. The length doubles with each repeated
   * refusal.
   */
  function grown(name: string, usualMs: number, overloaded: boolean): number {
    const nowMs = performance.now();
    const before = repeats.get(name);
    const longest = Math.max(usualMs, overloaded ? MAX_GROWN_OVERLOADED_MS : MAX_GROWN_MS);
    const lengthOf = (count: number): number => Math.min(usualMs * 2 ** count, longest);
    // Refusals during a cooldown do not count as repeated.
    if (before !== undefined && nowMs < before.endsAtMs) return lengthOf(before.count);
    const isRepeated =
      before !== undefined && nowMs < before.endsAtMs + REPEATS_WITHIN * lengthOf(before.count);
    const count = isRepeated ? Math.min(before.count + 1, 20) : 0;
    repeats.set(name, { count, endsAtMs: nowMs + lengthOf(count) });
    return lengthOf(count);
  }

  /**
   * Spaces calls so that the remaining units of a quota last until the quota resets. Does nothing if the policy is
   * slower than that anyway.
   */
  function space({ headers }: InterpretationWithBody, { key, estimate }: AnsweredCall): void {
    const nowMs = performance.now();
    const scopes = scopesOfRejection(known.policy, key, { scope: undefined });
    const name = scopes.map((scope) => scope?.key ?? ALL_KEYS).join(" ");
    const lastMs = spacedAtMs.get(name) ?? -Infinity;
    if (headers === undefined || nowMs < lastMs + SPACE_EVERY_MS) return;
    const { costOf, stepMs } = estimate();
    let gapMs = 0;
    let forMs = 0;
    for (const { unit, remaining, resetAfterMs } of readRemaining(headers, Date.now())) {
      const calls = remaining / Math.max(1, costOf(unit));
      const each = resetAfterMs / Math.max(calls, 0.5);
      if (costOf(unit) > 0 && each > gapMs) [gapMs, forMs] = [each, resetAfterMs];
    }
    if (gapMs <= stepMs * 1.05) return;
    spacedAtMs.set(name, nowMs);
    const durationUs = Math.round(Math.min(forMs, maxCooldownMs ?? MAX_COOL_MS) * 1_000);
    const gapUs = Math.min(Math.round(gapMs * 1_000), durationUs);
    for (const scope of scopes) steer(scope, { do: "space", gapUs, durationUs });
  }

  function steer(
    scope: LimitedKey | undefined,
    change: Change,
    cause: SlowCause = "refusal",
  ): void {
    const steering = store
      .steer({ bucket, terms: known.terms, scope, change })
      .then(() => onChange(scope?.key, change, cause))
      .catch((error: unknown) =>
        logger.warn(
          { bucket, reason: reasonOf(error) },
          "Could not slow the bucket down as a response demanded; calls continue at the same rate.",
        ),
      )
      .finally(() => underWay.delete(steering));
    underWay.add(steering);
  }

  /**
   * Logs an error instead of throwing it: a successful call must not fail because of the user's function or a newer
   * policy.
   */
  function giveUp(error: unknown): ReportedOutcome {
    logger.warn(
      { bucket, reason: reasonOf(error) },
      "Could not read the feedback in a response; the bucket ignores this response.",
    );
    return NO_OUTCOME;
  }

  return {
    readOutcome(resultOrError, call, read = options.feedback) {
      try {
        const outcome = readOutcome(resultOrError, call, read);
        if (!(outcome instanceof Promise)) return outcome;
        const reading = outcome.catch(giveUp).finally(() => underWay.delete(reading));
        underWay.add(reading);
        return reading;
      } catch (error) {
        return giveUp(error);
      }
    },
    coolDown(key, coolMs, cause = "unreachable") {
      const away = { refused: true, afterMs: coolMs, stated: true, overloaded: true };
      const scope = key === undefined ? "bucket" : "key";
      cool({ answer: { ...NOTHING, ...away }, scope, cause }, { key, atMs: Date.now() });
    },
    async settled() {
      // Interpreting a result may start a change, so the second wait includes these changes.
      await Promise.all(underWay);
      await Promise.all(underWay);
    },
  };
}

function byDefault({ answer }: InterpretationWithBody): Verdict {
  return { answer, scope: undefined };
}

/** Converts the result of the user's `feedback` function to the interpretation that applies. */
function toVerdict(feedback: Feedback, heard: Answer): Verdict {
  if (!("refused" in feedback)) {
    const { coolMs: afterMs, scope, level, unit = heard.unit } = feedback;
    const retry = !heard.refused || heard.retry;
    const changed = { refused: true, afterMs, stated: true, lasts: false, retry, unit };
    return { answer: { ...heard, ...changed }, scope, level };
  }
  const { scope: given, level, ...changed } = feedback;
  const isPeriod = PERIODS.includes(given);
  const afterMs = changed.afterMs ?? heard.afterMs ?? (heard.refused ? undefined : USUAL_MS);
  return {
    answer: {
      ...heard,
      ...changed,
      afterMs,
      stated: heard.stated || afterMs !== heard.afterMs,
      scope: isPeriod || given === undefined ? (given as QuotaPeriod | undefined) : heard.scope,
      // Without a refusal in the response, `heard` has no useful `retry`.
      retry: heard.refused ? (changed.retry ?? heard.retry) : changed.refused,
    },
    scope: isPeriod ? undefined : given,
    level,
  };
}

/**
 * True if a call probably succeeded. The user's function must not be async for such a call, because the result would be
 * delayed.
 */
function isSuccess(resultOrError: unknown, { status, refused }: Answer): boolean {
  if (status !== undefined) return status < 300 && !refused;
  return !refused && !types.isNativeError(resultOrError);
}

/** Returns the result of a promise. Rejects if the promise does not settle in time. */
async function inTime(promise: PromiseLike<unknown>): Promise<unknown> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    const problem = `it took longer than ${LONGEST_READ_MS} ms`;
    timer = setTimeout(() => reject(new Error(problem)), LONGEST_READ_MS);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

const LEVELS: readonly unknown[] = Array.from({ length: MOST_LEVELS }, (_, level) => level);
const PERIODS: readonly unknown[] = ["second", "minute", "hour", "day", "month"];
const REMEDY = "return { coolMs }, the given answer or a changed copy of it, or undefined";

/**
 * Describes the mistake in the result of the user's function, and what to return instead. Undefined if the result is
 * valid.
 */
function problemOf(given: unknown, names: readonly string[]): string | undefined {
  if (typeof given !== "object" || given === null) {
    return `${describeValue(given)}, which is ignored; ${REMEDY}`;
  }
  const { coolMs, refused, afterMs, scope, level, unit } = given as Readonly<
    Record<string, unknown>
  >;
  if (level !== undefined && !LEVELS.includes(level)) {
    return `a level of ${describeValue(level)}, which is ignored; return 0 for the first name of a path, 1 for the second, or leave it out`;
  }
  if (refused !== undefined) {
    if (typeof refused !== "boolean") {
      return `a refused of ${describeValue(refused)}, which is ignored; return true or false`;
    }
    if (afterMs !== undefined && !isDelay(afterMs)) {
      return `an afterMs of ${describeValue(afterMs)}, which is ignored; return the cooldown in ms, 0 or more, or undefined`;
    }
    if (PERIODS.includes(scope)) return undefined;
  } else if (!isDelay(coolMs)) {
    return `a coolMs of ${describeValue(coolMs)}, which is ignored; return the cooldown in ms, 0 or more, or undefined`;
  }
  if (unit !== undefined && typeof unit !== "string") {
    return `a unit of ${describeValue(unit)}, which is ignored; return its name, such as "tokens", or leave it out`;
  }
  const targets: readonly unknown[] = ["bucket", "key", ...names];
  if (scope === undefined || targets.includes(scope)) return undefined;
  const shown = targets.map((target) => `"${String(target)}"`);
  const listed = `${shown.slice(0, -1).join(", ")} or ${shown.at(-1)}`;
  return `a scope of ${describeValue(scope)}, which is ignored; return ${listed}, or leave it out`;
}

/** True for a valid delay. Infinity asks for the longest cooldown, and NaN is invalid. */
function isDelay(ms: unknown): boolean {
  return typeof ms === "number" && ms >= 0;
}
