import * as z from "zod";
import type { RateInput } from "../core/limits/rate.ts";
import type { Limit } from "../core/limits/rule.ts";
import { readOptions, wholeNumber } from "../core/input/options.ts";
import type { Cost } from "../throttle/costs.ts";
import type { CostOfCall, SettleOfCall } from "../throttle/wrap/call-defaults.ts";
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
import { createMeter, type Counting, type Meter } from "./meter.ts";

/** What `bucket()` takes to pace the calls of an LLM API: its limits, and what its calls cost. */
export interface LlmBucket {
  /** As given to the preset; `headroom` and a provider's windows are in them. */
  readonly limits: readonly Limit[];
  /** Estimates what a request takes, from what a function or `fetch` is given. */
  readonly cost: CostOfCall;
  /** Reads what a request took, from what comes back: a response, a result or a stream. */
  readonly settle: SettleOfCall;
  /**
   * The estimate for a request, for a job whose data is something else: `{ cost: preset.estimate(request) }`. It knows
   * nothing of what the bucket has learned. Undefined where the request asks for no tokens. A copy of the preset lacks it.
   */
  readonly estimate: (request: unknown) => Cost | undefined;
}

/** What each preset takes. */
export interface LlmOptions {
  /** Requests per time, as your account has them: `"500/min"`. Defaults to no limit. */
  readonly requests?: RateInput | undefined;
  /**
   * Counts the tokens of a text in place of the estimate by characters, such as `countTokens` of gpt-tokenizer. If it
   * throws, that estimate holds. Either is corrected by what calls of the model are seen to take.
   */
  readonly tokenizer?: CountTokens | undefined;
  /**
   * The part of each limit per minute that is left unused, for calls that arrive late and estimates that are off, from 0
   * to 0.5. Defaults to 0.03, and for Azure to 0.045.
   */
  readonly headroom?: number | undefined;
}

/** What `openai()` takes. */
export interface OpenAiOptions extends LlmOptions {
  /** Tokens per time, of prompts and answers together: `"200000/min"`. Defaults to no limit. */
  readonly tokens?: RateInput | undefined;
  /** Requests each day, which ends at midnight in UTC. Defaults to no limit. */
  readonly requestsPerDay?: number | undefined;
  /** Tokens each day. Defaults to no limit. */
  readonly tokensPerDay?: number | undefined;
  /**
   * What counts as a call's tokens: `"reserved"`, as OpenAI does, the larger of the prompt and of the most that the
   * answer may be; or `"used"`, as most servers with the same API do, what the prompt and the answer took. A request that
   * does not bound its answer counts what it used. Defaults to `"reserved"`.
   */
  readonly counts?: "reserved" | "used" | undefined;
}

/** What `azure()` takes. */
export interface AzureOptions extends LlmOptions {
  /** Tokens per time of the deployment: `"240000/min"`. Defaults to no limit. */
  readonly tokens?: RateInput | undefined;
}

/** What `anthropic()` takes. */
export interface AnthropicOptions extends LlmOptions {
  /** Input tokens per time, without those read from a cache: `"2000000/min"`. Defaults to no limit. */
  readonly input?: RateInput | undefined;
  /** Output tokens per time: `"400000/min"`. Defaults to no limit. */
  readonly output?: RateInput | undefined;
  /** Whether input that is read from a cache counts as well, as it does for some older models. Defaults to false. */
  readonly countsCacheReads?: boolean | undefined;
}

/** What `gemini()` takes. */
export interface GeminiOptions extends LlmOptions {
  /** Input tokens per time, cached or not: `"1000000/min"`. Defaults to no limit. */
  readonly input?: RateInput | undefined;
  /** Requests each day, which ends at midnight in California. Defaults to no limit. */
  readonly requestsPerDay?: number | undefined;
}

/** What `bedrock()` takes. */
export interface BedrockOptions extends LlmOptions {
  /** Tokens per time: `"200000/min"`. Defaults to no limit. */
  readonly tokens?: RateInput | undefined;
  /** Tokens each day, which ends at midnight in UTC. Defaults to no limit. */
  readonly tokensPerDay?: number | undefined;
  /** How many tokens of the quota one token of an answer takes in the end. Defaults to 5 for models of Claude, and to 1 for others. */
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

/** Calls may arrive late by this part of a limit. */
const HEADROOM = 0.03;
/** Azure looks at its requests by the second, or by ten: a late call weighs more. */
const AZURE_HEADROOM = 0.045;

/**
 * A bucket for OpenAI, or a server that speaks like it:
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
 * A bucket for a deployment of Azure OpenAI:
 * `sluice.bucket("gpt", azure({ requests: "600/min", tokens: "100000/min" }))`.
 *
 * @throws {@link InvalidOptionError} when an option can never work, or no limit is given.
 */
export function azure(options: AzureOptions): LlmBucket {
  const where = "azure()";
  const read = readOptions(where, AZURE, options);
  return presetOf(where, { ...read, headroom: read.headroom ?? AZURE_HEADROOM }, reservesSum);
}

/**
 * A bucket for one class of Anthropic's models:
 * `sluice.bucket("claude", anthropic({ requests: "4000/min", input: "2000000/min", output: "400000/min" }))`.
 *
 * @throws {@link InvalidOptionError} when an option can never work, or no limit is given.
 */
export function anthropic(options: AnthropicOptions): LlmBucket {
  const where = "anthropic()";
  const read = readOptions(where, ANTHROPIC, options);
  return presetOf(where, read, countsApart(read.countsCacheReads ?? false));
}

/**
 * A bucket for one model of Gemini:
 * `sluice.bucket("gemini", gemini({ requests: "1000/min", input: "1000000/min", requestsPerDay: 10_000 }))`.
 *
 * @throws {@link InvalidOptionError} when an option can never work, or no limit is given.
 */
export function gemini(options: GeminiOptions): LlmBucket {
  const where = "gemini()";
  const read = readOptions(where, GEMINI, options);
  return presetOf(where, read, countsInput, "America/Los_Angeles");
}

/**
 * A bucket for one model of Amazon Bedrock:
 * `sluice.bucket("bedrock", bedrock({ requests: "200/min", tokens: "200000/min" }))`.
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

/** Meters by what they were made of: a bucket that is declared twice has to get the same functions. */
const meters = new WeakMap<object, Map<string, Meter>>();
const WITHOUT_TOKENIZER = {};
const MOST_METERS = 100;

function presetOf(
  where: string,
  read: LlmOptions & LimitsGiven,
  counting: Counting,
  timeZone = "UTC",
): LlmBucket {
  const { headroom = HEADROOM, tokenizer } = read;
  const limits = limitsOf({ where, headroom, timeZone }, read);
  const made = meters.get(tokenizer ?? WITHOUT_TOKENIZER) ?? new Map<string, Meter>();
  meters.set(tokenizer ?? WITHOUT_TOKENIZER, made);
  const name = JSON.stringify([where, read]);
  const meter =
    made.get(name) ?? createMeter({ counting, units: unitsOf(limits), countTokens: tokenizer });
  made.set(name, meter);
  if (made.size > MOST_METERS) made.delete(made.keys().next().value!);
  const { cost, settle, estimate } = meter;
  const preset = { limits, cost, settle };
  // Not enumerable, so that the preset can be used as a bucket's options.
  Object.defineProperty(preset, "estimate", { value: estimate });
  return Object.freeze(preset) as LlmBucket;
}

/** The units of tokens, and the most that all limits of each let pass at once. */
function unitsOf(limits: readonly Limit[]): ReadonlyMap<string, number> {
  const units = new Map<string, number>();
  for (const { unit, capacity } of limits) {
    if (unit !== "calls") units.set(unit, Math.min(units.get(unit) ?? Infinity, capacity));
  }
  return units;
}
