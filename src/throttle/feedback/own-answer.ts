import { describeValue, isThenable, letGo } from "../../core/describe.ts";
import type { Logger } from "../../core/logger.ts";
import type { Feedback, ReadFeedback } from "../feedback-options.ts";

/** Asks a function of the user's own what a result or an error tells. */
export type AskOwn = (read: ReadFeedback & object, resultOrError: unknown) => Feedback | undefined;

/** Warns of an answer that is none; the logger is one that does not say so with every call. Such an answer tells nothing. */
export function createAskOwn(bucket: string, logger: Logger): AskOwn {
  return (read, resultOrError) => {
    const answer: unknown = read(resultOrError);
    if (answer === undefined) return undefined;
    const problem = problemOf(answer);
    if (problem === undefined) return answer as Feedback;
    letGo(answer);
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
