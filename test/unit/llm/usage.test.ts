import { generateText, stepCountIs, tool } from "ai";
import { MockLanguageModelV3 } from "ai/test";
import { describe, expect, it } from "vitest";
import * as z from "zod";
import { anthropic, bedrock, gemini, openai, type LlmBucket } from "sluice/llm";
import { events, settled, streamed } from "../../support/llm/settled.ts";

const used = openai({ tokens: "100000/min", counts: "used" });
const claude = anthropic({ input: "100000/min", output: "100000/min" });
const google = gemini({ input: "100000/min" });
const aws = bedrock({ tokens: "100000/min" });

const cases: readonly [string, LlmBucket, object, object][] = [
  [
    "a chat completion of OpenAI, whose cached tokens count",
    used,
    {
      usage: {
        prompt_tokens: 100,
        completion_tokens: 20,
        total_tokens: 120,
        prompt_tokens_details: { cached_tokens: 64 },
      },
    },
    { tokens: 120 },
  ],
  [
    "a response of OpenAI",
    used,
    {
      object: "response",
      usage: { input_tokens: 100, input_tokens_details: { cached_tokens: 30 }, output_tokens: 7 },
    },
    { tokens: 107 },
  ],
  [
    "an embedding",
    used,
    { object: "list", data: [], usage: { prompt_tokens: 9, total_tokens: 9 } },
    { tokens: 9 },
  ],
  [
    "a message of Anthropic, whose cache reads do not count and whose writes do",
    claude,
    {
      type: "message",
      usage: {
        input_tokens: 10,
        cache_creation_input_tokens: 200,
        cache_read_input_tokens: 3_000,
        output_tokens: 40,
      },
    },
    { input: 210, output: 40 },
  ],
  [
    "the same, of an older model whose cache reads count",
    anthropic({ input: "100000/min", output: "100000/min", countsCacheReads: true }),
    { usage: { input_tokens: 10, cache_read_input_tokens: 3_000, output_tokens: 40 } },
    { input: 3_010, output: 40 },
  ],
  [
    "an answer of Gemini, whose cached tokens and tools count",
    google,
    {
      usageMetadata: {
        promptTokenCount: 80,
        cachedContentTokenCount: 60,
        toolUsePromptTokenCount: 5,
        candidatesTokenCount: 9,
        thoughtsTokenCount: 100,
      },
    },
    { input: 85 },
  ],
  [
    "an answer of Bedrock, whose cache reads are given back",
    aws,
    {
      usage: {
        inputTokens: 50,
        outputTokens: 10,
        cacheReadInputTokens: 900,
        cacheWriteInputTokens: 5,
        totalTokens: 965,
      },
    },
    { tokens: 65 },
  ],
  [
    "what a client of AWS gives as bytes",
    aws,
    { body: Buffer.from(JSON.stringify({ usage: { input_tokens: 5, output_tokens: 6 } })) },
    { tokens: 11 },
  ],
  [
    "a result of Vercel's AI SDK",
    claude,
    {
      text: "…",
      usage: {
        inputTokens: 100,
        outputTokens: 5,
        inputTokenDetails: { cacheReadTokens: 70, cacheWriteTokens: 10 },
      },
    },
    { input: 30, output: 5 },
  ],
  [
    "a message of LangChain",
    claude,
    {
      usage_metadata: {
        input_tokens: 100,
        output_tokens: 5,
        input_token_details: { cache_read: 60, cache_creation: 10 },
      },
    },
    { input: 40, output: 5 },
  ],
  [
    "what a client gives with its response",
    used,
    { data: { usage: { prompt_tokens: 1, completion_tokens: 2 } } },
    { tokens: 3 },
  ],
  [
    "an embedding of Vercel's AI SDK",
    used,
    { embedding: [1], usage: { tokens: 12 } },
    { tokens: 12 },
  ],
  [
    "an answer of Cohere, whose true tokens count and not those that it bills",
    used,
    {
      usage: {
        billed_units: { input_tokens: 5, output_tokens: 6 },
        tokens: { input_tokens: 71, output_tokens: 6 },
      },
    },
    { tokens: 77 },
  ],
  [
    "the same from Cohere's client",
    used,
    { usage: { billedUnits: { inputTokens: 5 }, tokens: { inputTokens: 71, outputTokens: 6 } } },
    { tokens: 77 },
  ],
  [
    "an embedding of Cohere, which states only what it bills",
    used,
    { embeddings: {}, meta: { billed_units: { input_tokens: 5 } } },
    { tokens: 5 },
  ],
  [
    "an answer of Cohere's first version",
    used,
    { text: "…", meta: { tokens: { input_tokens: 71, output_tokens: 6 } } },
    { tokens: 77 },
  ],
  [
    "an answer of Ollama",
    used,
    { done: true, prompt_eval_count: 10, eval_count: 5 },
    { tokens: 15 },
  ],
  [
    "an answer of Mistral's client",
    used,
    { usage: { promptTokens: 10, completionTokens: 5, totalTokens: 15 } },
    { tokens: 15 },
  ],
  [
    "an answer of Cloudflare",
    used,
    {
      success: true,
      result: { response: "…", usage: { prompt_tokens: 10, completion_tokens: 5 } },
    },
    { tokens: 15 },
  ],
  [
    "what LangChain makes of a model's answer",
    used,
    { llmOutput: { tokenUsage: { promptTokens: 10, completionTokens: 5, totalTokens: 15 } } },
    { tokens: 15 },
  ],
  [
    "a message of LangChain from before it had a usage of its own",
    used,
    { response_metadata: { tokenUsage: { promptTokens: 10, completionTokens: 5 } } },
    { tokens: 15 },
  ],
  [
    "an answer of Titan",
    aws,
    { inputTextTokenCount: 10, results: [{ tokenCount: 5, outputText: "…" }] },
    { tokens: 15 },
  ],
  [
    "an answer of Watsonx",
    used,
    { results: [{ generated_text: "…", generated_token_count: 5, input_token_count: 10 }] },
    { tokens: 15 },
  ],
  ["a total of Gemini alone", google, { usageMetadata: { totalTokenCount: 115 } }, { input: 115 }],
  [
    "a body that a client gives as text",
    used,
    {
      statusCode: 200,
      body: JSON.stringify({ usage: { prompt_tokens: 1, completion_tokens: 2 } }),
    },
    { tokens: 3 },
  ],
];

describe("the usage", () => {
  it.each(cases)("of %s", async (_what, preset, result, expected) => {
    expect(await settled(preset, result)).toEqual(expected);
  });

  it("counts five tokens for each of a Claude model on Bedrock, or the configured factor", async () => {
    const result = { usage: { inputTokens: 50, outputTokens: 10 } };
    const request = {
      modelId: "us.anthropic.claude-sonnet-4-5",
      messages: [{ role: "user", content: [{ text: "?" }] }],
    };

    expect(await settled(aws, result, request)).toEqual({ tokens: 100 });
    const plain = bedrock({ tokens: "100000/min", burndown: 1 });
    expect(await settled(plain, result, request)).toEqual({ tokens: 60 });
  });

  it("of a limited answer stays what OpenAI reserved for it", async () => {
    const preset = openai({ tokens: "100000/min" });
    const request = {
      model: "m",
      messages: [{ role: "user", content: "?" }],
      max_completion_tokens: 500,
    };
    const answer = (prompt: number): object => ({
      usage: { prompt_tokens: prompt, completion_tokens: 20 },
    });

    expect(await settled(preset, answer(30), request)).toEqual({ tokens: 500 });
    expect(await settled(preset, answer(900), request)).toEqual({ tokens: 900 });
    const unbounded = { model: "m", messages: request.messages };
    expect(await settled(preset, answer(900), unbounded)).toEqual({ tokens: 920 });
  });

  it.each([
    ["that says nothing", { id: 1 }],
    ["whose figures are none", { usage: { prompt_tokens: "many", completion_tokens: -1 } }],
    ["that is no object", 7],
    ["that is nothing", undefined],
    ["that failed", new Response('{"usage":{"prompt_tokens":1}}', { status: 500 })],
    ["that is a picture", new Response("…", { headers: { "content-type": "image/png" } })],
  ])("of a result %s stays as estimated", async (_which, result) => {
    expect(await settled(used, result)).toBeUndefined();
  });

  it("of several steps of Vercel's AI SDK is their total", async () => {
    const usageOf = (input: number, output: number) => ({
      inputTokens: { total: input, noCache: input, cacheRead: 0, cacheWrite: 0 },
      outputTokens: { total: output, text: output, reasoning: 0 },
    });
    const call = { type: "tool-call" as const, toolCallId: "1", toolName: "look", input: "{}" };
    const model = new MockLanguageModelV3({
      doGenerate: [
        {
          content: [call],
          finishReason: { unified: "tool-calls", raw: undefined },
          usage: usageOf(1_000, 100),
          warnings: [],
        },
        {
          content: [{ type: "text", text: "Done." }],
          finishReason: { unified: "stop", raw: undefined },
          usage: usageOf(1_200, 50),
          warnings: [],
        },
      ],
    });
    const look = tool({ inputSchema: z.object({}), execute: async () => "1" });

    const result = await generateText({
      model,
      prompt: "?",
      tools: { look },
      stopWhen: stepCountIs(5),
    });

    expect(result.steps).toHaveLength(2);
    expect(await settled(used, result)).toEqual({ tokens: 2_350 });
  });

  it("is not read from a stream of the AI SDK, since reading would start it", async () => {
    const result = {
      textStream: {},
      get usage(): never {
        throw new Error("it was asked");
      },
    };

    expect(await settled(used, result)).toBeUndefined();
  });
});

/** A frame of AWS's event streams, with one header. */
function frame(payload: object): Buffer {
  const text = Buffer.from(JSON.stringify(payload));
  const type = Buffer.from("application/json");
  const header = Buffer.concat([
    Buffer.from([13]),
    Buffer.from(":content-type"),
    Buffer.from([7, 0, type.length]),
    type,
  ]);
  const frame = Buffer.alloc(16 + header.length + text.length);
  frame.writeUInt32BE(frame.length, 0);
  frame.writeUInt32BE(header.length, 4);
  header.copy(frame, 12);
  text.copy(frame, 12 + header.length);
  return frame;
}

describe("the usage in a stream", () => {
  it.each([1, 7, 100_000])("is read from events in pieces of %i bytes", async (size) => {
    const start = { input_tokens: 12, cache_read_input_tokens: 100, output_tokens: 1 };
    const bytes = events(
      { type: "message_start", message: { usage: start } },
      { type: "content_block_delta", delta: { type: "text_delta", text: "Grüße ☃" } },
      { type: "message_delta", delta: {}, usage: { output_tokens: 33 } },
    );

    const taken = await settled(claude, streamed("text/event-stream; charset=utf-8", bytes, size));

    expect(taken).toEqual({ input: 12, output: 33 });
  });

  it("is in the last chunk of OpenAI's completions, and in a separate event of its responses", async () => {
    const chunk = { choices: [{ delta: { content: "Hi" } }] };
    const chunks = events(chunk, {
      choices: [],
      usage: { prompt_tokens: 5, completion_tokens: 6 },
    });
    const responses = events(
      { type: "response.created", response: { usage: null } },
      { type: "response.output_text.delta", delta: "Hi" },
      {
        type: "response.completed",
        response: { usage: { input_tokens: 7, input_tokens_details: {}, output_tokens: 8 } },
      },
    );

    const type = "text/event-stream";
    expect(await settled(used, streamed(type, chunks, 9))).toEqual({ tokens: 11 });
    expect(await settled(used, streamed(type, responses, 9))).toEqual({ tokens: 15 });
  });

  it("is in Groq's last chunk under another name", async () => {
    const bytes = events(
      { choices: [{ delta: { content: "Hi" } }], x_groq: { id: "req_1" } },
      { choices: [], x_groq: { id: "req_1", usage: { prompt_tokens: 5, completion_tokens: 6 } } },
    );

    expect(await settled(used, streamed("text/event-stream", bytes, 9))).toEqual({ tokens: 11 });
  });

  it("is in Cohere's last event", async () => {
    const usage = { tokens: { input_tokens: 5, output_tokens: 6 } };
    const second = events({ type: "message-end", delta: { finish_reason: "COMPLETE", usage } });
    const first = { is_finished: true, event_type: "stream-end", response: { meta: usage } };
    const lines = Buffer.from(
      `${JSON.stringify({ event_type: "text-generation", text: "Hi" })}\n${JSON.stringify(first)}\n`,
    );

    expect(await settled(used, streamed("text/event-stream", second, 9))).toEqual({ tokens: 11 });
    expect(await settled(used, streamed("application/stream+json", lines, 9))).toEqual({
      tokens: 11,
    });
  });

  it.each([1, 7, 100_000])(
    "is in the last line of Ollama's stream, in pieces of %i bytes",
    async (size) => {
      const events = [
        { message: { role: "assistant", content: "Grüße ☃" }, done: false },
        { message: { content: "" }, done: true, prompt_eval_count: 260, eval_count: 290 },
      ];
      const bytes = Buffer.from(events.map((each) => `${JSON.stringify(each)}\n`).join(""));

      expect(await settled(used, streamed("application/x-ndjson", bytes, size))).toEqual({
        tokens: 550,
      });
    },
  );

  it("is counted by its text when a stream of lines breaks off", async () => {
    const bytes = Buffer.from('{"response":"one two three","done":false}\n{"respon');
    const request = { model: "m", prompt: "count to three" };

    const taken = await settled(used, streamed("application/x-ndjson", bytes, 5), request);

    const { tokens } = used.estimate(request) as { tokens: number };
    expect(taken).toEqual({ tokens: tokens - 1_000 + 3 });
  });

  it("is in the last of Gemini's events, or in its list", async () => {
    const parts = [{ promptTokenCount: 4 }, { promptTokenCount: 4, candidatesTokenCount: 2 }];
    const all = parts.map((usageMetadata) => ({ candidates: [], usageMetadata }));

    expect(await settled(google, streamed("text/event-stream", events(...all), 9))).toEqual({
      input: 4,
    });
    const list = Buffer.from(JSON.stringify(all));
    expect(await settled(google, streamed("application/json", list, 9))).toEqual({ input: 4 });
  });

  it("is the sum of LangChain's chunks, each of which states a part", async () => {
    const parts = [
      { input_tokens: 150, output_tokens: 8, input_token_details: { cache_read: 50 } },
      undefined,
      { input_tokens: 0, output_tokens: 20 },
    ];
    const stream = (async function* () {
      for (const usage_metadata of parts) yield { content: "Hi", usage_metadata };
    })();

    const taken = settled(claude, stream);
    for await (const _chunk of stream);

    expect(await taken).toEqual({ input: 100, output: 28 });
  });

  it.each([3, 100_000])("is in Bedrock's frames, in pieces of %i bytes", async (size) => {
    const bytes = Buffer.concat([
      frame({ contentBlockDelta: { delta: { text: "Hi {" } } }),
      frame({ messageStop: {} }),
      frame({ metrics: {}, usage: { inputTokens: 5, outputTokens: 6 } }),
    ]);

    const type = "application/vnd.amazon.eventstream";
    expect(await settled(aws, streamed(type, bytes, size))).toEqual({ tokens: 11 });
  });

  it("is counted by its text when no event states it", async () => {
    const bytes = events({ choices: [{ delta: { content: "one two three" } }] });
    const request = { model: "m", messages: [{ role: "user", content: "count to three" }] };

    const taken = (await settled(used, streamed("text/event-stream", bytes, 5), request)) as {
      tokens: number;
    };

    expect(taken.tokens).toBe((used.estimate(request) as { tokens: number }).tokens - 1_000 + 3);
  });

  it("covers the received part of a stream that breaks off", async () => {
    const start = { input_tokens: 12, output_tokens: 1 };
    const sent = events(
      { type: "message_start", message: { usage: start } },
      { type: "content_block_delta", delta: { text: "one two three" } },
    );
    let isSent = false;
    const body = new ReadableStream({
      pull(controller) {
        if (isSent) return controller.error(new Error("broke off"));
        isSent = true;
        controller.enqueue(sent);
      },
    });

    const taken = await settled(
      claude,
      new Response(body, { headers: { "content-type": "text/event-stream" } }),
    );

    expect(taken).toEqual({ input: 12, output: 3 });
  });
});

describe("a stream that a client returns", () => {
  async function* chunks() {
    yield { type: "message_start", message: { usage: { input_tokens: 12, output_tokens: 1 } } };
    yield { type: "content_block_delta", delta: { text: "one two three" } };
    yield { type: "message_delta", usage: { output_tokens: 33 } };
  }
  const kinds: readonly [string, () => AsyncIterable<unknown>][] = [
    ["a generator", chunks],
    ["an object to iterate", () => ({ [Symbol.asyncIterator]: () => chunks() })],
  ];

  it.each(kinds)("is settled at its end: %s", async (_kind, open) => {
    const stream = open();
    const settling = settled(claude, stream);
    let events = 0;

    for await (const _event of stream) events += 1;

    expect(events).toBe(3);
    expect(await settling).toEqual({ input: 12, output: 33 });
  });

  it.each(kinds)(
    "is settled by the received part if the caller stops early: %s",
    async (_kind, open) => {
      const stream = open();
      const settling = settled(claude, stream);
      let events = 0;

      for await (const _event of stream) {
        events += 1;
        if (events === 2) break;
      }

      expect(await settling).toEqual({ input: 12, output: 3 });
    },
  );

  it("is found in the result of an AWS client", async () => {
    async function* stream() {
      yield { contentBlockDelta: { delta: { text: "Hi" } } };
      yield { metadata: { usage: { inputTokens: 5, outputTokens: 6 } } };
    }
    const result = { $metadata: { httpStatusCode: 200 }, stream: stream() };
    const settling = settled(aws, result);

    for await (const _event of result.stream);

    expect(await settling).toEqual({ tokens: 11 });
  });
});
