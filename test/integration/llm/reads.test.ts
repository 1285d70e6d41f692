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
  it("costs nothing beyond the call that made the answer, however often it is read", async () => {
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

  it("settles the call that made the answer in the background", async () => {
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

  it("settles it also when the methods of a client are paced instead of its requests", async () => {
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

describe("a method of a paced client that asks no model", () => {
  const long = "Why is the sky blue? ".repeat(500);
  const startFake = (body: object): Promise<FakeApi> =>
    apis.start(() => ({
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
    }));

  it.each<[string, (client: OpenAI) => PromiseLike<unknown>]>([
    ["responses.inputItems.list", (ai) => ai.responses.inputItems.list("resp_1")],
    ["responses.delete", (ai) => ai.responses.delete("resp_1")],
    ["chat.completions.list", (ai) => ai.chat.completions.list()],
    ["chat.completions.messages.list", (ai) => ai.chat.completions.messages.list("chatcmpl-1")],
    ["chat.completions.update", (ai) => ai.chat.completions.update("c-1", { metadata: {} })],
    ["files.retrieve", (ai) => ai.files.retrieve("file-1")],
    ["files.content", (ai) => ai.files.content("file-1")],
    ["models.retrieve", (ai) => ai.models.retrieve("gpt-5")],
    ["moderations.create", (ai) => ai.moderations.create({ input: long })],
    [
      "beta.threads.messages.create",
      (ai) => ai.beta.threads.messages.create("thread_1", { role: "user", content: long }),
    ],
    ["beta.threads.messages.list", (ai) => ai.beta.threads.messages.list("thread_1")],
    [
      "beta.threads.runs.submitToolOutputs",
      (ai) =>
        ai.beta.threads.runs.submitToolOutputs("run_1", { thread_id: "t_1", tool_outputs: [] }),
    ],
    [
      "beta.assistants.create",
      (ai) => ai.beta.assistants.create({ model: "m", instructions: long }),
    ],
    ["vectorStores.search", (ai) => ai.vectorStores.search("vs_1", { query: "lock" })],
    [
      "conversations.items.create",
      (ai) => ai.conversations.items.create("conv_1", { items: [{ role: "user", content: long }] }),
    ],
    ["uploads.complete", (ai) => ai.uploads.complete("upload_1", { part_ids: [] })],
    ["batches.retrieve", (ai) => ai.batches.retrieve("batch_1")],
    ["evals.runs.list", (ai) => ai.evals.runs.list("eval_1")],
    ["videos.create", (ai) => ai.videos.create({ prompt: long })],
  ])("costs no tokens of OpenAI's: %s", async (_method, call) => {
    const api = await startFake({ id: "x", data: [], results: [] });
    const bucket = open(USED);
    const plain = new OpenAI({ apiKey: "k", baseURL: `${api.url}/v1`, maxRetries: 0 });

    await call(throttledClient(plain, bucket));

    expect(await tokensOf(bucket, 0)).toBe(0);
  });

  it.each<[string, (client: Anthropic) => PromiseLike<unknown>]>([
    ["messages.batches.create", (claude) => claude.messages.batches.create({ requests: [] })],
    ["messages.batches.retrieve", (claude) => claude.messages.batches.retrieve("msgbatch_1")],
    ["models.retrieve", (claude) => claude.models.retrieve("claude-test")],
    ["beta.vaults.archive", (claude) => claude.beta.vaults.archive("vault_1")],
    [
      "beta.memoryStores.memories.create",
      (claude) =>
        claude.beta.memoryStores.memories.create("store_1", { path: "/a", content: long }),
    ],
  ])("costs none of Anthropic's: %s", async (_method, call) => {
    const api = await startFake({ id: "x", data: [] });
    const bucket = open(anthropic({ input: "100000/h", output: "100000/h", ...SLOW }));
    const plain = new Anthropic({ apiKey: "k", baseURL: api.url, maxRetries: 0 });

    await call(throttledClient(plain, bucket));

    expect(await tokensOf(bucket, 0, "input")).toBe(0);
  });

  it.each<[string, (client: GoogleGenAI) => PromiseLike<unknown>]>([
    ["caches.create", (ai) => ai.caches.create({ model: "m", config: { contents: long } })],
    ["caches.get", (ai) => ai.caches.get({ name: "cachedContents/1" })],
    ["models.countTokens", (ai) => ai.models.countTokens({ model: "m", contents: long })],
  ])("costs none of Gemini's: %s", async (_method, call) => {
    const api = await startFake({
      name: "cachedContents/1",
      usageMetadata: { totalTokenCount: 9 },
    });
    const bucket = open(gemini({ input: "100000/h", ...SLOW }));
    const plain = new GoogleGenAI({ apiKey: "k", httpOptions: { baseUrl: api.url } });

    await call(throttledClient(plain, bucket));

    expect(await tokensOf(bucket, 0, "input")).toBe(0);
  });

  it.each([
    "/v1beta/cachedContents",
    "/v1/projects/p/locations/l/cachedContents",
    "/v1beta/models/gemini-embedding-001:asyncBatchEmbedContent",
    "/v1beta/models/gemini-test:batchGenerateContent",
    "/v1beta/models/veo:predictLongRunning",
    "/v1/realtime/sessions",
    "/v1/realtime/client_secrets",
    "/openai/realtimeapi/sessions",
    "/v1/evals/eval_1/runs",
    "/v1/videos",
    "/v1/conversations/conv_1/items",
    "/v1/agents",
    "/guardrail/g/version/1/apply",
    "/v1//responses/resp_1//cancel",
  ])("costs none of a POST to %s", async (path) => {
    const api = await startFake({ usage: { input_tokens: 11_600, output_tokens: 0 } });
    const bucket = open(USED);

    const answer = await bucket.fetch(`${api.url}${path}`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ model: "m", input: long, contents: long, instructions: long }),
    });
    await answer.text();

    expect(await tokensOf(bucket, 0)).toBe(0);
  });
});

describe("a count of tokens", () => {
  const messages = [{ role: "user" as const, content: "Why is the sky blue? ".repeat(500) }];

  it("costs no tokens in OpenAI's bucket", async () => {
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
    ["/v1/conversations", { inputs: "Why?" }],
    ["/v1/conversations/conv_1", { inputs: "Why?" }],
    ["/v1/conversations/conv_1/restart", { inputs: "Why?" }],
    ["/v1/agents/completions", { messages: [] }],
    ["/models/gpt2", { inputs: "Why?" }],
    ["/v1beta/models/gemini-embedding-001:batchEmbedContents", { requests: [] }],
    ["/v1beta/tunedModels/x:generateContent", { contents: "Why?" }],
    ["/ask", { question: "Why?" }],
  ])("costs tokens as a POST to %s", async (path, body) => {
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

  it("costs tokens for the embedding that Gemini's client sends as a batch", async () => {
    const long = "water ".repeat(1_000);
    const api = await apis.start(() => ({
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ embeddings: [{ values: [1] }] }),
    }));
    const client = new GoogleGenAI({ apiKey: "k", httpOptions: { baseUrl: api.url } });
    await client.models.embedContent({ model: "gemini-embedding-001", contents: long });
    const { path, body } = api.calls[0]!;
    const bucket = open(gemini({ input: "100000/h", ...SLOW }));

    const answer = await bucket.fetch(`${api.url}${path}`, { method: "POST", body });
    await answer.text();

    expect(path).toContain(":batchEmbedContents");
    expect(await levelOf(bucket, "input")).toBeGreaterThanOrEqual(1_000);
  });

  it("costs tokens in a function that gets a prompt as text", async () => {
    const bucket = open(USED);
    const ask = bucket.throttled(async (_prompt: string) => ({ id: "x", text: "It is." }));

    await ask("water ".repeat(1_000));

    expect(await levelOf(bucket, "tokens")).toBe(2_000);
  });

  it("costs tokens in a function that gets a prompt as text, followed by settings", async () => {
    const bucket = open(USED);
    const ask = bucket.throttled(async (_prompt: string, _settings: object) => "It is.");

    await ask("water ".repeat(1_000), { system: "water ".repeat(500), max_tokens: 70 });

    expect(await levelOf(bucket, "tokens")).toBe(1_570);
  });

  it.each<[string, (client: OpenAI) => PromiseLike<unknown>]>([
    ["responses.create", (ai) => ai.responses.create({ model: "m", input: "Why?" })],
    ["responses.compact", (ai) => ai.responses.compact({ model: "m", input: "Why?" })],
    [
      "chat.completions.parse",
      (ai) => ai.chat.completions.parse({ model: "m", messages: [], n: 1 }),
    ],
    ["beta.threads.runs.create", (ai) => ai.beta.threads.runs.create("t_1", { assistant_id: "a" })],
    [
      "beta.threads.createAndRun",
      (ai) => ai.beta.threads.createAndRun({ assistant_id: "a", instructions: "Be brief." }),
    ],
    ["embeddings.create", (ai) => ai.embeddings.create({ model: "m", input: "Why?" })],
  ])("costs tokens through a method that asks a model: %s", async (_method, call) => {
    const api = await apis.start(() => ({
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ choices: [], data: [], ...finished }),
    }));
    const bucket = open(USED);
    const plain = new OpenAI({ apiKey: "k", baseURL: `${api.url}/v1`, maxRetries: 0 });

    await call(throttledClient(plain, bucket));

    expect(await tokensOf(bucket, 3_900)).toBe(3_900);
  });
});
