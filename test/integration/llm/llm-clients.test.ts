import Anthropic from "@anthropic-ai/sdk";
import { GoogleGenAI } from "@google/genai";
import OpenAI from "openai";
import { describe, expect, it } from "vitest";
import type { Bucket } from "sluice";
import { anthropic, estimateTokens, gemini, openai, type LlmBucket } from "sluice/llm";
import type { Provider } from "../../support/llm/fake-llm.ts";
import { startFakeLlm } from "../../support/llm/reach-fake.ts";
import { fakeApis } from "../../support/servers/fake-api.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { markedForAnthropic } from "../../support/llm/sizes.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const sluices = realSluices();
const apis = fakeApis();
const messages = [
  { role: "user" as const, content: "Why is the sky blue? Say it in a few words." },
];
/** So slow that nothing drains while a test runs. */
const SLOW = { headroom: 0 };

const start = (provider: Provider) => startFakeLlm(apis, { provider, quotas: {} });
const open = (preset: Omit<LlmBucket, "estimate">): Bucket =>
  sluices.open().bucket("model", preset);

async function levelOf(bucket: Bucket, unit: string): Promise<number> {
  const { limits } = await bucket.peek();
  return limits.findLast((limit) => limit.unit === unit)!.level;
}

/** The levels of some units, as soon as they are as expected. */
async function levelsOf(
  bucket: Bucket,
  expected: Readonly<Record<string, number>>,
): Promise<Readonly<Record<string, number>>> {
  const units = Object.keys(expected);
  const read = async (): Promise<Readonly<Record<string, number>>> =>
    Object.fromEntries(
      await Promise.all(units.map(async (unit) => [unit, await levelOf(bucket, unit)] as const)),
    );
  const text = JSON.stringify(expected);
  await waitUntil(async () => JSON.stringify(await read()) === text, text);
  return read();
}

describe("the client of OpenAI over a bucket's fetch", () => {
  it("books what whole and streamed completions used", async () => {
    const api = await start("openai");
    const bucket = open(openai({ tokens: "100000/h", counts: "used", ...SLOW }));
    const { fetch } = bucket;
    const client = new OpenAI({ apiKey: "k", baseURL: `${api.url}/v1`, fetch, maxRetries: 0 });
    const request = { model: "gpt-test", messages, max_completion_tokens: 100 };

    const { usage } = await client.chat.completions.create(request);
    expect(await levelsOf(bucket, { tokens: usage!.total_tokens })).toEqual({
      tokens: usage!.total_tokens,
    });
    const stream_options = { include_usage: true };
    const stream = await client.chat.completions.create({
      ...request,
      stream: true,
      stream_options,
    });
    for await (const _chunk of stream);

    expect(await levelsOf(bucket, { tokens: 2 * usage!.total_tokens })).toEqual({
      tokens: 2 * usage!.total_tokens,
    });
  });

  it("books the prompt and the received part of a stream that is left early", async () => {
    const api = await apis.start(() => ({
      headers: { "content-type": "text/event-stream" },
      stream: (response) =>
        void response.write('data: {"choices":[{"index":0,"delta":{"content":"Because of"}}]}\n\n'),
    }));
    const preset = openai({ tokens: "100000/h", counts: "used", ...SLOW });
    const bucket = open(preset);
    const { fetch } = bucket;
    const client = new OpenAI({ apiKey: "k", baseURL: `${api.url}/v1`, fetch, maxRetries: 0 });
    const request = { model: "gpt-test", messages, max_completion_tokens: 500 };
    const { tokens } = preset.estimate(request) as { tokens: number };

    for await (const _chunk of await client.chat.completions.create({ ...request, stream: true })) {
      break;
    }

    expect(await levelsOf(bucket, { tokens: tokens - 500 + estimateTokens("Because of") })).toEqual(
      { tokens: tokens - 500 + estimateTokens("Because of") },
    );
  });
});

describe("the client of Anthropic over a bucket's fetch", () => {
  it("books input without cache reads, and output separately, of whole and streamed messages", async () => {
    const api = await start("anthropic");
    const bucket = open(anthropic({ input: "100000/h", output: "100000/h", ...SLOW }));
    const { fetch } = bucket;
    const client = new Anthropic({ apiKey: "k", baseURL: api.url, fetch, maxRetries: 0 });
    const request = {
      model: "claude-test",
      max_tokens: 100,
      messages,
      system: markedForAnthropic("Be brief. ".repeat(50)),
    };

    const { usage } = await client.messages.create(request);
    const { input_tokens: input, output_tokens: output, cache_read_input_tokens: cached } = usage;
    expect(await levelsOf(bucket, { input, output })).toEqual({ input, output });
    for await (const _event of await client.messages.create({ ...request, stream: true }));

    expect(await levelsOf(bucket, { input: 2 * input, output: 2 * output })).toEqual({
      input: 2 * input,
      output: 2 * output,
    });
    expect(cached).toBeGreaterThan(input);
  });
});

describe("the client of Gemini in a throttled function", () => {
  it("books the prompt's tokens, read from Gemini's own request format", async () => {
    const api = await start("gemini");
    const bucket = open(gemini({ input: "100000/h", ...SLOW }));
    const client = new GoogleGenAI({ apiKey: "k", httpOptions: { baseUrl: api.url } });
    const generate = bucket.throttled((request: { model: string; contents: string }) =>
      client.models.generateContent(request),
    );

    const { usageMetadata } = await generate({
      model: "gemini-test",
      contents: "Why is the sky blue?",
    });

    expect(await levelsOf(bucket, { input: usageMetadata!.promptTokenCount! })).toEqual({
      input: usageMetadata!.promptTokenCount!,
    });
  });

  it("stops at a quota of the day until midnight in California", async () => {
    const quotaId = "GenerateRequestsPerDayPerProjectPerModel-FreeTier";
    const details = [
      { "@type": "type.googleapis.com/google.rpc.QuotaFailure", violations: [{ quotaId }] },
      { "@type": "type.googleapis.com/google.rpc.RetryInfo", retryDelay: "12s" },
    ];
    const error = { code: 429, status: "RESOURCE_EXHAUSTED", message: "Quota exceeded", details };
    const api = await apis.start(() => ({
      status: 429,
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ error }),
    }));
    const bucket = open(gemini({ requests: "6000/min" }));
    const client = new GoogleGenAI({ apiKey: "k", httpOptions: { baseUrl: api.url } });
    const generate = bucket.throttled((request: { model: string; contents: string }) =>
      client.models.generateContent(request),
    );

    await expect(generate({ model: "gemini-test", contents: "Why?" })).rejects.toThrow("429");

    await waitUntil(async () => (await bucket.peek()).coolingForMs > 0, "it cools down");
    const untilMs = Date.now() + (await bucket.peek()).coolingForMs;
    const hour = new Intl.DateTimeFormat("en-US", {
      timeZone: "America/Los_Angeles",
      hourCycle: "h23",
      hour: "numeric",
      minute: "numeric",
    });
    // The rest of a minute is cut off, and a moment has passed between the two clocks.
    expect(hour.format(untilMs + 30_000)).toBe("00:00");
  });
});

describe("the estimate of a model's calls", () => {
  it("is off by less than a tenth after a hundred responses, also in a replica that has seen none", async () => {
    const api = await start("anthropic");
    const preset = anthropic({ input: "60000000/min", output: "60000000/min" });
    const errors: number[] = [];
    const watched: Omit<LlmBucket, "estimate"> = {
      ...preset,
      async settle(result, call) {
        const used = (await preset.settle(result, call)) as Readonly<Record<string, number>>;
        const drawn = call.cost as Readonly<Record<string, number>>;
        for (const unit of ["input", "output"]) {
          errors.push(Math.abs(drawn[unit]! - used[unit]!) / used[unit]!);
        }
        return used;
      },
    };
    async function ask(bucket: Bucket, count: number): Promise<void> {
      const { fetch } = bucket;
      const client = new Anthropic({ apiKey: "k", baseURL: api.url, fetch, maxRetries: 0 });
      for (let each = 0; each < count; each += 10) {
        await Promise.all(
          Array.from({ length: 10 }, (_, index) => {
            const content = "The lock keeper opens the gate. ".repeat(10 + ((each + index) % 40));
            const max_tokens = 100 + 10 * index;
            const request = {
              model: "claude-test",
              max_tokens,
              messages: [{ role: "user" as const, content }],
            };
            return client.messages.create(request);
          }),
        );
      }
    }

    await ask(open(watched), 100);
    await waitUntil(() => errors.length === 200, "a hundred are settled");
    errors.length = 0;
    await ask(open(watched), 20);
    await waitUntil(() => errors.length === 40, "twenty are settled");

    const mean = errors.reduce((sum, each) => sum + each, 0) / errors.length;
    expect(mean).toBeLessThan(0.1);
  });
});
