import { describe, expect, it } from "vitest";
import { anthropic, gemini, openai, type LlmBucket } from "sluice/llm";
import { events, settled, streamed } from "../../support/llm/settled.ts";

const used = openai({ tokens: "100000/min", counts: "used" });
const claude = anthropic({ input: "100000/min", output: "100000/min" });
const google = gemini({ input: "100000/min" });
const REASONING = { completion_tokens_details: { reasoning_tokens: 2_809 } };

describe("a total that exceeds the sum of its parts", () => {
  it.each<[string, LlmBucket, object, object]>([
    [
      "the reasoning of xAI counts",
      used,
      {
        usage: {
          prompt_tokens: 10_120,
          completion_tokens: 1_499,
          total_tokens: 14_428,
          ...REASONING,
        },
      },
      { tokens: 14_428 },
    ],
    [
      "so it does in the words of OpenAI's responses",
      used,
      { usage: { input_tokens: 10_120, output_tokens: 1_499, total_tokens: 14_428 } },
      { tokens: 14_428 },
    ],
    [
      "so it does in those of Vercel's AI SDK, beside a cache",
      used,
      {
        usage: { inputTokens: 100, cachedInputTokens: 40, outputTokens: 5, totalTokens: 130 },
      },
      { tokens: 130 },
    ],
    [
      "so it does in those of LangChain",
      used,
      { usage_metadata: { input_tokens: 10, output_tokens: 5, total_tokens: 40 } },
      { tokens: 40 },
    ],
    [
      "the rest is output, and not input",
      claude,
      { usage: { prompt_tokens: 10, completion_tokens: 5, total_tokens: 40 } },
      { input: 10, output: 30 },
    ],
    [
      "Gemini's rest is no input",
      google,
      { usageMetadata: { promptTokenCount: 10, totalTokenCount: 100 } },
      { input: 10 },
    ],
    [
      "tokens that a cache holds apart are parts too",
      used,
      {
        usage: {
          inputTokens: 50,
          outputTokens: 10,
          cacheReadInputTokens: 900,
          cacheWriteInputTokens: 5,
          totalTokens: 965,
        },
      },
      { tokens: 965 },
    ],
    [
      "an input that is not stated is what the output leaves",
      claude,
      { usage: { prompt_tokens: null, completion_tokens: 50, total_tokens: 150 } },
      { input: 100, output: 50 },
    ],
    [
      "a smaller total changes nothing",
      used,
      { usage: { prompt_tokens: 10, completion_tokens: 5, total_tokens: 3 } },
      { tokens: 15 },
    ],
    [
      "a total that is no number changes nothing",
      used,
      { usage: { prompt_tokens: 10, completion_tokens: 5, total_tokens: "many" } },
      { tokens: 15 },
    ],
    [
      "a total alone is that of an embedding",
      used,
      { object: "list", usage: { total_tokens: 12 } },
      { tokens: 12 },
    ],
    [
      "the interactions of Gemini state their parts by other names",
      used,
      {
        status: "completed",
        usage: {
          total_input_tokens: 7,
          total_output_tokens: 20,
          total_thought_tokens: 22,
          total_tokens: 49,
        },
      },
      { tokens: 49 },
    ],
  ])("%s", async (_what, preset, result, expected) => {
    expect(await settled(preset, result)).toEqual(expected);
  });

  it("counts in the last event of a stream", async () => {
    const last = { prompt_tokens: 10, completion_tokens: 5, total_tokens: 40 };
    const bytes = events({ choices: [{ delta: { content: "Hi" } }] }, { choices: [], usage: last });

    expect(await settled(used, streamed("text/event-stream", bytes, 9))).toEqual({ tokens: 40 });
  });
});
