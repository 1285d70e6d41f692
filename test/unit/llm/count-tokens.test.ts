import { describe, expect, it } from "vitest";
import { estimateTokens, openai } from "sluice/llm";

const { estimate } = openai({ tokens: "100000000/min", counts: "used", requests: "1000/min" });
const BASE64 = "iVBORw0KGgoAAAANSUhEUgAA".repeat(100_000);
const ROWS = Array.from({ length: 200 }, (_, index) => ({
  date: `2026-11-${String((index % 30) + 1).padStart(2, "0")}`,
  url: "https://shop.test/a",
  amount: index * 10,
}));
const PROSE = "The lock keeper opens the gate when both sides have come to one level. ".repeat(40);

const ENCODED = Buffer.from(PROSE).toString("base64");

/** The tokens of a prompt: a request that asks for no answer is taken for 1,000 more. */
function promptOf(request: object): number {
  return (estimate({ model: "m", ...request }) as { tokens: number }).tokens - 1_000;
}

const inChat = (...content: readonly object[]): object => ({
  messages: [{ role: "user", content }],
});
const inGemini = (...parts: readonly object[]): object => ({ contents: [{ role: "user", parts }] });
const inInput = (...input: readonly object[]): object => ({ input });

describe("media in a prompt", () => {
  const bytes = Buffer.from(BASE64.slice(0, 4_000), "base64");

  it.each<[string, object]>([
    [
      "a picture that was made in the conversation",
      inInput({ type: "image_generation_call", id: "ig_1", status: "completed", result: BASE64 }),
    ],
    [
      "a picture of the Responses API",
      inInput({
        role: "user",
        content: [{ type: "input_image", image_url: `data:image/png;base64,${BASE64}` }],
      }),
    ],
    [
      "a file of the Responses API",
      inInput({
        role: "user",
        content: [{ type: "input_file", filename: "a.pdf", file_data: BASE64 }],
      }),
    ],
    [
      "a screenshot",
      inInput({
        type: "computer_call_output",
        call_id: "c",
        output: { type: "computer_screenshot", image_url: `data:image/png;base64,${BASE64}` },
      }),
    ],
    [
      "a picture that a function returned",
      inInput({
        type: "function_call_output",
        call_id: "c",
        output: [{ type: "input_image", image_url: `data:image/png;base64,${BASE64}` }],
      }),
    ],
    [
      "a picture that code has drawn",
      inInput({
        type: "code_interpreter_call",
        outputs: [{ type: "image", url: `data:image/png;base64,${BASE64}` }],
      }),
    ],
    [
      "a picture in a chat",
      inChat({ type: "image_url", image_url: { url: `data:image/png;base64,${BASE64}` } }),
    ],
    [
      "a sound in a chat",
      inChat({ type: "input_audio", input_audio: { data: BASE64, format: "wav" } }),
    ],
    ["a file in a chat", inChat({ type: "file", file: { filename: "a.pdf", file_data: BASE64 } })],
    [
      "a picture of Anthropic",
      inChat({ type: "image", source: { type: "base64", media_type: "image/png", data: BASE64 } }),
    ],
    [
      "a document of Anthropic",
      inChat({
        type: "document",
        source: { type: "base64", media_type: "application/pdf", data: BASE64 },
      }),
    ],
    [
      "a picture in the result of a tool",
      inChat({
        type: "tool_result",
        tool_use_id: "t",
        content: [
          { type: "image", source: { type: "base64", media_type: "image/png", data: BASE64 } },
        ],
      }),
    ],
    ["a picture of Gemini", inGemini({ inlineData: { mimeType: "image/png", data: BASE64 } })],
    [
      "the same in the names of its REST API",
      inGemini({ inline_data: { mime_type: "image/png", data: BASE64 } }),
    ],
    [
      "a picture in the response of a function",
      inGemini({
        functionResponse: {
          name: "f",
          response: {},
          parts: [{ inlineData: { mimeType: "image/png", data: BASE64 } }],
        },
      }),
    ],
    ["a picture of Bedrock", inChat({ image: { format: "png", source: { bytes } } })],
    [
      "a document of Bedrock",
      inChat({ document: { format: "pdf", name: "a", source: { bytes } } }),
    ],
    [
      "a picture in the result of Bedrock's tool",
      inChat({
        toolResult: { toolUseId: "t", content: [{ image: { format: "png", source: { bytes } } }] },
      }),
    ],
    ["a picture of Ollama", { messages: [{ role: "user", content: "", images: [BASE64] }] }],
    ["a picture of Vercel's AI SDK", inChat({ type: "image", image: bytes })],
    [
      "a file of Vercel's AI SDK",
      inChat({ type: "file", mediaType: "application/pdf", data: BASE64 }),
    ],
    ["an address", inChat({ type: "image_url", image_url: { url: "https://a.test/a.png" } })],
  ])("counts as about 1,000 tokens: %s", (_what, request) => {
    const tokens = promptOf(request);

    expect(tokens).toBeGreaterThanOrEqual(1_000);
    expect(tokens).toBeLessThan(1_020);
  });
});

describe("the input or output of a tool", () => {
  const text = JSON.stringify(ROWS);
  const expected = estimateTokens(text);

  it.each<[string, object]>([
    [
      "Gemini's response under the name of data",
      inGemini({ functionResponse: { name: "rows", response: { data: ROWS } } }),
    ],
    [
      "the same in the names of its REST API",
      inGemini({ function_response: { name: "rows", response: { file: ROWS } } }),
    ],
    [
      "the arguments of Gemini's call",
      inGemini({ functionCall: { name: "rows", args: { image: ROWS } } }),
    ],
    [
      "the input of Anthropic's tool",
      inChat({ type: "tool_use", id: "t", name: "rows", input: { source: ROWS } }),
    ],
    [
      "the result of Anthropic's tool",
      inChat({ type: "tool_result", tool_use_id: "t", content: text }),
    ],
    [
      "the input of Bedrock's tool",
      inChat({ toolUse: { toolUseId: "t", name: "rows", input: { url: ROWS } } }),
    ],
    [
      "the result of Bedrock's tool",
      inChat({ toolResult: { toolUseId: "t", content: [{ json: { data: ROWS } }] } }),
    ],
    [
      "the arguments of a function in a chat",
      {
        messages: [
          {
            role: "assistant",
            tool_calls: [
              { id: "c", type: "function", function: { name: "rows", arguments: text } },
            ],
          },
        ],
      },
    ],
    [
      "the output of a function of the Responses API",
      inInput({ type: "function_call_output", call_id: "c", output: text }),
    ],
    [
      "the arguments of LangChain's call",
      { messages: [{ role: "assistant", tool_calls: [{ name: "rows", args: { data: ROWS } }] }] },
    ],
    [
      "the input of a call of Vercel's AI SDK",
      inChat({ type: "tool-call", toolCallId: "t", toolName: "rows", input: { data: ROWS } }),
    ],
    [
      "the output of a tool of Vercel's AI SDK",
      inChat({
        type: "tool-result",
        toolName: "rows",
        output: { type: "json", value: { data: ROWS } },
      }),
    ],
  ])("counts as JSON, whatever its names: %s", (_what, request) => {
    const tokens = promptOf(request);

    expect(tokens).toBeGreaterThan(expected * 0.98);
    expect(tokens).toBeLessThan(expected * 1.02 + 20);
  });

  it("counts base64 by its characters, since the model reads it as text", () => {
    const tokens = promptOf(
      inChat({ type: "tool_use", name: "f", input: { data: BASE64.slice(0, 24_000) } }),
    );

    expect(tokens).toBeGreaterThan(8_000);
  });

  it("does not count bytes as a list of numbers", () => {
    const input = { bytes: new Uint8Array(100_000), buffer: Buffer.alloc(100_000) };

    expect(promptOf(inChat({ toolUse: { name: "f", input } }))).toBeLessThan(50);
  });
});

describe("a text in the place of media", () => {
  it.each<[string, object]>([
    [
      "a document in plain text",
      inChat({ type: "document", source: { type: "text", media_type: "text/plain", data: PROSE } }),
    ],
    [
      "a document of blocks",
      inChat({
        type: "document",
        source: { type: "content", content: [{ type: "text", text: PROSE }] },
      }),
    ],
    [
      "a result of a search",
      inChat({
        type: "search_result",
        source: "https://a.test",
        title: "",
        content: [{ type: "text", text: PROSE }],
      }),
    ],
    [
      "a document of Bedrock in plain text",
      inChat({ document: { name: "a", format: "txt", source: { text: PROSE } } }),
    ],
    ["a document of Cohere", inChat({ type: "document", document: { id: "1", data: PROSE } })],
    ["a file in plain text", inChat({ type: "file", mediaType: "text/plain", data: PROSE })],
    [
      "a file of Gemini in plain text",
      inGemini({ inlineData: { mimeType: "text/plain", data: ENCODED } }),
    ],
    [
      "the same in the names of its REST API",
      inGemini({ inline_data: { mime_type: "text/markdown", data: ENCODED } }),
    ],
    [
      "a file of the Responses API in plain text",
      inInput({
        role: "user",
        content: [{ type: "input_file", file_data: `data:text/plain;base64,${ENCODED}` }],
      }),
    ],
    [
      "a file of Vercel's AI SDK as bytes of a text",
      inChat({ type: "file", mediaType: "text/csv", data: Buffer.from(PROSE) }),
    ],
    [
      "a document of Bedrock as bytes of a text",
      inChat({ document: { name: "a", format: "md", source: { bytes: Buffer.from(PROSE) } } }),
    ],
    ["a text", inChat({ type: "text", text: PROSE })],
    ["a part of Gemini", inGemini({ text: PROSE })],
    ["thoughts", inChat({ type: "thinking", thinking: PROSE, signature: BASE64 })],
    [
      "logs of code",
      inInput({ type: "code_interpreter_call", outputs: [{ type: "logs", logs: PROSE }] }),
    ],
  ])("counts by its words: %s", (_what, request) => {
    const expected = estimateTokens(PROSE);

    const tokens = promptOf(request);

    expect(tokens).toBeGreaterThanOrEqual(expected);
    expect(tokens).toBeLessThan(expected + 20);
  });

  it.each<[string, object]>([
    [
      "reasoning of the Responses API",
      inInput(
        { role: "user", content: "Hi" },
        { type: "reasoning", summary: [], encrypted_content: BASE64 },
      ),
    ],
    ["reasoning of Bedrock", inChat({ reasoningContent: { redactedContent: BASE64 } })],
    [
      "the same as bytes",
      inChat({ reasoningContent: { redactedContent: Buffer.from(BASE64, "base64") } }),
    ],
  ])("counts nothing where the provider has encrypted it: %s", (_what, request) => {
    expect(promptOf(request)).toBeLessThan(20);
  });
});

describe("a prompt", () => {
  it.each<[string, object]>([
    ["the message of Cohere's first version", { message: PROSE }],
    ["its documents", { message: "", documents: [{ title: "", snippet: PROSE }] }],
    ["the texts of Cohere's embeddings", { texts: [PROSE] }],
    ["their inputs", { inputs: [{ content: [{ type: "text", text: PROSE }] }] }],
    ["the inputs of Hugging Face", { inputs: PROSE }],
    ["the entries of a conversation of Mistral", { inputs: [{ role: "user", content: PROSE }] }],
    ["the contents that Gemini embeds", { requests: [{ content: { parts: [{ text: PROSE }] } }] }],
    ["the instances of Vertex", { instances: [{ content: PROSE }] }],
  ])("is found in each API's place: %s", (_what, request) => {
    const expected = estimateTokens(PROSE);

    const tokens = promptOf(request);

    expect(tokens).toBeGreaterThanOrEqual(expected);
    expect(tokens).toBeLessThan(expected + 20);
  });

  it.each<[string, object]>([
    ["Hugging Face", { inputs: "?", parameters: { max_new_tokens: 70 } }],
    ["Ollama", { prompt: "?", options: { num_predict: 70 } }],
    ["Mistral", { inputs: "?", completion_args: { max_tokens: 70 } }],
  ])("limits its answer in each API's place: %s", (_whose, request) => {
    expect(estimate({ model: "m", ...request })).toEqual({ tokens: 71 });
  });
});
