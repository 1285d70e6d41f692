/**
 * How each provider counts tokens, and what they cost. `docs/guides/calls/llm.md` links each provider's own description.
 */
import * as z from "zod";
import { InvalidOptionError } from "../../core/errors.ts";
import { readOptions } from "../../core/input/options.ts";
import type { Counting, Used } from "./meter.ts";
import type { PriceOfCall } from "./usage.ts";

const withCached = ({ input, cacheRead, cacheWrite }: Used): number =>
  input + cacheRead + cacheWrite;

/**
 * How OpenAI counts tokens: the larger of the prompt and the maximum answer. OpenAI counts once, when it receives the
 * request.
 */
export const reservesLarger: Counting = {
  before: ({ input, output }, { maxOutput, answers }) => ({
    tokens: maxOutput === undefined ? input + output : Math.max(input, maxOutput * answers),
  }),
  after: (used, { maxOutput, answers }) => ({
    tokens:
      maxOutput === undefined
        ? withCached(used) + used.output
        : Math.max(withCached(used), maxOutput * answers),
  }),
};

/** How Azure counts tokens: the prompt plus the maximum answer. Azure counts once, when it receives the request. */
export const reservesSum: Counting = {
  before: ({ input, output }, { maxOutput, answers }) => ({
    tokens: input + (maxOutput === undefined ? output : maxOutput * answers),
  }),
  after: (used, { maxOutput, answers }) => ({
    tokens: withCached(used) + (maxOutput === undefined ? used.output : maxOutput * answers),
  }),
};

/** How servers with the API of OpenAI count tokens if they count only the used tokens. */
export const countsUsed: Counting = {
  before: ({ input, output }) => ({ tokens: input + output }),
  after: (used) => ({ tokens: withCached(used) + used.output }),
};

/** How Anthropic counts tokens: input and output separately. Cache reads count only for some older models. */
export function countsApart(countsCacheReads: boolean): Counting {
  const inputOf = ({ input, cacheRead, cacheWrite }: Used): number =>
    input + cacheWrite + (countsCacheReads ? cacheRead : 0);
  return {
    before: ({ input, cacheRead, output }) => ({
      input: countsCacheReads ? input : input - cacheRead,
      output,
    }),
    after: (used) => ({ input: inputOf(used), output: used.output }),
    sparesCached: !countsCacheReads,
  };
}

/** How Gemini counts tokens: only the input, cached or not. */
export const countsInput: Counting = {
  before: ({ input }) => ({ input }),
  after: (used) => ({ input: withCached(used) }),
};

/**
 * The assumed tokens of an answer if a request to Bedrock sets no maximum. Bedrock itself reserves the longest answer
 * that the model can write.
 */
const BEDROCK_OUTPUT = 4_096;

/**
 * How Bedrock counts tokens. When Bedrock receives a request, it reserves the whole prompt plus the maximum answer. In
 * the end, it counts the prompt without cache reads, plus the answer multiplied by the burndown rate of the model.
 */
export function burns(factorOf: (model: string) => number): Counting {
  return {
    before(
      { input, cacheRead, output, isOutputKnown },
      { model, maxOutput = BEDROCK_OUTPUT, hasOutput },
    ) {
      const reserved = input + (hasOutput ? maxOutput : 0);
      const expected = isOutputKnown ? input - cacheRead + output * factorOf(model) : 0;
      return { tokens: Math.max(reserved, expected) };
    },
    after: ({ input, cacheWrite, output }, { model }) => ({
      tokens: input + cacheWrite + output * factorOf(model),
    }),
    sparesCached: true,
  };
}

/** The price of a million tokens, in any currency. */
export interface TokenPrices {
  /** The price of prompt tokens. */
  readonly input: number;
  /** The price of the tokens of answers. */
  readonly output: number;
  /** The price of prompt tokens that the provider reads from its cache. Defaults to `input`. */
  readonly cacheRead?: number | undefined;
  /** The price of prompt tokens that the provider writes to its cache. Defaults to `input`. */
  readonly cacheWrite?: number | undefined;
}

/** The prices of one model. */
export interface ModelPrices extends TokenPrices {
  /** The factor of all prices for batch requests, such as 0.5. Defaults to 1. */
  readonly batch?: number | undefined;
  /** The prices of calls whose whole prompt has more tokens than `over`. */
  readonly longContext?: (TokenPrices & { readonly over: number }) | undefined;
}

/**
 * Prices by the name of a model. An entry also applies to longer names, such as those with a date: `"gpt-5"` applies to
 * `"gpt-5-2026-01-01"`. The longest matching name decides. `"*"` applies to all other models.
 */
export type PriceTable = Readonly<Record<string, ModelPrices>>;

export interface PriceOptions {
  /** The unit of the prices. A budget counts it. Defaults to `"usd"`. */
  readonly unit?: string | undefined;
  /** Whether the calls are batch requests. Defaults to false. */
  readonly batch?: boolean | undefined;
}

const A_PRICE = { error: "give the price of a million tokens, from 0" };
const PRICE = z.number(A_PRICE).min(0, A_PRICE);
const TOKEN_PRICES = {
  input: PRICE,
  output: PRICE,
  cacheRead: PRICE.optional(),
  cacheWrite: PRICE.optional(),
};
const MODEL_PRICES = z.strictObject({
  ...TOKEN_PRICES,
  batch: z.number({ error: "give a factor such as 0.5" }).min(0).max(1).optional(),
  longContext: z.strictObject({ ...TOKEN_PRICES, over: z.int().min(1) }).optional(),
});
const PRICE_OPTIONS = z.strictObject({
  unit: z.string({ error: 'give a name such as "usd"' }).optional(),
  batch: z.boolean({ error: "give true or false" }).optional(),
});
const MILLION = 1_000_000;

/**
 * Returns a function that computes the price of calls from a table: `priceOf({ "gpt-5": { input: 1.25, output: 10 } })`.
 * Pass it to a preset as `price`, or call it in the `cost` and `settle` of a bucket.
 *
 * @throws {@link InvalidOptionError} when an entry of the table can never be a price.
 */
export function priceOf(table: PriceTable, options: PriceOptions = {}): PriceOfCall {
  const where = "priceOf()";
  const { unit = "usd", batch = false } = readOptions(where, PRICE_OPTIONS, options);
  const models = new Map(
    Object.entries(table).map(([name, prices]) => [
      name,
      readOptions(`${where} of "${name}"`, MODEL_PRICES, prices),
    ]),
  );
  return ({ model, usage }) => {
    const prices = pricesOf(models, model);
    if (prices === undefined) {
      const remedy = 'the table has no price of this model; add it, or a price for "*"';
      throw new InvalidOptionError({ where, option: "model", value: model, remedy });
    }
    const { input = 0, cacheRead = 0, cacheWrite = 0, output = 0 } = usage;
    const { longContext } = prices;
    const isLong = longContext !== undefined && input + cacheRead + cacheWrite > longContext.over;
    const each = isLong ? longContext : prices;
    const sum =
      input * each.input +
      cacheRead * (each.cacheRead ?? each.input) +
      cacheWrite * (each.cacheWrite ?? each.input) +
      output * each.output;
    return { [unit]: (sum * (batch ? (prices.batch ?? 1) : 1)) / MILLION };
  };
}

function pricesOf(
  models: ReadonlyMap<string, ModelPrices>,
  model: string,
): ModelPrices | undefined {
  for (let name = model; name !== ""; name = name.slice(0, -1)) {
    const isWhole = name.length === model.length || /^[-@:.]/.test(model.slice(name.length));
    const found = isWhole ? models.get(name) : undefined;
    if (found !== undefined) return found;
  }
  return models.get("*");
}
