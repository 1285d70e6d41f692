/**
 * What calls return and throw, read for a whole bucket: here a 429 becomes a cooldown (`cool`), or a cut of the rate
 * with `adaptive`, and with `pace: "headers"` a low quota becomes a distance between calls (`space`). Each is a change
 * of the bucket in the store, and so holds for all replicas; `core/draw/steer.ts` says what the store makes of it.
 */
import { types } from "node:util";
import type { Answer, Feedback, QuotaPeriod, ReadFeedback } from "../../core/answer.ts";
import { describeValue, isThenable, ignoreRejection, reasonOf } from "../../core/describe.ts";
import { MOST_LEVELS, namedOf } from "../../core/key-path.ts";
import { scopesMeant, type Meant } from "../../core/policy/per-key.ts";
import type { Change, LimitedKey } from "../../core/store.ts";
import type { FeedbackOptions } from "../call-options.ts";
import type { Estimate } from "../costs.ts";
import type { BucketContext } from "../known-policy.ts";
import { createLru } from "../lru.ts";
import { NOTHING_HEARD, USUAL_MS } from "./answer.ts";
import { hearAll, type HeardWithBody } from "./read-answer.ts";
import { readRemaining } from "./remaining.ts";

/** The call whose result or error is read. */
interface AnsweredCall {
  readonly key: string | undefined;
  /** The slot that it left on, in ms on the bucket's clock. */
  readonly atMs: number;
  /** Whether its bucket's breaker is open by it, so that a refusal that names no time needs no cooldown. */
  readonly isSpared?: boolean | undefined;
  /** @throws {@link CostTooLargeError} when a newer policy could never give as much. */
  readonly estimate: () => Estimate;
}

/** What a call's result or error says of the downstream. */
export interface ReportedOutcome {
  /** Whether the downstream refused the call; the cooldown or cut that follows is on its way to the store. */
  readonly isRefusal: boolean;
  /** How long the downstream asked to wait, in ms, as far as a cooldown may last: `1500`. Undefined if it did not say. */
  readonly askedMs: number | undefined;
  /** What the bucket made of it by itself. */
  readonly heard: Answer;
  /** What holds: the same, unless a function of the user's own says otherwise. */
  readonly answer: Answer;
}

/** Reads what calls return and throw, and slows the bucket down for all replicas. */
export interface FeedbackReader {
  /**
   * `read` overrides the bucket's own `feedback`. A promise if a body or the user's own function takes time, two
   * seconds at most. Never throws nor rejects.
   */
  readOutcome(
    resultOrError: unknown,
    call: AnsweredCall,
    read?: ReadFeedback,
  ): ReportedOutcome | Promise<ReportedOutcome>;
  /** Starts nothing of the bucket, or of one key with limits of its own, for a while: its downstream is away. */
  coolDown(key: string | undefined, coolMs: number): void;
  /** Resolves when the store has got all changes so far, or could not. */
  settled(): Promise<void>;
}

/** The longest cooldown, unless a quota is used up that is reset later, by a day and an hour of daylight saving time. */
const [MAX_COOL_MS, MAX_LASTING_MS] = [900_000, 90_000_000];
/** How long refusals that name no time may cool as they repeat, and those for want of room. */
const [MAX_GROWN_MS, MAX_GROWN_OVERLOADED_MS] = [60_000, 8_000];
/** A refusal that comes so many times its cooldown after it repeats nothing. */
const REPEATS_WITHIN = 4;
/** What a cut leaves of the rate, per mille. */
const [CUT_TO, NO_CUT] = [700, 1_000];
/** After a cooldown the rate grows back in as long as it lasted, within these bounds. */
const [LEAST_RAMP_US, MOST_RAMP_US] = [1_000_000, 10_000_000];
/** How often headers may space calls, for each key or bucket: every answer carries them. */
const SPACE_EVERY_MS = 200;
/** For how many keys it is remembered when headers last spaced their calls, or how often they were refused. */
const MOST_KEYS = 10_000;
/** How long the user's own function may take. */
const LONGEST_READ_MS = 1_000;
/** Stands for all keys where a key's name is expected; no key is empty. */
const ALL_KEYS = "";
const NOTHING = NOTHING_HEARD.answer;
const NO_OUTCOME: ReportedOutcome = Object.freeze({
  isRefusal: false,
  askedMs: undefined,
  heard: NOTHING,
  answer: NOTHING,
});

/** What holds for a call, and what has to cool down. */
interface Verdict extends Meant {
  readonly answer: Answer;
}

export function createFeedbackReader(
  parts: BucketContext & { readonly onChange: (key: string | undefined, change: Change) => void },
  options: FeedbackOptions,
): FeedbackReader {
  const { store, bucket, known, logger, onChange } = parts;
  const { maxCooldownMs, adaptive, pace } = options;
  const underWay = new Set<Promise<unknown>>();
  const spacedAtMs = createLru<number>(MOST_KEYS);
  /** Refusals in a row that named no time, by key. */
  const repeats = createLru<{ readonly count: number; readonly endsAtMs: number }>(MOST_KEYS);
  const warned = new Set<string>();

  function readOutcome(
    resultOrError: unknown,
    call: AnsweredCall,
    read: ReadFeedback | undefined,
  ): ReportedOutcome | Promise<ReportedOutcome> {
    if (read === false) return NO_OUTCOME;
    const heard = hearAll(resultOrError);
    const judge = (all: HeardWithBody): ReportedOutcome | Promise<ReportedOutcome> =>
      read === undefined ? act(all, byDefault(all), call) : ask(read, resultOrError, all, call);
    return heard instanceof Promise ? heard.then(judge) : judge(heard);
  }

  /** Asks the user's own function; where it fails, what the bucket heard by itself holds. */
  function ask(
    read: ReadFeedback & object,
    resultOrError: unknown,
    heard: HeardWithBody,
    call: AnsweredCall,
  ): ReportedOutcome | Promise<ReportedOutcome> {
    const { answer, body } = heard;
    let given: unknown;
    try {
      given = read(resultOrError, { heard: answer, ...namedOf(call.key), bucket, body });
    } catch (error) {
      return fallBack(`failed (${reasonOf(error)})`, heard, call);
    }
    if (!isThenable(given)) return judgeGiven(given, heard, call);
    if (isSuccess(resultOrError, answer)) {
      ignoreRejection(given);
      return ignore(
        "a promise, which is ignored; let it answer at once where a call went well",
        answer,
      );
    }
    return inTime(given).then(
      (value) => judgeGiven(value, heard, call),
      (error: unknown) => fallBack(`failed (${reasonOf(error)})`, heard, call),
    );
  }

  function judgeGiven(given: unknown, heard: HeardWithBody, call: AnsweredCall): ReportedOutcome {
    const { answer } = heard;
    if (given === undefined) return { ...NO_OUTCOME, heard: answer };
    const problem = problemOf(given, known.policy.perKey?.names ?? []);
    if (problem !== undefined) return ignore(problem, answer);
    return act(heard, toVerdict(given as Feedback, answer), call);
  }

  function ignore(problem: string, heard: Answer): ReportedOutcome {
    warnOnce("answered", `answered with ${problem}`);
    return { ...NO_OUTCOME, heard };
  }

  function fallBack(problem: string, heard: HeardWithBody, call: AnsweredCall): ReportedOutcome {
    warnOnce("failed", `${problem}; what the bucket hears by itself holds`);
    return act(heard, byDefault(heard), call);
  }

  function warnOnce(kind: string, problem: string): void {
    if (warned.has(kind)) return;
    warned.add(kind);
    logger.warn({ bucket }, `feedback() ${problem}. This is said once.`);
  }

  function act(heard: HeardWithBody, verdict: Verdict, call: AnsweredCall): ReportedOutcome {
    const { answer } = verdict;
    const { refused, stated, afterMs } = answer;
    if (refused && (stated || call.isSpared !== true)) cool(verdict, call);
    else if (!refused) {
      if (repeats.size > 0)
        for (const scope of scopesMeant(known.policy, call.key, verdict))
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

  /** Starts nothing for a while; with `adaptive`, cuts the rate instead. */
  function cool(verdict: Verdict, { key, atMs }: Pick<AnsweredCall, "key" | "atMs">): void {
    for (const scope of scopesMeant(known.policy, key, verdict))
      coolScope(verdict.answer, scope, atMs);
  }

  function coolScope(answer: Answer, scope: LimitedKey | undefined, atMs: number): void {
    const { afterMs, overloaded, lasts } = answer;
    // No wait would help: others may still have what this call lacks.
    if (afterMs === undefined) return;
    const coolMs = answer.stated ? afterMs : grown(scope?.key ?? ALL_KEYS, afterMs, overloaded);
    const durationUs = Math.round(Math.min(Math.max(coolMs, 0), longestMs(answer)) * 1_000);
    if (!Number.isSafeInteger(durationUs)) return;
    const slotUs = Math.round(atMs * 1_000);
    if (adaptive !== undefined) {
      const factor = overloaded || lasts ? NO_CUT : CUT_TO;
      const floor = Math.ceil(adaptive.floor * 1_000);
      const recoverUs = adaptive.recoverMs * 1_000;
      steer(scope, { do: "cut", factor, floor, recoverUs, durationUs, slotUs });
    } else if (durationUs > 0) {
      // A refusal that says "come back at once" sets no cooldown.
      const rampUs = Math.min(Math.max(durationUs, LEAST_RAMP_US), MOST_RAMP_US);
      steer(scope, { do: "cool", durationUs, rampUs, slotUs });
    }
  }

  /** How long a refusal cools that names no time: twice as long each time that it repeats. */
  function grown(name: string, usualMs: number, overloaded: boolean): number {
    const nowMs = performance.now();
    const before = repeats.get(name);
    const longest = Math.max(usualMs, overloaded ? MAX_GROWN_OVERLOADED_MS : MAX_GROWN_MS);
    const lengthOf = (count: number): number => Math.min(usualMs * 2 ** count, longest);
    // Refusals of one moment are one.
    if (before !== undefined && nowMs < before.endsAtMs) return lengthOf(before.count);
    const isRepeated =
      before !== undefined && nowMs < before.endsAtMs + REPEATS_WITHIN * lengthOf(before.count);
    const count = isRepeated ? Math.min(before.count + 1, 20) : 0;
    repeats.set(name, { count, endsAtMs: nowMs + lengthOf(count) });
    return lengthOf(count);
  }

  /** Spaces calls so that what is left lasts until it is reset; never faster than the policy. */
  function space({ headers }: HeardWithBody, { key, estimate }: AnsweredCall): void {
    const nowMs = performance.now();
    const scopes = scopesMeant(known.policy, key, { scope: undefined });
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

  function steer(scope: LimitedKey | undefined, change: Change): void {
    const steering = store
      .steer({ bucket, terms: known.terms, scope, change })
      .then(() => onChange(scope?.key, change))
      .catch((error: unknown) =>
        logger.warn(
          { bucket, reason: reasonOf(error) },
          "Could not slow the bucket down as a downstream's answer asks; calls go on at the same rate.",
        ),
      )
      .finally(() => underWay.delete(steering));
    underWay.add(steering);
  }

  /** Neither the user's own reader nor a newer policy may make a call fail that went well. */
  function giveUp(error: unknown): ReportedOutcome {
    logger.warn({ bucket, reason: reasonOf(error) }, "Could not read an answer; ignored it.");
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
    coolDown(key, coolMs) {
      const away = { refused: true, afterMs: coolMs, stated: true, overloaded: true };
      const scope = key === undefined ? "bucket" : "key";
      cool({ answer: { ...NOTHING, ...away }, scope }, { key, atMs: Date.now() });
    },
    async settled() {
      // What is being read may end in a change.
      await Promise.all(underWay);
      await Promise.all(underWay);
    },
  };
}

function byDefault({ answer }: HeardWithBody): Verdict {
  return { answer, scope: undefined };
}

/** What the user's own function answered, as an answer. */
function toVerdict(feedback: Feedback, heard: Answer): Verdict {
  if (!("refused" in feedback)) {
    const { coolMs: afterMs, scope, level, unit = heard.unit } = feedback;
    const retry = !heard.refused || heard.retry;
    const told = { refused: true, afterMs, stated: true, lasts: false, retry, unit };
    return { answer: { ...heard, ...told }, scope, level };
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
      // Where nothing was refused, nothing was to be tried again.
      retry: heard.refused ? (changed.retry ?? heard.retry) : changed.refused,
    },
    scope: isPeriod ? undefined : given,
    level,
  };
}

/** Whether a call went well, as far as is known: its feedback must not take time. */
function isSuccess(resultOrError: unknown, { status, refused }: Answer): boolean {
  if (status !== undefined) return status < 300 && !refused;
  return !refused && !types.isNativeError(resultOrError);
}

/** What a promise comes to, if it does so soon. */
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
const REMEDY = "answer with { coolMs }, with heard or a changed copy of it, or with undefined";

/** What is wrong with what the user's own function answered, and what to answer instead; undefined if nothing is. */
function problemOf(given: unknown, names: readonly string[]): string | undefined {
  if (typeof given !== "object" || given === null) {
    return `${describeValue(given)}, which is ignored; ${REMEDY}`;
  }
  const { coolMs, refused, afterMs, scope, level, unit } = given as Readonly<
    Record<string, unknown>
  >;
  if (level !== undefined && !LEVELS.includes(level)) {
    return `a level of ${describeValue(level)}, which is ignored; answer with 0 for the first name of a path, 1 for the second, or leave it out`;
  }
  if (refused !== undefined) {
    if (typeof refused !== "boolean") {
      return `a refused of ${describeValue(refused)}, which is ignored; answer with true or false`;
    }
    if (afterMs !== undefined && !isDelay(afterMs)) {
      return `an afterMs of ${describeValue(afterMs)}, which is ignored; answer with how many ms to cool down, 0 or more, or with undefined`;
    }
    if (PERIODS.includes(scope)) return undefined;
  } else if (!isDelay(coolMs)) {
    return `a coolMs of ${describeValue(coolMs)}, which is ignored; answer with how many ms to cool down, 0 or more, or with undefined`;
  }
  if (unit !== undefined && typeof unit !== "string") {
    return `a unit of ${describeValue(unit)}, which is ignored; answer with its name, such as "tokens", or leave it out`;
  }
  const targets: readonly unknown[] = ["bucket", "key", ...names];
  if (scope === undefined || targets.includes(scope)) return undefined;
  const shown = targets.map((target) => `"${String(target)}"`);
  const listed = `${shown.slice(0, -1).join(", ")} or ${shown.at(-1)}`;
  return `a scope of ${describeValue(scope)}, which is ignored; answer with ${listed}, or leave it out`;
}

/** Infinity asks for the longest cooldown; NaN is no time. */
function isDelay(ms: unknown): boolean {
  return typeof ms === "number" && ms >= 0;
}
