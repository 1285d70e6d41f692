import * as z from "zod";
import { LONGEST_MS, wholeNumber } from "../core/options.ts";

/** What one answer of a downstream tells. */
export interface Feedback {
  /** How long nothing may start, in ms. */
  readonly coolMs: number;
  /** Whom it is about. Defaults to the key, if keys have limits of their own, else the bucket. */
  readonly scope?: "bucket" | "key" | undefined;
}

/**
 * Reads what a call returned or threw: how long to cool down, undefined if it tells nothing.
 * `false` listens to nothing.
 */
export type ReadFeedback = false | ((resultOrError: unknown) => Feedback | undefined);

/** How a bucket listens to its downstream. */
export interface FeedbackOptions {
  /** Instead of reading 429 and 503 from what calls return and throw. */
  readonly feedback?: ReadFeedback | undefined;
  /** The longest cooldown that an answer can set. Defaults to 900,000 ms. */
  readonly maxCooldownMs?: number | undefined;
  /** Cuts the rate with each refusal, and grows it back. Defaults to off. */
  readonly adaptive?: AdaptiveOptions | undefined;
  /** `"headers"` slows down before the wall, by what answers say is left. Defaults to off. */
  readonly pace?: "headers" | undefined;
}

export interface AdaptiveOptions {
  /** The part of the rate that is never gone below, such as 0.1. */
  readonly floor: number;
  /** How long a rate of nothing would take to grow back to the whole, such as 60,000 ms. */
  readonly recoverMs: number;
}

const PART = { error: "give a part of the rate, from 0.01 to 1" };

/** @internal */
export const FEEDBACK: z.ZodType<ReadFeedback> = z.custom<ReadFeedback>(
  (value) => value === false || typeof value === "function",
  { error: "give false, or a function of what calls return and throw" },
);

/**
 * The part of what `bucket()` takes that is about answers.
 *
 * @internal
 */
export const FEEDBACK_SHAPE: {
  feedback: z.ZodOptional<z.ZodType<ReadFeedback>>;
  maxCooldownMs: z.ZodOptional<z.ZodType<number>>;
  adaptive: z.ZodOptional<z.ZodType<AdaptiveOptions>>;
  pace: z.ZodOptional<z.ZodType<"headers">>;
} = {
  feedback: FEEDBACK.optional(),
  maxCooldownMs: wholeNumber(1, LONGEST_MS, "milliseconds").optional(),
  adaptive: z
    .strictObject(
      {
        floor: z.number(PART).min(0.01, PART).max(1, PART),
        recoverMs: wholeNumber(100, LONGEST_MS, "milliseconds"),
      },
      {
        error: (issue) =>
          issue.code === "invalid_type" ? "give { floor: 0.1, recoverMs: 60_000 }" : undefined,
      },
    )
    .optional(),
  pace: z.literal("headers", { error: 'give "headers"' }).optional(),
};
