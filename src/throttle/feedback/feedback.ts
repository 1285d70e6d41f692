import { describeValue, isThenable, ignoreRejection, reasonOf } from "../../core/describe.ts";
import type { Logger } from "../../core/logger.ts";
import { keyLimitsOf } from "../../core/policy/per-key.ts";
import type { Change } from "../../core/store.ts";
import type { Feedback, FeedbackOptions, ReadFeedback } from "../call-options.ts";
import type { Estimate } from "../costs.ts";
import type { BucketContext } from "../known-policy.ts";
import { rememberLast } from "../lru.ts";
import { readAnswer, type Answer } from "./answer.ts";
import { readRemaining } from "./remaining.ts";

/** The call that an answer came to. */
interface Answered {
  readonly key: string | undefined;
  /** The slot that it left on, in ms on the bucket's clock. */
  readonly atMs: number;
  /** @throws {@link CostTooLargeError} when a newer policy could never give as much. */
  readonly estimate: () => Estimate;
}

/** What was heard in what a call came to. */
export interface Heard {
  /** Whether it was taken for a refusal: what that comes to, a cooldown or a cut, is on its way. */
  readonly isRefusal: boolean;
  /** How long the downstream asked to wait, in ms and at most `maxCooldownMs`: `1500`. Undefined if it did not say. */
  readonly askedMs: number | undefined;
}

/** Listens to what calls return and throw, and slows the bucket down for all replicas. */
export interface Listener {
  hear(resultOrError: unknown, call: Answered, read?: ReadFeedback): Heard;
  /** Resolves when all that was heard has been passed on. */
  settled(): Promise<void>;
}

const DEFAULT_COOL_MS = 1_000;
const MAX_COOL_MS = 900_000;
/** A cut leaves so much of the rate, per mille. */
const CUT_TO = 700;
/** After a cooldown the rate grows back in as long as it lasted, within these bounds. */
const [LEAST_RAMP_US, MOST_RAMP_US] = [1_000_000, 10_000_000];
/** Headers are acted upon so often at most, for each key or bucket they are about: each answer carries them. */
const SPACE_EVERY_MS = 200;
/** So many keys are remembered to have been spaced just now. */
const MOST_SPACED = 10_000;
/** Where a key's name would stand; none is empty. */
const OF_ALL = "";
const NOTHING: Heard = Object.freeze({ isRefusal: false, askedMs: undefined });

export function createFeedback(
  parts: BucketContext & { readonly onChange: (key: string | undefined) => void },
  options: FeedbackOptions,
): Listener {
  const { store, bucket, known, logger, onChange } = parts;
  const { maxCooldownMs = MAX_COOL_MS, adaptive, pace } = options;
  const underWay = new Set<Promise<void>>();
  const askOwn = createAskOwn(bucket, logger);
  const spacedAtMs = rememberLast<number>(MOST_SPACED);

  /** The key's own limits were hit, if it has some; who has none is one of all. */
  function scopeOf(key: string | undefined, scope: Feedback["scope"]): string | undefined {
    const hasOwn = keyLimitsOf(known.policy, key).length > 0;
    return hasOwn && scope !== "bucket" ? key : undefined;
  }

  function steer(key: string | undefined, change: Change): void {
    const keyLimits = keyLimitsOf(known.policy, key);
    const steering = store
      .steer({ bucket, terms: known.terms, key, keyLimits, change })
      .then(() => onChange(key))
      .catch((error: unknown) =>
        logger.warn(
          { bucket, reason: reasonOf(error) },
          "A downstream's answer could not be passed on.",
        ),
      )
      .finally(() => underWay.delete(steering));
    underWay.add(steering);
  }

  function cool({ coolMs, scope }: Feedback, { key, atMs }: Answered): void {
    const forUs = Math.round(Math.min(Math.max(coolMs, 0), maxCooldownMs) * 1_000);
    if (!Number.isSafeInteger(forUs)) return;
    const slotUs = Math.round(atMs * 1_000);
    const about = scopeOf(key, scope);
    if (adaptive !== undefined) {
      const floor = Math.ceil(adaptive.floor * 1_000);
      const recoverUs = adaptive.recoverMs * 1_000;
      steer(about, { do: "cut", factor: CUT_TO, floor, recoverUs, forUs, slotUs });
    } else if (forUs > 0) {
      // "Come back at once" is a refusal too, but no cooldown.
      const rampUs = Math.min(Math.max(forUs, LEAST_RAMP_US), MOST_RAMP_US);
      steer(about, { do: "cool", forUs, rampUs, slotUs });
    }
  }

  /** Spaces calls so that what is left lasts until it is reset; never faster than the policy. */
  function space({ headers }: Answer, { key, estimate }: Answered): void {
    const nowMs = performance.now();
    const about = scopeOf(key, undefined);
    const name = about ?? OF_ALL;
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
    const forUs = Math.round(Math.min(forMs, maxCooldownMs) * 1_000);
    const gapUs = Math.min(Math.round(gapMs * 1_000), forUs);
    steer(about, { do: "space", gapUs, forUs });
  }

  function hear(resultOrError: unknown, call: Answered, read: ReadFeedback | undefined): Heard {
    if (read === false) return NOTHING;
    if (read !== undefined) {
      const feedback = askOwn(read, resultOrError);
      if (feedback === undefined) return NOTHING;
      cool(feedback, call);
      return { isRefusal: true, askedMs: feedback.coolMs };
    }
    const answer = readAnswer(resultOrError, Date.now());
    if (answer === undefined) return NOTHING;
    const { isLimited, retryAfterMs } = answer;
    if (isLimited) cool({ coolMs: retryAfterMs ?? DEFAULT_COOL_MS }, call);
    else if (pace === "headers") space(answer, call);
    return { isRefusal: isLimited, askedMs: retryAfterMs };
  }

  return {
    hear(resultOrError, call, read = options.feedback) {
      try {
        const { isRefusal, askedMs } = hear(resultOrError, call, read);
        return { isRefusal, askedMs: askedMs && Math.min(askedMs, maxCooldownMs) };
      } catch (error) {
        // Neither a reader of the user's own nor a newer policy may turn a call that went well into one that failed.
        logger.warn(
          { bucket, reason: reasonOf(error) },
          "An answer could not be read, and tells nothing.",
        );
        return NOTHING;
      }
    },
    async settled() {
      await Promise.all(underWay);
    },
  };
}

/** Asks a function of the user's own what a result or an error tells. */
type AskOwn = (read: ReadFeedback & object, resultOrError: unknown) => Feedback | undefined;

/** Warns of an answer that is none; the logger is one that does not say so with every call. Such an answer tells nothing. */
function createAskOwn(bucket: string, logger: Logger): AskOwn {
  return (read, resultOrError) => {
    const answer: unknown = read(resultOrError);
    if (answer === undefined) return undefined;
    const problem = problemOf(answer);
    if (problem === undefined) return answer as Feedback;
    ignoreRejection(answer);
    logger.warn({ bucket }, `feedback() answered with ${problem}.`);
    return undefined;
  };
}

/** What is wrong with an answer, and what to answer instead. */
function problemOf(answer: unknown): string | undefined {
  if (isThenable(answer)) {
    return "a promise, and tells nothing; let it answer at once with { coolMs } or undefined";
  }
  if (typeof answer !== "object" || answer === null) {
    return `${describeValue(answer)}, and tells nothing; answer with { coolMs } or undefined`;
  }
  const { coolMs, scope } = answer as { readonly coolMs?: unknown; readonly scope?: unknown };
  // Infinity is as long as a cooldown can be; NaN is no time.
  if (typeof coolMs !== "number" || !(coolMs >= 0)) {
    return `a coolMs of ${describeValue(coolMs)}, and tells nothing; answer with how many ms to cool down, 0 or more, or with undefined`;
  }
  if (scope === undefined || scope === "bucket" || scope === "key") return undefined;
  return `a scope of ${describeValue(scope)}, and tells nothing; answer with "bucket" or "key", or leave it out`;
}
