import * as z from "zod";
import type { RateInput } from "../../core/limits/rate.ts";
import type { Limit } from "../../core/limits/rule.ts";
import { readOptions, wholeNumber } from "../../core/input/options.ts";
import type { Cost } from "../../throttle/costs.ts";
import type { CostOfCall, SettleOfCall } from "../../throttle/wrap/call-defaults.ts";
import {
  burns,
  countsApart,
  countsInput,
  countsUsed,
  reservesLarger,
  reservesSum,
} from "./counting.ts";
import type { CountTokens } from "./estimate.ts";
import { limitsOf, type LimitsGiven } from "./limits.ts";
import type { PriceOfCall } from "./usage.ts";
import { createMeter, type Counting, type Meter } from "./meter.ts";

/**
 * The result of a preset: options for `bucket()` that pace calls to an LLM API. They contain the
 * limits and the cost of calls.
 */
export interface LlmBucket {
  /**
   * The limits from the options of the preset, adjusted for `headroom` and the provider's windows.
   */
  readonly limits: readonly Limit[];
  /** Estimates the tokens of a request from the arguments of a function or of `fetch`. */
  readonly cost: CostOfCall;
  /**
   * Reads the tokens that a call used from its result, which is a response, an object or a stream.
   */
  readonly settle: SettleOfCall;
  /**
   * Estimates the cost of a request. Use it for a job whose data is not the request itself: `{
   * cost: preset.estimate(request) }`. The estimate does not use what the bucket has learned.
   * Returns undefined if the request uses no tokens. A copy of the preset lacks this method.
   */
  readonly estimate: (request: unknown) => Cost | undefined;
}

/** The options that all presets have in common. */
export interface LlmOptions {
  /** The requests per time that your account allows: `"500/min"`. Defaults to no limit. */
  readonly requests?: RateInput | undefined;
  /**
   * A function that counts the tokens of a text, such as `countTokens` of gpt-tokenizer. If the
   * function throws, the built-in estimate is used. After each call, the bucket replaces the count
   * with the usage in the response. Defaults to an estimate by characters.
   */
  readonly tokenizer?: CountTokens | undefined;
  /**
   * The unused part of each per-minute limit, from 0 to 0.5. This headroom covers calls that arrive
   * late and estimates that are too low. Defaults to 0.03, and for Azure to 0.045.
   */
  readonly headroom?: number | undefined;
  /**
   * Computes the price of a call from its model and its tokens, for a budget of the bucket. Before the call, it receives
   * the expected tokens; the answer's tokens then replace the estimate. `priceOf()` makes such a function from a table.
   */
  readonly price?: PriceOfCall | undefined;
}

/** The options of `openai()`. */
export interface OpenAiOptions extends LlmOptions {
  /**
   * The tokens per time that your account allows, for prompts and answers together: `"200000/min"`.
   * Defaults to no limit.
   */
  readonly tokens?: RateInput | undefined;
  /**
   * The requests per day that your account allows. A day ends at midnight UTC. Defaults to no
   * limit.
   */
  readonly requestsPerDay?: number | undefined;
  /**
   * The tokens per day that your account allows. A day ends at midnight UTC. Defaults to no limit.
   */
  readonly tokensPerDay?: number | undefined;
  /**
   * How the server counts the tokens of a call. `"reserved"` counts the larger of the prompt and
   * the maximum answer, as OpenAI does. `"used"` counts the actual prompt and answer, as most
   * servers with the same API do. For a request without an output limit, the used tokens always
   * count. Defaults to `"reserved"`.
   */
  readonly counts?: "reserved" | "used" | undefined;
}

/** The options of `azure()`. */
export interface AzureOptions extends LlmOptions {
  /** The tokens per time that the deployment allows: `"240000/min"`. Defaults to no limit. */
  readonly tokens?: RateInput | undefined;
}

/** The options of `anthropic()`. */
export interface AnthropicOptions extends LlmOptions {
  /**
   * The input tokens per time that your account allows, without cache reads: `"2000000/min"`.
   * Defaults to no limit.
   */
  readonly input?: RateInput | undefined;
  /** The output tokens per time that your account allows: `"400000/min"`. Defaults to no limit. */
  readonly output?: RateInput | undefined;
  /**
   * Whether cache reads also count as input, as they do for some older models. Defaults to false.
   */
  readonly countsCacheReads?: boolean | undefined;
}

/** The options of `gemini()`. */
export interface GeminiOptions extends LlmOptions {
  /**
   * The input tokens per time that your account allows, cached or not: `"1000000/min"`. Defaults to
   * no limit.
   */
  readonly input?: RateInput | undefined;
  /**
   * The requests per day that your account allows. A day ends at midnight in California. Defaults
   * to no limit.
   */
  readonly requestsPerDay?: number | undefined;
}

/** The options of `bedrock()`. */
export interface BedrockOptions extends LlmOptions {
  /** The tokens per time that your account allows: `"200000/min"`. Defaults to no limit. */
  readonly tokens?: RateInput | undefined;
  /**
   * The tokens per day that your account allows. A day ends at midnight UTC. Defaults to no limit.
   */
  readonly tokensPerDay?: number | undefined;
  /**
   * The burndown rate: how many tokens of the quota each output token uses in the end. Defaults to
   * 5 for Claude models, and to 1 for others.
   */
  readonly burndown?: number | undefined;
}

const HEADROOM_ERROR = { error: "give a part of the limit, from 0 to 0.5" };
const RATE = z.custom<RateInput>().optional();
const DAY = wholeNumber(1, 1_000_000_000, "units each day").optional();
const COMMON = {
  requests: RATE,
  tokenizer: z
    .custom<CountTokens>((value) => typeof value === "function", {
      error:
        "give a function that counts the tokens of a text, such as countTokens of gpt-tokenizer",
    })
    .optional(),
  headroom: z.number(HEADROOM_ERROR).min(0, HEADROOM_ERROR).max(0.5, HEADROOM_ERROR).optional(),
  price: z
    .custom<PriceOfCall>((value) => typeof value === "function", {
      error: "give a function, such as what priceOf() returned",
    })
    .optional(),
};
const OPENAI = z.strictObject({
  ...COMMON,
  tokens: RATE,
  requestsPerDay: DAY,
  tokensPerDay: DAY,
  counts: z.enum(["reserved", "used"], { error: 'give "reserved" or "used"' }).optional(),
});
const AZURE = z.strictObject({ ...COMMON, tokens: RATE });
const ANTHROPIC = z.strictObject({
  ...COMMON,
  input: RATE,
  output: RATE,
  countsCacheReads: z.boolean({ error: "give true or false" }).optional(),
});
const GEMINI = z.strictObject({ ...COMMON, input: RATE, requestsPerDay: DAY });
const BEDROCK = z.strictObject({
  ...COMMON,
  tokens: RATE,
  tokensPerDay: DAY,
  burndown: wholeNumber(1, 100, "tokens").optional(),
});

/** The default unused part of each per-minute limit. It covers calls that arrive late. */
const HEADROOM = 0.03;
/**
 * The default headroom for Azure. Azure checks requests per second or per ten seconds, so a late
 * call has a larger effect.
 */
const AZURE_HEADROOM = 0.045;

/**
 * Returns the options of a bucket for OpenAI, or for a server with the same API:
 * `sluice.bucket("gpt", openai({ requests: "500/min", tokens: "200000/min" }))`.
 *
 * @throws {@link InvalidOptionError} when an option can never work, or no limit is given.
 */
export function openai(options: OpenAiOptions): LlmBucket {
  const where = "openai()";
  const read = readOptions(where, OPENAI, options);
  return presetOf(where, read, read.counts === "used" ? countsUsed : reservesLarger);
}

/**
 * Returns the options of a bucket for a deployment of Azure OpenAI: `sluice.bucket("gpt", azure({
 * requests: "600/min", tokens: "100000/min" }))`.
 *
 * @throws {@link InvalidOptionError} when an option can never work, or no limit is given.
 */
export function azure(options: AzureOptions): LlmBucket {
  const where = "azure()";
  const read = readOptions(where, AZURE, options);
  return presetOf(where, { ...read, headroom: read.headroom ?? AZURE_HEADROOM }, reservesSum);
}

/**
 * Returns the options of a bucket for one class of Anthropic's models: `sluice.bucket("claude",
 * anthropic({ requests: "4000/min", input: "2000000/min", output: "400000/min" }))`.
 *
 * @throws {@link InvalidOptionError} when an option can never work, or no limit is given.
 */
export function anthropic(options: AnthropicOptions): LlmBucket {
  const where = "anthropic()";
  const read = readOptions(where, ANTHROPIC, options);
  return presetOf(where, read, countsApart(read.countsCacheReads ?? false));
}

/**
 * Returns the options of a bucket for one Gemini model: `sluice.bucket("gemini", gemini({ requests:
 * "1000/min", input: "1000000/min", requestsPerDay: 10_000 }))`.
 *
 * @throws {@link InvalidOptionError} when an option can never work, or no limit is given.
 */
export function gemini(options: GeminiOptions): LlmBucket {
  const where = "gemini()";
  const read = readOptions(where, GEMINI, options);
  return presetOf(where, read, countsInput, "America/Los_Angeles");
}

/**
 * Returns the options of a bucket for one Amazon Bedrock model: `sluice.bucket("bedrock", bedrock({
 * requests: "200/min", tokens: "200000/min" }))`.
 *
 * @throws {@link InvalidOptionError} when an option can never work, or no limit is given.
 */
export function bedrock(options: BedrockOptions): LlmBucket {
  const where = "bedrock()";
  const read = readOptions(where, BEDROCK, options);
  const { burndown } = read;
  const counting = burns((model) => burndown ?? (/claude/i.test(model) ? 5 : 1));
  return presetOf(where, read, counting);
}

/** Caches meters by their options, so that a bucket declared twice gets the same functions. */
const meters = new WeakMap<object, Map<string, Meter>>();
const WITHOUT_TOKENIZER = {};
const MOST_METERS = 100;

function presetOf(
  where: string,
  read: LlmOptions & LimitsGiven,
  counting: Counting,
  timeZone = "UTC",
): LlmBucket {
  const { headroom = HEADROOM, tokenizer, price } = read;
  const limits = limitsOf({ where, headroom, timeZone }, read);
  const made = meters.get(tokenizer ?? WITHOUT_TOKENIZER) ?? new Map<string, Meter>();
  meters.set(tokenizer ?? WITHOUT_TOKENIZER, made);
  const name = JSON.stringify([where, read, price && numberOf(price)]);
  const units = unitsOf(limits);
  const meter = made.get(name) ?? createMeter({ counting, units, countTokens: tokenizer, price });
  made.set(name, meter);
  if (made.size > MOST_METERS) made.delete(made.keys().next().value!);
  const { cost, settle, estimate } = meter;
  const preset = { limits, cost, settle };
  // `estimate` is not enumerable, so that the preset can be spread into a bucket's options.
  Object.defineProperty(preset, "estimate", { value: estimate });
  return Object.freeze(preset) as LlmBucket;
}

const numbers = new WeakMap<object, number>();
let lastNumber = 0;

/** Returns a number that identifies a function, which JSON leaves out. */
function numberOf(price: PriceOfCall): number {
  const found = numbers.get(price) ?? (lastNumber += 1);
  numbers.set(price, found);
  return found;
}

/** Returns the token units of the limits, and the most units of each that one call can draw. */
function unitsOf(limits: readonly Limit[]): ReadonlyMap<string, number> {
  const units = new Map<string, number>();
  for (const { unit, capacity } of limits) {
    if (unit !== "calls") units.set(unit, Math.min(units.get(unit) ?? Infinity, capacity));
  }
  return units;
}
