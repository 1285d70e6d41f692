/** How each provider counts tokens: see docs/llm.md for where each says so. */
import type { Counting, Used } from "./meter.ts";

const withCached = ({ input, cacheRead, cacheWrite }: Used): number =>
  input + cacheRead + cacheWrite;

/** OpenAI: the larger of the prompt and of what the answer may be, once and for all when the request comes in. */
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

/** Azure: the prompt and what the answer may be, once and for all when the request comes in. */
export const reservesSum: Counting = {
  before: ({ input, output }, { maxOutput, answers }) => ({
    tokens: input + (maxOutput === undefined ? output : maxOutput * answers),
  }),
  after: (used, { maxOutput, answers }) => ({
    tokens: withCached(used) + (maxOutput === undefined ? used.output : maxOutput * answers),
  }),
};

/** Servers that speak like OpenAI's and count what was used. */
export const countsUsed: Counting = {
  before: ({ input, output }) => ({ tokens: input + output }),
  after: (used) => ({ tokens: withCached(used) + used.output }),
};

/** Anthropic: input and output apart, and what was read from a cache not at all, unless the model is an older one. */
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

/** Gemini: the input alone, cached or not. */
export const countsInput: Counting = {
  before: ({ input }) => ({ input }),
  after: (used) => ({ input: withCached(used) }),
};

/** What an answer may be where a request of Bedrock does not bound it; the provider takes the most that its model can write. */
const BEDROCK_OUTPUT = 4_096;

/**
 * Bedrock: all of the prompt and what the answer may be when the request comes in; in the end, the prompt without what
 * was read from a cache, and each token of the answer as often as its model burns them.
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
