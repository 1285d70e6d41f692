import Anthropic from "@anthropic-ai/sdk";
import { WebClient } from "@slack/web-api";
import OpenAI from "openai";
import Stripe from "stripe";
import { describe, expect, it } from "vitest";
import { createSluice, throttledClient } from "sluice";

const KEY = { apiKey: "k" };
const METHODS = { methods: ["*"] };

describe("a client that is wrapped", () => {
  async function warningsOf(...clients: object[]): Promise<readonly string[]> {
    const messages: string[] = [];
    const log = (_facts: object, message: string): void => void messages.push(message);
    const sluice = createSluice({ logger: { warn: log, error: log } });
    const bucket = sluice.bucket("api", { rate: "10/s" });
    for (const client of clients) throttledClient(client, bucket, METHODS);
    await sluice.close();
    return messages.filter((message) => message.startsWith("throttledClient()"));
  }

  it.each<[string, object, string]>([
    ["OpenAI", new OpenAI(KEY), "maxRetries: 2"],
    ["a part of OpenAI", new OpenAI(KEY).chat.completions, "maxRetries: 2"],
    ["Anthropic", new Anthropic(KEY), "maxRetries: 2"],
    ["Stripe", new Stripe("sk_test_k"), "maxNetworkRetries: 2"],
    ["Slack", new WebClient("t", { retryConfig: { retries: 3 } }), "retries: 3"],
  ])("logs one warning when it retries by itself: %s", async (_of, client, said) => {
    const messages = await warningsOf(client, client);

    expect(messages).toEqual([expect.stringContaining(said)]);
  });

  it.each<[string, object]>([
    ["OpenAI", new OpenAI({ ...KEY, maxRetries: 0 })],
    ["Anthropic", new Anthropic({ ...KEY, maxRetries: 0 })],
    ["Stripe", new Stripe("sk_test_k", { maxNetworkRetries: 0 })],
    ["one of your own", { get: () => "a" }],
  ])("logs no warning when it does not retry: %s", async (_of, client) => {
    expect(await warningsOf(client)).toEqual([]);
  });
});
