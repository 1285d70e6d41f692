/**
 * What calls return and throw, read for a whole bucket: here a 429 becomes a cooldown (`cool`), or a cut of the rate
 * with `adaptive`, and with `pace: "headers"` a low quota becomes a distance between calls (`space`). Each is a change
 * of the bucket in the store, and so holds for all replicas; `core/draw/steer.ts` says what the store makes of it.
 */
import { describeValue, isThenable, ignoreRejection, reasonOf } from "../../core/describe.ts";
import { keyLimitsOf } from "../../core/policy/per-key.ts";
import type { Change } from "../../core/store.ts";
import type { Feedback, FeedbackOptions, ReadFeedback } from "../call-options.ts";
import type { Estimate } from "../costs.ts";
import type { BucketContext } from "../known-policy.ts";
import { createLru } from "../lru.ts";
import { readAnswer, type Answer } from "./answer.ts";
import { readRemaining } from "./remaining.ts";

/** The call whose result or error is read. */
interface AnsweredCall {
  readonly key: string | undefined;
  /** The slot that it left on, in ms on the bucket's clock. */
  readonly atMs: number;
  /** @throws {@link CostTooLargeError} when a newer policy could never give as much. */
  readonly estimate: () => Estimate;
}

/** What a call's result or error says of the downstream. */
export interface ReportedOutcome {
  /** Whether the downstream refused the call; the cooldown or cut that follows is on its way to the store. */
  readonly isRefusal: boolean;
  /** How long the downstream asked to wait, in ms and at most `maxCooldownMs`: `1500`. Undefined if it did not say. */
  readonly askedMs: number | undefined;
}

/** Reads what calls return and throw, and slows the bucket down for all replicas. */
export interface FeedbackReader {
  /** `read` overrides the bucket's own `feedback`. Never throws. */
  readOutcome(resultOrError: unknown, call: AnsweredCall, read?: ReadFeedback): ReportedOutcome;
  /** Resolves when the store has got all changes so far, or could not. */
  settled(): Promise<void>;
}

/** How long a refusal cools that does not say for how long. */
const DEFAULT_COOL_MS = 1_000;
const MAX_COOL_MS = 900_000;
/** What a cut leaves of the rate, per mille. */
const CUT_TO = 700;
/** After a cooldown the rate grows back in as long as it lasted, within these bounds. */
const [LEAST_RAMP_US, MOST_RAMP_US] = [1_000_000, 10_000_000];
/** How often headers may space calls, for each key or bucket: every answer carries them. */
const SPACE_EVERY_MS = 200;
/** For how many keys it is remembered when headers last spaced their calls. */
const MOST_SPACED = 10_000;
/** Stands for all keys where a key's name is expected; no key is empty. */
const ALL_KEYS = "";
const NO_OUTCOME: ReportedOutcome = Object.freeze({ isRefusal: false, askedMs: undefined });

export function createFeedbackReader(
  parts: BucketContext & { readonly onChange: (key: string | undefined, change: Change) => void },
  options: FeedbackOptions,
): FeedbackReader {
  const { store, bucket, known, logger, onChange } = parts;
  const { maxCooldownMs = MAX_COOL_MS, adaptive, pace } = options;
  const underWay = new Set<Promise<void>>();
  const spacedAtMs = createLru<number>(MOST_SPACED);

  function readOutcome(
    resultOrError: unknown,
    call: AnsweredCall,
    read: ReadFeedback | undefined,
  ): ReportedOutcome {
    if (read === false) return NO_OUTCOME;
    if (read !== undefined) {
      const feedback = askUser(read, resultOrError);
      if (feedback === undefined) return NO_OUTCOME;
      cool(feedback, call);
      return { isRefusal: true, askedMs: feedback.coolMs };
    }
    const answer = readAnswer(resultOrError, Date.now());
    if (answer === undefined) return NO_OUTCOME;
    const { isLimited, retryAfterMs } = answer;
    if (isLimited) cool({ coolMs: retryAfterMs ?? DEFAULT_COOL_MS }, call);
    else if (pace === "headers") space(answer, call);
    return { isRefusal: isLimited, askedMs: retryAfterMs };
  }

  /** Reads with the user's own function; what is no feedback is logged and ignored. */
  function askUser(read: ReadFeedback & object, resultOrError: unknown): Feedback | undefined {
    const feedback: unknown = read(resultOrError);
    if (feedback === undefined) return undefined;
    const problem = problemOf(feedback);
    if (problem === undefined) return feedback as Feedback;
    ignoreRejection(feedback);
    logger.warn({ bucket }, `feedback() answered with ${problem}.`);
    return undefined;
  }

  /** Starts nothing for a while; with `adaptive`, cuts the rate instead. */
  function cool({ coolMs, scope }: Feedback, { key, atMs }: AnsweredCall): void {
    const durationUs = Math.round(Math.min(Math.max(coolMs, 0), maxCooldownMs) * 1_000);
    if (!Number.isSafeInteger(durationUs)) return;
    const slotUs = Math.round(atMs * 1_000);
    const limitedKey = limitedKeyOf(key, scope);
    if (adaptive !== undefined) {
      const floor = Math.ceil(adaptive.floor * 1_000);
      const recoverUs = adaptive.recoverMs * 1_000;
      steer(limitedKey, { do: "cut", factor: CUT_TO, floor, recoverUs, durationUs, slotUs });
    } else if (durationUs > 0) {
      // A refusal that says "come back at once" sets no cooldown.
      const rampUs = Math.min(Math.max(durationUs, LEAST_RAMP_US), MOST_RAMP_US);
      steer(limitedKey, { do: "cool", durationUs, rampUs, slotUs });
    }
  }

  /** Spaces calls so that what is left lasts until it is reset; never faster than the policy. */
  function space({ headers }: Answer, { key, estimate }: AnsweredCall): void {
    const nowMs = performance.now();
    const limitedKey = limitedKeyOf(key, undefined);
    const name = limitedKey ?? ALL_KEYS;
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
    const durationUs = Math.round(Math.min(forMs, maxCooldownMs) * 1_000);
    const gapUs = Math.min(Math.round(gapMs * 1_000), durationUs);
    steer(limitedKey, { do: "space", gapUs, durationUs });
  }

  /** The key whose own limits were hit; undefined is the whole bucket, as for a key that has no limits of its own. */
  function limitedKeyOf(key: string | undefined, scope: Feedback["scope"]): string | undefined {
    const hasOwn = keyLimitsOf(known.policy, key).length > 0;
    return hasOwn && scope !== "bucket" ? key : undefined;
  }

  function steer(key: string | undefined, change: Change): void {
    const keyLimits = keyLimitsOf(known.policy, key);
    const steering = store
      .steer({ bucket, terms: known.terms, key, keyLimits, change })
      .then(() => onChange(key, change))
      .catch((error: unknown) =>
        logger.warn(
          { bucket, reason: reasonOf(error) },
          "Could not slow the bucket down as a downstream's answer asks; calls go on at the same rate.",
        ),
      )
      .finally(() => underWay.delete(steering));
    underWay.add(steering);
  }

  return {
    readOutcome(resultOrError, call, read = options.feedback) {
      try {
        const { isRefusal, askedMs } = readOutcome(resultOrError, call, read);
        return { isRefusal, askedMs: askedMs && Math.min(askedMs, maxCooldownMs) };
      } catch (error) {
        // Neither the user's own reader nor a newer policy may make a call fail that went well.
        logger.warn({ bucket, reason: reasonOf(error) }, "Could not read an answer; ignored it.");
        return NO_OUTCOME;
      }
    },
    async settled() {
      await Promise.all(underWay);
    },
  };
}

/** What is wrong with what the user's own function answered, and what to answer instead; undefined if nothing is. */
function problemOf(answer: unknown): string | undefined {
  if (isThenable(answer)) {
    return "a promise, which is ignored; let it answer at once with { coolMs } or undefined";
  }
  if (typeof answer !== "object" || answer === null) {
    return `${describeValue(answer)}, which is ignored; answer with { coolMs } or undefined`;
  }
  const { coolMs, scope } = answer as { readonly coolMs?: unknown; readonly scope?: unknown };
  // Infinity asks for the longest cooldown; NaN is no time.
  if (typeof coolMs !== "number" || !(coolMs >= 0)) {
    return `a coolMs of ${describeValue(coolMs)}, which is ignored; answer with how many ms to cool down, 0 or more, or with undefined`;
  }
  if (scope === undefined || scope === "bucket" || scope === "key") return undefined;
  return `a scope of ${describeValue(scope)}, which is ignored; answer with "bucket" or "key", or leave it out`;
}
