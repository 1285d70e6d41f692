import { describe, expect, it } from "vitest";
import { anthropic, bedrock, type LlmBucket } from "sluice/llm";

const claude = anthropic({ input: "100000/min", output: "100000/min" });
const aws = bedrock({ tokens: "100000/min" });

/** What a preset draws for a call, after this one was answered. */
async function drawnAfter(
  preset: LlmBucket,
  { request, usage, next }: { request: object; usage: object; next: object },
): Promise<unknown> {
  const means = new Map<string, number>();
  const call = {
    key: undefined,
    keys: undefined,
    cost: undefined,
    learned: async () => means,
    learn: (name: string, ratio: number) => void means.set(name, ratio),
  };
  await preset.cost({ ...call, args: [request] });
  await preset.settle({ usage }, { ...call, args: [request] });
  return preset.cost({ ...call, args: [next] });
}

describe("the estimate of a partly cached prompt", () => {
  const words = (count: number): string => "water ".repeat(count).trim();
  const request = (system: unknown, prompt: number, more: object = {}): object => ({
    model: "claude-test",
    max_tokens: 100,
    messages: [{ role: "user", content: words(prompt) }],
    ...(system === undefined ? {} : { system }),
    ...more,
  });
  const marked = [{ type: "text", text: words(1_000), cache_control: { type: "ephemeral" } }];
  /** 1,000 words, and four tokens for the form of the message. */
  const usage = { input_tokens: 504, cache_read_input_tokens: 1_000, output_tokens: 100 };

  it("leaves out only the part that a request marks, however long the rest is", async () => {
    const learnedOf = { request: request(marked, 500), usage };

    const short = await drawnAfter(claude, { ...learnedOf, next: request(marked, 10) });
    const long = await drawnAfter(claude, { ...learnedOf, next: request(marked, 4_000) });
    const unmarked = await drawnAfter(claude, { ...learnedOf, next: request(undefined, 4_000) });

    expect(short).toEqual({ input: 14, output: 100 });
    expect(long).toEqual({ input: 4_004, output: 100 });
    expect(unmarked).toEqual({ input: 4_004, output: 100 });
  });

  it("leaves out a share where caches need no marks, and nothing where reads count", async () => {
    const learnedOf = { request: request(words(1_000), 500), usage };
    const next = request(words(1_000), 500);
    const counts = anthropic({ input: "100000/min", countsCacheReads: true });

    expect(await drawnAfter(claude, { ...learnedOf, next })).toEqual({ input: 504, output: 100 });
    expect(await drawnAfter(counts, { ...learnedOf, next })).toEqual({ input: 1_504 });
  });

  it("counts everything up to the last mark, in the order in which models read", async () => {
    const tools = [{ name: "look", cache_control: { type: "ephemeral" } }];
    const messages = [
      { role: "user", content: marked },
      { role: "user", content: words(500) },
    ];
    const asked = { model: "claude-test", max_tokens: 100, tools, messages };
    const read = { input_tokens: 0, cache_read_input_tokens: 2_000, output_tokens: 100 };
    const next = { ...asked, messages: [messages[0], { role: "user", content: words(4_000) }] };

    const drawn = (await drawnAfter(claude, { request: asked, usage: read, next })) as {
      readonly input: number;
    };

    // All of the first two is read, so all that is new counts.
    expect(drawn.input).toBeGreaterThan(4_000);
  });

  it("draws the whole input on Bedrock, and leaves out cache reads when that is less", async () => {
    const system = [{ text: words(1_000) }, { cachePoint: { type: "default" } }];
    const asked = {
      modelId: "anthropic.claude-test",
      inferenceConfig: { maxTokens: 1_000 },
      system,
      messages: [{ role: "user", content: [{ text: words(500) }] }],
    };
    const of = (outputTokens: number): object => ({
      inputTokens: 504,
      cacheReadInputTokens: 1_000,
      outputTokens,
      totalTokens: 1_504 + outputTokens,
    });

    const short = await drawnAfter(aws, { request: asked, usage: of(100), next: asked });
    const long = await drawnAfter(aws, { request: asked, usage: of(1_000), next: asked });

    expect(short).toEqual({ tokens: 2_504 });
    expect(long).toEqual({ tokens: 5_504 });
  });
});
