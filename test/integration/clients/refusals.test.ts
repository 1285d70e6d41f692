import Anthropic from "@anthropic-ai/sdk";
import { createOpenAI } from "@ai-sdk/openai";
import { DynamoDBClient, ListTablesCommand } from "@aws-sdk/client-dynamodb";
import { GoogleGenAI } from "@google/genai";
import { graphql } from "@octokit/graphql";
import { Octokit } from "@octokit/rest";
import { WebClient } from "@slack/web-api";
import { generateText } from "ai";
import axios from "axios";
import { request as gaxiosRequest } from "gaxios";
import got from "got";
import ky from "ky";
import OpenAI from "openai";
import Stripe from "stripe";
import { Agent, fetch as undiciFetch, interceptors, request as undiciRequest } from "undici";
import { describe, expect, it } from "vitest";
import type { Bucket } from "sluice";
import { fakeApis, type ApiAnswer } from "../../support/servers/fake-api.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const sluices = realSluices();
const apis = fakeApis();

type Call = (url: string) => Promise<unknown>;

/** What a client says of a downstream's refusal, and how long the bucket is to cool for it. */
type Row = readonly [symptom: string, answer: () => ApiAnswer, call: Call, coolMs: number];

/** How long a bucket cools, as soon as Redis has heard of it. */
async function coolingMs(bucket: Bucket): Promise<number> {
  let found = 0;
  await waitUntil(async () => {
    found = (await bucket.peek()).coolingForMs;
    return found > 0;
  }, "the bucket cools");
  return found;
}

const QUIET = { debug() {}, info() {}, warn() {}, error() {} };

function json(value: unknown, { status = 429, headers = {} }: ApiAnswer = {}): ApiAnswer {
  return {
    status,
    headers: { "content-type": "application/json", ...headers },
    body: JSON.stringify(value),
  };
}

const IN_30_SECONDS = { headers: { "retry-after": "30" } };
const askedFor30 = (): ApiAnswer => json({ error: { message: "later" } }, IN_30_SECONDS);

const openai = (url: string) => new OpenAI({ apiKey: "k", baseURL: url, maxRetries: 0 });
const anthropic = (url: string) => new Anthropic({ apiKey: "k", baseURL: url, maxRetries: 0 });
const message = {
  model: "m",
  max_tokens: 1,
  messages: [{ role: "user" as const, content: "Hello" }],
};
const vercel = (url: string) => createOpenAI({ apiKey: "k", baseURL: url })("m");
const octokit = (url: string) => new Octokit({ baseUrl: url, log: QUIET });
const aws = (url: string) =>
  new DynamoDBClient({
    endpoint: url,
    region: "us-east-1",
    credentials: { accessKeyId: "k", secretAccessKey: "s" },
    maxAttempts: 1,
  });
const awsError = (name: string, headers = {}): ApiAnswer =>
  json(
    { __type: `com.amazonaws.dynamodb.v20120810#${name}`, message: "m" },
    { status: 400, headers: { "content-type": "application/x-amz-json-1.0", ...headers } },
  );

function stripe(url: string): Stripe {
  const { hostname: host, port } = new URL(url);
  return new Stripe("sk_test_k", {
    host,
    port: Number(port),
    protocol: "http",
    maxNetworkRetries: 0,
  });
}

function gemini(quotaId: string, retryDelay: string): ApiAnswer {
  const type = "type.googleapis.com/google.rpc";
  const details = [
    { "@type": `${type}.QuotaFailure`, violations: [{ quotaMetric: "m", quotaId }] },
    { "@type": `${type}.RetryInfo`, retryDelay },
  ];
  return json({ error: { code: 429, message: "m", status: "RESOURCE_EXHAUSTED", details } });
}

function googleError(reason: string): ApiAnswer {
  const errors = [{ domain: "usageLimits", reason, message: "m" }];
  return json({ error: { code: 403, message: "m", errors } }, { status: 403 });
}

const askGemini: Call = (baseUrl) =>
  new GoogleGenAI({ apiKey: "k", httpOptions: { baseUrl } }).models.generateContent({
    model: "m",
    contents: "Hello",
  });

const overloaded = { type: "error", error: { type: "overloaded_error", message: "Overloaded" } };
const secondary = { message: "You have exceeded a secondary rate limit. Please wait a minute." };
const graphqlRefusal = {
  data: null,
  errors: [{ type: "RATE_LIMITED", message: "API rate limit" }],
};
const epochIn = (seconds: number): string => String(Math.ceil(Date.now() / 1_000) + seconds);

const rows: readonly Row[] = [
  ["OpenAI", askedFor30, async (url) => openai(url).models.list(), 30_000],
  ["Anthropic", askedFor30, async (url) => anthropic(url).messages.create(message), 30_000],
  [
    "Anthropic, overloaded",
    () => json(overloaded, { status: 529 }),
    async (url) => anthropic(url).messages.create(message),
    1_000,
  ],
  [
    "Anthropic, overloaded in the middle of a stream",
    () => ({
      headers: { "content-type": "text/event-stream" },
      body: `event: error\ndata: ${JSON.stringify(overloaded)}\n\n`,
    }),
    async (url) => {
      const stream = await anthropic(url).messages.create({ ...message, stream: true });
      for await (const event of stream) expect(event).toBeUndefined();
    },
    1_000,
  ],
  ["Stripe", askedFor30, async (url) => stripe(url).customers.list(), 30_000],
  ["axios", askedFor30, (url) => axios.get(url), 30_000],
  ["axios with fetch", askedFor30, (url) => axios.get(url, { adapter: "fetch" }), 30_000],
  ["got", askedFor30, async (url) => got(url, { retry: { limit: 0 } }), 30_000],
  ["ky", askedFor30, async (url) => ky(url, { retry: 0 }), 30_000],
  ["ky, by a body", () => json({ retry_after: 30 }), async (url) => ky(url, { retry: 0 }), 30_000],
  ["undici", askedFor30, (url) => undiciRequest(url), 30_000],
  ["undici's fetch", askedFor30, (url) => undiciFetch(url), 30_000],
  ["undici's fetch, by a body", () => json({ retry_after: 30 }), (url) => undiciFetch(url), 30_000],
  [
    "undici with errors for answers",
    askedFor30,
    (url) => undiciRequest(url, { dispatcher: new Agent().compose(interceptors.responseError()) }),
    30_000,
  ],
  [
    "Vercel's AI SDK",
    askedFor30,
    (url) => generateText({ model: vercel(url), prompt: "Hello", maxRetries: 0 }),
    30_000,
  ],
  [
    "AWS",
    () => awsError("ThrottlingException", { "retry-after": "30" }),
    (url) => aws(url).send(new ListTablesCommand({})),
    30_000,
  ],
  [
    "AWS without a time",
    () => awsError("ProvisionedThroughputExceededException"),
    (url) => aws(url).send(new ListTablesCommand({})),
    1_000,
  ],
  [
    "Slack",
    askedFor30,
    (slackApiUrl) =>
      new WebClient("t", {
        slackApiUrl: `${slackApiUrl}/`,
        rejectRateLimitedCalls: true,
        retryConfig: { retries: 0 },
      }).api.test(),
    30_000,
  ],
  ["Gemini", () => gemini("PerMinutePerProject", "12.345678901s"), askGemini, 12_346],
  [
    "Google's APIs",
    () => googleError("userRateLimitExceeded"),
    (url) => gaxiosRequest({ url, retry: false }),
    1_000,
  ],
  [
    "GitHub, secondary",
    () => json(secondary, { status: 403, headers: { "x-ratelimit-remaining": "4987" } }),
    (url) => octokit(url).rest.users.getAuthenticated(),
    60_000,
  ],
  [
    "GitHub's GraphQL",
    () => json(graphqlRefusal, { status: 200, headers: { "x-ratelimit-reset": epochIn(30) } }),
    (baseUrl) => graphql("{ viewer { login } }", { baseUrl }),
    31_000,
  ],
];

describe("a function that calls a client", () => {
  it.each(rows)(
    "cools its bucket as the downstream asks: %s",
    async (_of, answer, call, coolMs) => {
      const api = await apis.start(answer);
      const bucket = sluices.open().bucket("api", { rate: "1000/s" });

      await bucket
        .throttled(() => call(api.url))()
        .catch(() => undefined);

      const coolingForMs = await coolingMs(bucket);
      expect(coolingForMs).toBeGreaterThan(coolMs === 1_000 ? 0 : coolMs * 0.6);
      expect(coolingForMs).toBeLessThanOrEqual(coolMs);
      expect(api.calls).toHaveLength(1);
    },
  );

  it("reads the error of Vercel's AI SDK after the SDK's own retries", async () => {
    const api = await apis.start((_call, number) =>
      number === 0 ? json({}, { headers: { "retry-after-ms": "1" } }) : askedFor30(),
    );
    const bucket = sluices.open().bucket("api", { rate: "1000/s" });
    const ask = bucket.throttled(() =>
      generateText({ model: vercel(api.url), prompt: "Hello", maxRetries: 1 }),
    );

    expect(await rejectionOf(ask())).toMatchObject({ name: "AI_RetryError" });

    expect(await coolingMs(bucket)).toBeGreaterThan(18_000);
  });

  it.each<[string, () => ApiAnswer, Call]>([
    ["Gemini's", () => gemini("RequestsPerDayPerProject", "12s"), askGemini],
    [
      "another of Google's",
      () => googleError("quotaExceeded"),
      (url) => gaxiosRequest({ url, retry: false }),
    ],
  ])(
    "cools until midnight in California when %s daily quota is used up",
    async (_of, answer, call) => {
      const api = await apis.start(answer);
      const bucket = sluices.open().bucket("api", { rate: "1000/s" });

      await rejectionOf(bucket.throttled(() => call(api.url))());

      const coolingForMs = await coolingMs(bucket);
      const atMs = Date.now() + coolingForMs + 30_000;
      const there = new Date(atMs).toLocaleString("en-GB", { timeZone: "America/Los_Angeles" });
      expect(there).toMatch(/ 00:00:/);
    },
  );

  it("cools no key down when OpenAI's account is out of quota", async () => {
    const error = { code: "insufficient_quota", type: "insufficient_quota", message: "m" };
    const api = await apis.start(() => json({ error }));
    const bucket = sluices.open().bucket("api", { rate: "1000/s" });

    await rejectionOf(bucket.throttled(async () => openai(api.url).models.list())());

    expect((await bucket.peek()).coolingForMs).toBe(0);
  });
});

describe("a client that is given a bucket's fetch", () => {
  const answers = (first: ApiAnswer) => (_call: unknown, number: number) =>
    number === 0 ? first : json({ data: [], content: [], id: "1", ok: true }, { status: 200 });
  const soon = { headers: { "retry-after-ms": "50" } };

  it.each<[string, (url: string, fetch: typeof globalThis.fetch) => Promise<unknown>]>([
    [
      "ky, whose Request has a body",
      async (url, fetch) => ky.post(url, { fetch, json: { a: 1 }, retry: 0 }),
    ],
    [
      "axios with its fetch adapter",
      (url, fetch) => axios.post(url, { a: 1 }, { adapter: "fetch", env: { fetch } }),
    ],
    [
      "OpenAI",
      async (url, fetch) =>
        new OpenAI({ apiKey: "k", baseURL: url, maxRetries: 0, fetch }).embeddings.create({
          model: "m",
          input: "a",
        }),
    ],
    [
      "Anthropic",
      async (url, fetch) =>
        new Anthropic({ apiKey: "k", baseURL: url, maxRetries: 0, fetch }).messages.create(message),
    ],
  ])("succeeds after a rejection: %s", async (_of, call) => {
    const api = await apis.start(answers(json({}, soon)));
    const bucket = sluices.open().bucket("api", { rate: "1000/s" });

    await call(api.url, bucket.fetch);

    expect(api.calls).toHaveLength(2);
    expect(api.calls[1]!.body).toBe(api.calls[0]!.body);
    expect(api.calls[0]!.body).not.toBe("");
  });

  it("succeeds after a rejection of GitHub's GraphQL, which has status 200", async () => {
    const data = { data: { viewer: { login: "ada" } } };
    const api = await apis.start((_call, number) =>
      number === 0
        ? json(graphqlRefusal, { status: 200, headers: { "retry-after": "1" } })
        : json(data, { status: 200 }),
    );
    const { fetch } = sluices.open().bucket("api", { rate: "1000/s" });

    const { viewer } = await graphql<{ viewer: object }>("{ viewer { login } }", {
      baseUrl: api.url,
      request: { fetch },
    });

    expect(viewer).toEqual({ login: "ada" });
    expect(api.calls).toHaveLength(2);
  });

  it("cools for an overload in the middle of Anthropic's stream", async () => {
    const api = await apis.start(() => ({
      headers: { "content-type": "text/event-stream" },
      body: `event: error\ndata: ${JSON.stringify(overloaded)}\n\n`,
    }));
    const bucket = sluices.open().bucket("api", { rate: "1000/s" });
    const client = new Anthropic({ apiKey: "k", baseURL: api.url, fetch: bucket.fetch });
    const stream = await client.messages.create({ ...message, stream: true });

    await rejectionOf(stream[Symbol.asyncIterator]().next());

    expect(await coolingMs(bucket)).toBeGreaterThan(0);
  });

  it.each([
    ["x-should-retry", { error: { message: "m" } }],
    ["stripe-should-retry", { error: { message: "m" } }],
  ])("gets a rejection immediately that forbids a retry by %s", async (name, body) => {
    const headers = { [name]: "false", "retry-after-ms": "50" };
    const api = await apis.start(() => json(body, { headers }));
    const { fetch } = sluices.open().bucket("api", { rate: "1000/s" });

    const response = await fetch(api.url);

    expect(response.status).toBe(429);
    expect(await response.json()).toEqual(body);
    expect(api.calls).toHaveLength(1);
  });

  it("resends a request whose failure says that a retry is useful", async () => {
    const headers = { "x-should-retry": "true" };
    const api = await apis.start(answers(json({}, { status: 500, headers })));
    const { fetch } = sluices.open().bucket("api", { rate: "1000/s" });

    const response = await fetch(api.url, { method: "POST", body: "a" });

    expect(response.status).toBe(200);
    expect(api.calls.map(({ body }) => body)).toEqual(["a", "a"]);
  });

  it("gets the response of an account without quota immediately, and cools no key down", async () => {
    const error = { code: "insufficient_quota", message: "m" };
    const api = await apis.start(() => json({ error }));
    const bucket = sluices.open().bucket("api", { rate: "1000/s" });

    const response = await bucket.fetch(api.url);

    expect(await response.json()).toEqual({ error });
    expect(api.calls).toHaveLength(1);
    expect((await bucket.peek()).coolingForMs).toBe(0);
  });
});
