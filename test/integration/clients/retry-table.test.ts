import { readFile } from "node:fs/promises";
import { createOpenAI } from "@ai-sdk/openai";
import Anthropic from "@anthropic-ai/sdk";
import { DynamoDBClient, ListTablesCommand } from "@aws-sdk/client-dynamodb";
import { GoogleGenAI } from "@google/genai";
import { Octokit } from "@octokit/rest";
import { WebClient } from "@slack/web-api";
import { generateText } from "ai";
import axios from "axios";
import got from "got";
import ky from "ky";
import OpenAI from "openai";
import Stripe from "stripe";
import { request } from "undici";
import { describe, expect, it } from "vitest";
import { fakeApis, type ApiAnswer } from "../../support/servers/fake-api.ts";

const apis = fakeApis();
const messages = [{ role: "user" as const, content: "Why?" }];
const body = JSON.stringify({ error: { message: "later" } });
const UNAVAILABLE: ApiAnswer = {
  status: 503,
  // What the clients that know one of these wait for; others wait as they do by themselves.
  headers: { "content-type": "application/json", "retry-after-ms": "1", "x-amz-retry-after": "1" },
  body,
};

interface Call {
  /** As its row in the docs has it. */
  readonly client: string;
  readonly call: (url: string) => Promise<unknown>;
}

const credentials = { accessKeyId: "a", secretAccessKey: "b" };
const stripeAt = (url: string): Stripe => {
  const { hostname: host, port } = new URL(url);
  return new Stripe("sk_test_x", { host, port: Number(port), protocol: "http" });
};

/** Each with what it does unless it is told otherwise. */
const CALLS: readonly Call[] = [
  {
    client: "OpenAI, Anthropic",
    call: (url) =>
      new OpenAI({ apiKey: "k", baseURL: url }).chat.completions.create({ model: "m", messages }),
  },
  {
    client: "OpenAI, Anthropic",
    call: (url) =>
      new Anthropic({ apiKey: "k", baseURL: url }).messages.create({
        model: "m",
        max_tokens: 1,
        messages,
      }),
  },
  { client: "Stripe", call: (url) => stripeAt(url).customers.list() },
  {
    client: "Vercel's AI SDK",
    call: (url) =>
      generateText({
        model: createOpenAI({ apiKey: "k", baseURL: url }).chat("m"),
        prompt: "Why?",
      }),
  },
  {
    client: "AWS SDK v3, DynamoDB",
    call: (url) =>
      new DynamoDBClient({ region: "eu-west-1", endpoint: url, credentials }).send(
        new ListTablesCommand({}),
      ),
  },
  {
    client: "Octokit, `@octokit/rest`",
    call: (url) => new Octokit({ baseUrl: url }).request("GET /user"),
  },
  {
    client: "Google GenAI",
    call: (url) =>
      new GoogleGenAI({ apiKey: "k", httpOptions: { baseUrl: url } }).models.generateContent({
        model: "m",
        contents: "Why?",
      }),
  },
  { client: "got", call: (url) => got(url) },
  { client: "ky", call: (url) => ky.get(url) },
  { client: "Axios", call: (url) => axios.get(url) },
  { client: "undici", call: (url) => request(url) },
];

/** The retries of each client, as the table in the docs has them. */
async function documented(): Promise<ReadonlyMap<string, number>> {
  const text = await readFile(
    new URL("../../../docs/reference/refusals.md", import.meta.url),
    "utf8",
  );
  const [, table = ""] = text.split("## Retries of common clients");
  const rows = [...table.matchAll(/^\| ([^|]+?) +\| (none|\d+)[^|]*\|/gm)];
  return new Map(rows.map(([, name = "", count]) => [name, count === "none" ? 0 : Number(count)]));
}

describe("the table of the clients' own retries", () => {
  it.each(CALLS)("is right about $client", { timeout: 60_000 }, async ({ client, call }) => {
    const api = await apis.start(() => UNAVAILABLE);
    const expected = (await documented()).get(client);

    await call(api.url).catch(() => undefined);

    expect({ client, retries: api.calls.length - 1 }).toEqual({ client, retries: expected });
  });

  it("is right that Stripe's client does not retry a 429, whatever Retry-After says", async () => {
    const headers = { "content-type": "application/json", "retry-after": "30" };
    const api = await apis.start((_call, number) =>
      number === 0 ? { status: 429, headers, body } : { headers, body: '{"data":[]}' },
    );

    await stripeAt(api.url)
      .customers.list()
      .catch(() => undefined);

    expect(api.calls.map(({ status }) => status)).toEqual([429]);
  });

  it("is right that Slack's client gives up immediately on a 429 without Retry-After", async () => {
    const api = await apis.start(() => ({ status: 429, body: "" }));
    const client = new WebClient("t", { slackApiUrl: `${api.url}/api/` });

    await expect(client.api.test()).rejects.toThrow("Retry header did not contain a valid");

    expect(api.calls).toHaveLength(1);
  });
});
