import Anthropic from "@anthropic-ai/sdk";
import got from "got";
import ky from "ky";
import OpenAI from "openai";
import Stripe from "stripe";
import { describe, expect, it } from "vitest";
import { throttledClient, type Bucket } from "sluice";
import { openai } from "sluice/llm";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { fakeApis, type ApiAnswer, type FakeApi } from "../../support/servers/fake-api.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const apis = fakeApis();
const JSON_TYPE = { "content-type": "application/json", "x-request-id": "req_1" };
const usage = { prompt_tokens: 5, completion_tokens: 6, total_tokens: 11 };
const completion = { id: "c", object: "chat.completion", choices: [], usage };
const request = { model: "m", messages: [{ role: "user" as const, content: "Why?" }] };

const open = (): Bucket =>
  sluices.open().bucket("api", openai({ tokens: "100000/h", counts: "used", headroom: 0 }));

function answer(body: object): ApiAnswer {
  return { headers: JSON_TYPE, body: JSON.stringify(body) };
}

async function openClient(body: object = completion): Promise<{
  readonly client: OpenAI;
  readonly bucket: Bucket;
  readonly api: FakeApi;
}> {
  const api = await apis.start(() => answer(body));
  const bucket = open();
  const plain = new OpenAI({ apiKey: "k", baseURL: `${api.url}/v1`, maxRetries: 0 });
  return { client: throttledClient(plain, bucket), bucket, api };
}

async function expectTokens(bucket: Bucket, tokens: number): Promise<void> {
  const level = async (): Promise<number> =>
    (await bucket.peek()).limits.findLast(({ unit }) => unit === "tokens")!.level;
  await waitUntil(async () => (await level()) === tokens, `${tokens} tokens are booked`);
}

describe("the promise of a paced client of OpenAI", () => {
  it("has withResponse(), which settles it", async () => {
    const { client, bucket, api } = await openClient();

    const { data, response, request_id } = await client.chat.completions
      .create(request)
      .withResponse();

    expect(data).toMatchObject({ usage });
    expect([response.status, request_id]).toEqual([200, "req_1"]);
    expect(api.calls).toHaveLength(1);
    await expectTokens(bucket, 11);
  });

  it("has asResponse(), with an unread body", async () => {
    const { client, bucket } = await openClient();

    const response = await client.chat.completions.create(request).asResponse();

    expect(await response.json()).toMatchObject({ usage });
    await expectTokens(bucket, 11);
  });

  it("can be used in several ways for one call", async () => {
    const { client, api } = await openClient();

    const promise = client.chat.completions.create(request);
    const { response } = await promise.withResponse();
    const data = await promise;
    const again = await promise.withResponse();

    expect(data).toMatchObject({ usage });
    expect([response.status, again.response.status]).toEqual([200, 200]);
    expect(api.calls).toHaveLength(1);
  });

  it("is still a promise", async () => {
    const { client } = await openClient();

    const promise = client.chat.completions.create(request);
    const ended: string[] = [];

    expect(promise).toBeInstanceOf(Promise);
    await promise.finally(() => void ended.push("finally"));
    expect(await Promise.all([promise, promise])).toMatchObject([{ usage }, { usage }]);
    expect(ended).toEqual(["finally"]);
  });

  it("rejects like the client's promise, however it is used", async () => {
    const api = await apis.start(() => ({ status: 400, headers: JSON_TYPE, body: "{}" }));
    const plain = new OpenAI({ apiKey: "k", baseURL: `${api.url}/v1`, maxRetries: 0 });
    const client = throttledClient(plain, open());

    for (const call of [
      () => client.chat.completions.create(request),
      () => client.chat.completions.create(request).withResponse(),
      () => client.chat.completions.create(request).asResponse(),
      () =>
        client.chat.completions.create(request).catch((error: unknown) => Promise.reject(error)),
    ]) {
      expect(await rejectionOf(call())).toBeInstanceOf(OpenAI.BadRequestError);
    }
  });

  it("can be iterated over like pages", async () => {
    const models = ["a", "b", "c"].map((id) => ({ id, object: "model" }));
    const { client } = await openClient({ object: "list", data: models });
    const ids: string[] = [];

    for await (const { id } of client.models.list()) ids.push(id);

    expect(ids).toEqual(["a", "b", "c"]);
  });

  it("gives streams that can be read", async () => {
    const chunk = { id: "c", choices: [{ index: 0, delta: { content: "Hi" } }] };
    const last = { id: "c", choices: [], usage };
    const events = [chunk, last].map((each) => `data: ${JSON.stringify(each)}\n\n`).join("");
    const api = await apis.start(() => ({
      headers: { "content-type": "text/event-stream" },
      body: `${events}data: [DONE]\n\n`,
    }));
    const bucket = open();
    const plain = new OpenAI({ apiKey: "k", baseURL: `${api.url}/v1`, maxRetries: 0 });
    const client = throttledClient(plain, bucket);
    let chunks = 0;

    const { data } = await client.chat.completions
      .create({ ...request, stream: true })
      .withResponse();
    for await (const _chunk of data) chunks += 1;
    for await (const _chunk of await client.chat.completions.create({ ...request, stream: true }))
      chunks += 1;

    expect(chunks).toBe(4);
  });
});

describe("the promise of another paced client", () => {
  it("has withResponse() of Anthropic's, and its stream's final message", async () => {
    const message = {
      id: "m",
      type: "message",
      role: "assistant",
      model: "m",
      content: [],
      usage: { input_tokens: 1, output_tokens: 1 },
    };
    const api = await apis.start(() => answer(message));
    const plain = new Anthropic({ apiKey: "k", baseURL: api.url, maxRetries: 0 });
    const client = throttledClient(plain, open());

    const { data } = await client.messages
      .create({ model: "m", max_tokens: 5, messages: request.messages })
      .withResponse();

    expect(data.id).toBe("m");
  });

  it("can be iterated over like Stripe's lists, also by their own method", async () => {
    const data = ["a", "b"].map((id) => ({ id, object: "customer" }));
    const api = await apis.start(() => answer({ object: "list", data, has_more: false }));
    const { hostname: host, port } = new URL(api.url);
    const plain = new Stripe("sk_test_x", {
      host,
      port: Number(port),
      protocol: "http",
      maxNetworkRetries: 0,
    });
    const client = throttledClient(plain, open(), { methods: ["customers.list"] });
    const ids: string[] = [];

    for await (const { id } of client.customers.list()) ids.push(id);
    const all = await client.customers.list().autoPagingToArray({ limit: 10 });

    expect(ids).toEqual(["a", "b"]);
    expect(all.map(({ id }) => id)).toEqual(["a", "b"]);
  });

  it.each([
    ["got", (url: string) => throttledClient({ get: (at: string) => got(at) }, open()).get(url)],
    ["ky", (url: string) => throttledClient({ get: (at: string) => ky.get(at) }, open()).get(url)],
  ])("has json() of %s", async (_name, get) => {
    const api = await apis.start(() => answer({ hello: 1 }));

    expect(await get(api.url).json()).toEqual({ hello: 1 });
  });

  it("rejects with the missing method where the client's promise has none", async () => {
    const api = throttledClient({ find: async (id: number) => id }, open());

    const promise = api.find(1) as unknown as { withResponse(): Promise<unknown> };

    expect(await rejectionOf(promise.withResponse())).toMatchObject({
      message: expect.stringContaining('no method "withResponse"') as string,
    });
  });
});

describe("a throttled function that returns a response", () => {
  it("leaves its body to the caller, although the bucket reads the usage", async () => {
    const api = await apis.start(() => answer(completion));
    const bucket = open();
    const post = bucket.throttled((body: object) =>
      fetch(`${api.url}/v1/chat/completions`, { method: "POST", body: JSON.stringify(body) }),
    );

    const response = await post(request);

    expect(await response.json()).toMatchObject({ usage });
    await expectTokens(bucket, 11);
  });
});
