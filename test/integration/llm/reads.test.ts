import Anthropic from "@anthropic-ai/sdk";
import { GoogleGenAI } from "@google/genai";
import OpenAI from "openai";
import { describe, expect, it } from "vitest";
import { throttledClient, type Bucket } from "sluice";
import { anthropic, bedrock, gemini, openai, type LlmBucket } from "sluice/llm";
import { waitUntil } from "../../support/async/wait-until.ts";
import { fakeApis, type FakeApi } from "../../support/servers/fake-api.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const apis = fakeApis();
/** So slow that nothing drains while a test runs. */
const SLOW = { headroom: 0 };
const USED = openai({ tokens: "100000/h", counts: "used", ...SLOW });
const usage = { input_tokens: 3_000, output_tokens: 900, total_tokens: 3_900 };
const response = { id: "resp_68af40c2bd2c81a1", object: "response", output: [], output_text: "" };
const finished = { ...response, status: "completed", usage };

const open = (preset: Omit<LlmBucket, "estimate">): Bucket =>
  sluices.open().bucket("model", preset);

/** An API that answers each `METHOD /path` with the next of its answers, and with the last one from then on. */
function startApi(answers: Readonly<Record<string, readonly object[]>>): Promise<FakeApi> {
  const asked = new Map<string, number>();
  return apis.start(({ method, path }) => {
    const name = `${method} ${path.replace(/\?.*/, "")}`;
    const list = answers[name];
    if (list === undefined) return { status: 404 };
    const number = asked.get(name) ?? 0;
    asked.set(name, number + 1);
    return {
      headers: { "content-type": "application/json" },
      body: JSON.stringify(list[Math.min(number, list.length - 1)]),
    };
  });
}

async function levelOf(bucket: Bucket, unit: string): Promise<number> {
  const { limits } = await bucket.peek();
  return limits.findLast((limit) => limit.unit === unit)!.level;
}

/**
 * The tokens that are booked, once they are as expected and those of one more call are booked after all that was booked
 * before: settlements keep their order.
 */
async function tokensOf(bucket: Bucket, expected: number, unit = "tokens"): Promise<number> {
  await bucket.run(async () => ({ usage: { input_tokens: 1, output_tokens: 1 } }));
  const more = unit === "tokens" ? 2 : 1;
  const level = async (): Promise<number> => (await levelOf(bucket, unit)) - more;
  await waitUntil(async () => (await level()) === expected, `${unit} are ${expected}`);
  return level();
}

describe("a read of a stored answer", () => {
  it("adds nothing to the call that made it, however often it is read", async () => {
    const api = await startApi({
      "POST /v1/responses": [finished],
      "GET /v1/responses/resp_68af40c2bd2c81a1": [finished],
      "POST /v1/responses/resp_68af40c2bd2c81a1/cancel": [finished],
      "GET /v1/chat/completions/chatcmpl-1": [
        { id: "chatcmpl-1", usage: { prompt_tokens: 3_000, completion_tokens: 900 } },
      ],
      "POST /v1/chat/completions/chatcmpl-1": [
        { id: "chatcmpl-1", usage: { prompt_tokens: 3_000, completion_tokens: 900 } },
      ],
    });
    const bucket = open(USED);
    const client = new OpenAI({ apiKey: "k", baseURL: `${api.url}/v1`, fetch: bucket.fetch });

    await client.responses.create({ model: "m", input: "Why?" });
    await client.responses.retrieve("resp_68af40c2bd2c81a1");
    await client.responses.retrieve("resp_68af40c2bd2c81a1");
    await client.responses.cancel("resp_68af40c2bd2c81a1");
    await client.chat.completions.retrieve("chatcmpl-1");
    await client.chat.completions.update("chatcmpl-1", { metadata: { a: "b" } });

    expect(await tokensOf(bucket, 3_900)).toBe(3_900);
  });

  it("settles the call that made it in the background", async () => {
    const queued = { ...response, status: "queued", background: true, usage: null };
    const api = await startApi({
      "POST /v1/responses": [queued],
      "GET /v1/responses/resp_68af40c2bd2c81a1": [{ ...queued, status: "in_progress" }, finished],
    });
    const bucket = open(USED);
    const client = new OpenAI({ apiKey: "k", baseURL: `${api.url}/v1`, fetch: bucket.fetch });

    await client.responses.create({ model: "m", input: "Why?", background: true });
    await client.responses.retrieve("resp_68af40c2bd2c81a1");
    await client.responses.retrieve("resp_68af40c2bd2c81a1");
    await client.responses.retrieve("resp_68af40c2bd2c81a1");

    expect(await tokensOf(bucket, 3_900)).toBe(3_900);
  });

  it("does so where the methods of a client are paced, and not its requests", async () => {
    const queued = { ...response, status: "queued", background: true, usage: null };
    const api = await startApi({
      "POST /v1/responses": [queued],
      "GET /v1/responses/resp_68af40c2bd2c81a1": [{ ...queued, status: "in_progress" }, finished],
    });
    const bucket = open(USED);
    const plain = new OpenAI({ apiKey: "k", baseURL: `${api.url}/v1`, maxRetries: 0 });
    const client = throttledClient(plain, bucket, {
      methods: ["responses.create", "responses.retrieve"],
    });

    await client.responses.create({ model: "m", input: "Why?", background: true });
    await client.responses.retrieve("resp_68af40c2bd2c81a1");
    await client.responses.retrieve("resp_68af40c2bd2c81a1");
    await bucket.run(() => plain.responses.retrieve("resp_68af40c2bd2c81a1"));

    // The last read is known by nothing but the id of its answer.
    expect(await tokensOf(bucket, 3_900)).toBe(3_900);
  });
});

describe("a count of tokens", () => {
  const messages = [{ role: "user" as const, content: "Why is the sky blue? ".repeat(500) }];

  it("costs no tokens of OpenAI's bucket", async () => {
    const counted = { object: "response.input_tokens", input_tokens: 11_600 };
    const api = await startApi({ "POST /v1/responses/input_tokens": [counted] });
    const bucket = open(USED);
    const client = new OpenAI({ apiKey: "k", baseURL: `${api.url}/v1`, fetch: bucket.fetch });

    await client.responses.inputTokens.count({ model: "m", input: messages[0]!.content });

    expect(await tokensOf(bucket, 0)).toBe(0);
  });

  it("costs none of Anthropic's, through fetch or a paced client", async () => {
    const api = await startApi({ "POST /v1/messages/count_tokens": [{ input_tokens: 11_600 }] });
    const bucket = open(anthropic({ input: "100000/h", output: "100000/h", ...SLOW }));
    const options = { apiKey: "k", baseURL: api.url, maxRetries: 0 };
    const client = new Anthropic({ ...options, fetch: bucket.fetch });
    const paced = throttledClient(new Anthropic(options), bucket, {
      methods: ["messages.countTokens"],
    });

    await client.messages.countTokens({ model: "m", messages });
    await paced.messages.countTokens({ model: "m", messages });

    expect(await tokensOf(bucket, 0, "input")).toBe(0);
  });

  it("costs none of Gemini's", async () => {
    const api = await startApi({
      "POST /v1beta/models/gemini-test:countTokens": [
        { totalTokens: 11_600, promptTokensDetails: [{ modality: "TEXT", tokenCount: 11_600 }] },
      ],
    });
    const bucket = open(gemini({ input: "100000/h", ...SLOW }));
    const client = new GoogleGenAI({ apiKey: "k", httpOptions: { baseUrl: api.url } });
    const count = bucket.throttled((request: { model: string; contents: string }) =>
      client.models.countTokens(request),
    );

    await count({ model: "gemini-test", contents: messages[0]!.content });

    expect(await tokensOf(bucket, 0, "input")).toBe(0);
  });

  it.each([
    "/v1/projects/p/locations/l/publishers/anthropic/models/count-tokens:rawPredict",
    "/v1beta/models/gemini-test%3AcountTokens",
    "/v1/projects/p/locations/l/publishers/google/models/m:computeTokens",
    "/model/anthropic.claude/count-tokens",
    "/v1/tokenize",
    "/v1/tokenizers/estimate-token-count",
    "/v1/responses/input_tokens/",
  ])("costs none of POST %s", async (path) => {
    const api = await apis.start(() => ({
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ usage: { input_tokens: 11_600, output_tokens: 0 } }),
    }));
    const bucket = open(USED);

    const answer = await bucket.fetch(`${api.url}${path}`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ model: "m", messages, input: messages, contents: messages }),
    });
    await answer.text();

    expect(await tokensOf(bucket, 0)).toBe(0);
  });

  it("costs none as a command of AWS, by its name", async () => {
    class CountTokensCommand {
      readonly input = { modelId: "m", input: { converse: { messages } } };
      resolveMiddleware(): void {}
    }
    const bucket = open(bedrock({ tokens: "100000/h", ...SLOW }));
    const send = bucket.throttled(async (_command: CountTokensCommand) => ({
      $metadata: { httpStatusCode: 200 },
      inputTokens: 11_600,
    }));

    await send(new CountTokensCommand());

    expect(await tokensOf(bucket, 0)).toBe(0);
  });
});

describe("a call to a model", () => {
  it.each([
    ["/v1/chat/completions", { model: "m", messages: [] }],
    ["/v1/responses", { model: "m", conversation: "conv_1" }],
    ["/v1/responses/compact", { model: "m", previous_response_id: "resp_68af40c2bd2c81a1" }],
    ["/anthropic/v1/messages", { model: "m", messages: [] }],
    ["/files/v1/chat/completions", { model: "m", messages: [] }],
    ["/model/anthropic.claude/invoke", { prompt: "" }],
    ["/v1/threads/thread_1/runs", { assistant_id: "asst_1" }],
    ["/ask", { question: "Why?" }],
  ])("is a POST to %s", async (path, body) => {
    const api = await apis.start(() => ({
      headers: { "content-type": "application/json" },
      body: JSON.stringify(finished),
    }));
    const bucket = open(USED);

    const answer = await bucket.fetch(`${api.url}${path}`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
    });
    await answer.text();

    expect(await tokensOf(bucket, 3_900)).toBe(3_900);
  });
});
