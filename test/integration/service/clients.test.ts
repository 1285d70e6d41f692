import { execFile } from "node:child_process";
import { promisify } from "node:util";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import Stripe from "stripe";
import { describe, expect, it } from "vitest";
import { leakyBucket, tokenBucket } from "sluice";
import { anthropic, openai } from "sluice/llm";
import { fakeApis, type ApiAnswer } from "../../support/servers/fake-api.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { services } from "../../support/server/service.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const run = promisify(execFile);
const sluices = realSluices();
const servers = services();
const apis = fakeApis();

const json = (value: object): ApiAnswer => ({
  headers: { "content-type": "application/json" },
  body: JSON.stringify(value),
});
const events = (lines: readonly object[], last = ""): ApiAnswer => ({
  headers: { "content-type": "text/event-stream" },
  body: `${lines.map((line) => `data: ${JSON.stringify(line)}\n\n`).join("")}${last}`,
});
const messages = [{ role: "user" as const, content: "Why?" }];

describe("the client of OpenAI with only the base URL changed", () => {
  it("waits, streams, and is charged what its answers say", async () => {
    const usage = { prompt_tokens: 10, completion_tokens: 30, total_tokens: 40 };
    const api = await apis.start(({ body }) => {
      const common = { id: "c", created: 1, model: "gpt-test" };
      if (!(JSON.parse(body) as { stream?: boolean }).stream) {
        const choices = [
          { index: 0, message: { role: "assistant", content: "So." }, finish_reason: "stop" },
        ];
        return json({ ...common, object: "chat.completion", choices, usage });
      }
      const chunk = { ...common, object: "chat.completion.chunk" };
      const choices = [{ index: 0, delta: { content: "So." }, finish_reason: null }];
      return events(
        [
          { ...chunk, choices },
          { ...chunk, choices: [], usage },
        ],
        "data: [DONE]\n\n",
      );
    });
    const sluice = sluices.open();
    const bucket = sluice.bucket("gpt", {
      ...openai({ tokens: "60000/h", counts: "used", headroom: 0 }),
      limits: [tokenBucket({ capacity: 100_000, refill: "1/h", unit: "tokens" })],
    });
    const service = await servers.start(sluice, { forward: { openai: { to: api.url, bucket } } });
    const client = new OpenAI({ apiKey: "sk-theirs", baseURL: `${service.url}/openai/v1` });
    const left = async (): Promise<number> => (await bucket.peek()).limits[0]!.remaining!;

    const answer = await client.chat.completions.create({ model: "gpt-test", messages });
    await waitUntil(async () => (await left()) === 99_960, "40 tokens are charged");
    let text = "";
    const stream_options = { include_usage: true };
    const more = { model: "gpt-test", messages, stream: true as const, stream_options };
    for await (const chunk of await client.chat.completions.create(more)) {
      text += chunk.choices[0]?.delta.content ?? "";
    }
    await waitUntil(async () => (await left()) === 99_920, "40 more are");

    expect([answer.choices[0]!.message.content, text]).toEqual(["So.", "So."]);
    expect(api.calls[0]).toMatchObject({
      path: "/v1/chat/completions",
      headers: { authorization: "Bearer sk-theirs" },
    });
  });

  it("learns immediately that the wait is too long, and does not retry by itself", async () => {
    const api = await apis.start(() => json({}));
    const sluice = sluices.open();
    const bucket = sluice.bucket("gpt", { rate: "1/h" });
    const service = await servers.start(sluice, { forward: { openai: { to: api.url, bucket } } });
    const defaultHeaders = { "x-sluice-max-wait": "500" };
    const client = new OpenAI({ apiKey: "x", baseURL: `${service.url}/openai/v1`, defaultHeaders });
    await bucket.draw();

    const asking = client.chat.completions.create({ model: "gpt-test", messages });

    await expect(asking).rejects.toBeInstanceOf(OpenAI.RateLimitError);
    expect(api.calls).toEqual([]);
  });

  it("settles what has come of a stream that is left early", async () => {
    const api = await apis.start(() => ({
      headers: { "content-type": "text/event-stream" },
      stream(response) {
        const chunk = { id: "c", object: "chat.completion.chunk", created: 1, model: "m" };
        const choices = [{ index: 0, delta: { content: "So it goes." }, finish_reason: null }];
        response.write(`data: ${JSON.stringify({ ...chunk, choices })}\n\n`);
      },
    }));
    const sluice = sluices.open();
    const bucket = sluice.bucket("gpt", {
      ...openai({ tokens: "60000/h", counts: "used", headroom: 0 }),
      limits: [tokenBucket({ capacity: 100_000, refill: "1/h", unit: "tokens" })],
    });
    const service = await servers.start(sluice, { forward: { openai: { to: api.url, bucket } } });
    const client = new OpenAI({ apiKey: "x", baseURL: `${service.url}/openai/v1` });

    const stream = await client.chat.completions.create({
      model: "m",
      messages,
      max_tokens: 5_000,
      stream: true,
    });
    for await (const _chunk of stream) break;

    await waitUntil(
      async () => (await bucket.peek()).limits[0]!.remaining! > 99_900,
      "the rest of the 5,000 is given back",
    );
    expect(api.calls).toHaveLength(1);
  });
});

describe("the client of Anthropic with only the base URL changed", () => {
  it("waits out a refusal, and is charged by input and output", async () => {
    const api = await apis.start((_call, number) => {
      if (number === 0) {
        const error = { type: "rate_limit_error", message: "too many" };
        return { ...json({ type: "error", error }), status: 429, headers: { "retry-after": "1" } };
      }
      const usage = { input_tokens: 14, output_tokens: 9 };
      const content = [{ type: "text", text: "So." }];
      return json({ id: "m", type: "message", role: "assistant", content, model: "c", usage });
    });
    const sluice = sluices.open();
    const limit = { capacity: 100_000, refill: "1/h" } as const;
    const bucket = sluice.bucket("claude", {
      ...anthropic({ input: "1000000/h", output: "1000000/h" }),
      limits: [tokenBucket({ ...limit, unit: "input" }), tokenBucket({ ...limit, unit: "output" })],
    });
    const service = await servers.start(sluice, {
      forward: { anthropic: { to: api.url, bucket } },
    });
    const baseURL = `${service.url}/anthropic`;
    const client = new Anthropic({ apiKey: "key-theirs", baseURL, maxRetries: 0 });

    const answer = await client.messages.create({ model: "c", max_tokens: 50, messages });

    expect(answer.usage.output_tokens).toBe(9);
    expect(api.calls[1]).toMatchObject({
      path: "/v1/messages",
      headers: { authorization: "Bearer key-theirs" },
    });
    expect(api.calls[1]!.atMs - api.calls[0]!.atMs).toBeGreaterThan(900);
    await waitUntil(async () => {
      const { limits } = await bucket.peek();
      return limits[0]!.remaining === 99_986 && limits[1]!.remaining === 99_991;
    }, "14 of input and 9 of output are charged");
  });
});

describe("the client of Stripe with only the base URL changed", () => {
  it("leaves at the rate of its account", async () => {
    const api = await apis.start(({ body }) =>
      json({
        id: "pi_1",
        object: "payment_intent",
        amount: Number(new URLSearchParams(body).get("amount")),
      }),
    );
    const sluice = sluices.open();
    const bucket = sluice.bucket("stripe", { limits: [leakyBucket("20/s")] });
    const to = `${api.url}/v1`;
    const service = await servers.start(sluice, { forward: { stripe: { at: "/v1", to, bucket } } });
    const { hostname: host, port } = new URL(service.url);
    const client = new Stripe("sk_test_1", { protocol: "http", host, port, telemetry: false });

    const beganMs = performance.now();
    const intents = await Promise.all(
      [100, 200, 300].map((amount) => client.paymentIntents.create({ amount, currency: "eur" })),
    );

    expect(intents.map(({ amount }) => amount)).toEqual([100, 200, 300]);
    expect(api.calls[2]!.atMs - beganMs).toBeGreaterThan(99);
    expect(api.calls[0]!.path).toBe("/v1/payment_intents");
  });
});

describe("other languages", () => {
  const PYTHON = `
import json, sys, urllib.request, urllib.error
base = sys.argv[1]
def ask(path, body, headers={}):
    data = json.dumps(body).encode()
    asked = urllib.request.Request(base + path, data, {"content-type": "application/json", **headers})
    try:
        with urllib.request.urlopen(asked) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        return refused.code, refused.headers["retry-after"]
print(ask("/v1/buckets/api/draw", {"key": "acme"})[0])
print(ask("/v1/buckets/api/try", {"key": "acme"})[0])
print(ask("/up/things", {"a": 1}, {"x-tenant": "other"})[1]["echo"])
print(ask("/up/things", {"a": 1}, {"x-tenant": "other", "x-sluice-max-wait": "50"})[0])
`;

  async function start(): Promise<string> {
    const api = await apis.start(({ body }) => json({ echo: body }));
    const sluice = sluices.open();
    const bucket = sluice.bucket("api", { perKey: { rate: "1/h" } });
    const key = { header: "x-tenant" };
    const service = await servers.start(sluice, { forward: { up: { to: api.url, bucket, key } } });
    return service.url;
  }

  it("draw and forward from Python, with what it has", async () => {
    const { stdout, stderr } = await run("python3", ["-c", PYTHON, await start()]);

    expect(stderr).toBe("");
    expect(stdout.trim().split("\n")).toEqual(["200", "429", '{"a": 1}', "429"]);
  });

  it("draw and forward from the shell, with curl", async () => {
    const url = await start();
    const curl = async (...args: string[]): Promise<string> =>
      (await run("curl", ["-s", ...args])).stdout;
    const status = ["-o", "/dev/null", "-w", "%{http_code}"];

    const [drawn, tried] = [
      await curl(...status, "--json", '{"key":"acme"}', `${url}/v1/buckets/api/draw`),
      await curl(...status, "--json", '{"key":"acme"}', `${url}/v1/buckets/api/try`),
    ];
    const forwarded = await curl("-H", "x-tenant: other", "-d", "a=1", `${url}/up/things`);

    expect([drawn, tried, forwarded]).toEqual(["200", "429", '{"echo":"a=1"}']);
  });
});
