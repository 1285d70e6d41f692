/** How each provider counts tokens. `docs/guides/calls/llm.md` links each provider's own description. */
import type { Counting, Used } from "./meter.ts";

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
