/**
 * Limits as data, as a file contains them: the arguments of the functions of `limit-makers.ts`, by the name of the
 * kind.
 */
import * as z from "zod";
import { InvalidOptionError } from "../errors.ts";
import type { Align } from "../limits/calendar-days.ts";
import type { RateInput } from "../limits/rate.ts";
import type { Limit } from "../limits/rule.ts";
import { LONGEST_MS, UNIT, wholeNumber } from "../input/options.ts";
import {
  concurrency,
  fixedWindow,
  leakyBucket,
  slidingLog,
  slidingWindow,
  tokenBucket,
} from "./limit-makers.ts";

/** One limit in a file. A text is the rate of a leaky bucket. */
export type LimitData =
  | string
  | {
      readonly kind: "leaky-bucket";
      readonly rate: RateInput;
      readonly burst?: number | undefined;
      readonly unit?: string | undefined;
      readonly shadow?: boolean | undefined;
    }
  | {
      readonly kind: "token-bucket";
      readonly refill: RateInput;
      readonly capacity: number;
      readonly unit?: string | undefined;
      readonly shadow?: boolean | undefined;
    }
  | {
      readonly kind: "sliding-log" | "sliding-window";
      readonly max: number;
      readonly per: string;
      readonly unit?: string | undefined;
      readonly shadow?: boolean | undefined;
    }
  | {
      readonly kind: "fixed-window";
      readonly max: number;
      readonly per: string;
      readonly unit?: string | undefined;
      readonly align?: "epoch" | Align | undefined;
      readonly shadow?: boolean | undefined;
    }
  | { readonly kind: "concurrency"; readonly max: number; readonly leaseMs?: number | undefined };

const MOST = 1_000_000_000;
const RATE_ERROR = { error: "give a rate such as 100/s, 60/min, 5000/h or 1/2s" };
const TIME_ERROR = { error: "give a time such as 1s, 5min or 1d" };

/**
 * The schemas of limits. They are created on each call, so that a process without a rules file does not pay for them.
 *
 * @internal
 */
export function limitSchemas(): {
  readonly rate: z.ZodType<RateInput>;
  readonly units: z.ZodType<number>;
  readonly shadow: z.ZodType<boolean | undefined>;
  readonly limit: z.ZodType<LimitData>;
} {
  const rate = z
    .union(
      [z.string(), z.strictObject({ calls: wholeNumber(1, MOST, "calls"), per: z.string() })],
      RATE_ERROR,
    )
    .describe("How fast: 100/s, 60/min, 5000/h, 1/2s, or { calls, per }.");
  const per = z.string(TIME_ERROR).describe("How long the window is: 1s, 5min, 1d.");
  const unit = UNIT.optional().describe("What it counts: calls unless named.");
  const units = wholeNumber(1, MOST, "units");
  const shadow = z
    .boolean({ error: "give true or false" })
    .optional()
    .describe("Whether it only counts which calls it would have held back.");
  const beside = { unit, shadow };
  const limit = z
    .union([
      z.string().describe("A leaky bucket by its rate: 500/min."),
      z.discriminatedUnion("kind", [
        z.strictObject({
          kind: z.literal("leaky-bucket"),
          rate,
          burst: units.optional(),
          ...beside,
        }),
        z.strictObject({
          kind: z.literal("token-bucket"),
          refill: rate,
          capacity: units,
          ...beside,
        }),
        z.strictObject({ kind: z.literal("sliding-log"), max: units, per, ...beside }),
        z.strictObject({ kind: z.literal("sliding-window"), max: units, per, ...beside }),
        z.strictObject({
          kind: z.literal("fixed-window"),
          max: units,
          per,
          ...beside,
          align: z
            .union([
              z.literal("epoch"),
              z.strictObject({ at: z.string(), timeZone: z.string() }).describe("A local time."),
            ])
            .optional(),
        }),
        z.strictObject({
          kind: z.literal("concurrency"),
          max: wholeNumber(1, 1_000_000, "calls"),
          leaseMs: wholeNumber(1_000, LONGEST_MS, "milliseconds").optional(),
        }),
      ]),
    ])
    .describe("One limit.");
  return { rate, units, shadow, limit };
}

const KINDS =
  "leaky-bucket, token-bucket, sliding-log, sliding-window, fixed-window or concurrency";

/** @throws {@link InvalidOptionError} when the limit can never work. */
export function limitOf(given: LimitData): Limit {
  if (typeof given === "string") return leakyBucket(given as "1/s");
  switch (given.kind) {
    case "leaky-bucket": {
      const { kind: _kind, rate, ...others } = given;
      return leakyBucket(rate as "1/s", others);
    }
    case "token-bucket": {
      const { kind: _kind, refill, ...others } = given;
      return tokenBucket({ ...others, refill: refill as "1/s" });
    }
    case "sliding-log":
    case "sliding-window": {
      const { kind, max, per, ...others } = given;
      const make = kind === "sliding-log" ? slidingLog : slidingWindow;
      return make(max, per as "1s", others);
    }
    case "fixed-window": {
      const { kind: _kind, max, per, align, ...others } = given;
      return fixedWindow(max, per as "1s", { ...others, align: align as Align | "epoch" });
    }
    case "concurrency": {
      const { kind: _kind, max, ...others } = given;
      return concurrency(max, others);
    }
    default: {
      const { kind: value } = given as { readonly kind?: unknown };
      throw new InvalidOptionError({ where: "", option: "kind", value, remedy: `give ${KINDS}` });
    }
  }
}
