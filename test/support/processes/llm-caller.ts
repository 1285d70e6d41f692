/** A replica that calls an LLM API without end through its maker's client, with prompts and answers of all sizes. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI, { AzureOpenAI } from "openai";
import { createSluice, type ThrottledFetch } from "sluice";
import { anthropic, azure, bedrock, openai } from "sluice/llm";
import { watchEstimates, type EstimateErrors } from "../llm/estimate-errors.ts";
import { markedForAnthropic, markedForBedrock, sizedCalls, type SizedCall } from "../llm/sizes.ts";

/** What such a process is told, as JSON. */
export interface LlmCallerConfig {
  readonly redis: string;
  readonly prefix: string;
  readonly provider: keyof typeof PRESETS;
  readonly limits: Readonly<Record<string, string>>;
  readonly url: string;
  /** Of the sizes. */
  readonly seed: number;
  /** How many calls wait or run at once. */
  readonly atOnce: number;
  readonly least: number;
  readonly most: number;
}

/** What such a process tells at its end. */
export interface LlmCallerReport {
  readonly failures: readonly string[];
  /** By unit, since it was told to measure. */
  readonly errors: Readonly<Record<string, EstimateErrors>>;
}

type Connect = (url: string, fetch: ThrottledFetch) => (call: SizedCall) => Promise<unknown>;

const userMessage = (content: string) => [{ role: "user" as const, content }];

async function readAll(stream: AsyncIterable<unknown>): Promise<number> {
  let events = 0;
  for await (const _event of stream) events += 1;
  return events;
}

function chat(client: OpenAI): (call: SizedCall) => Promise<unknown> {
  return async ({ prompt, maxTokens, isStreamed }) => {
    const request = {
      model: "gpt-test",
      messages: userMessage(prompt),
      max_completion_tokens: maxTokens,
    };
    if (!isStreamed) return client.chat.completions.create(request);
    const stream_options = { include_usage: true };
    return readAll(
      await client.chat.completions.create({ ...request, stream: true, stream_options }),
    );
  };
}

const CLIENTS: Readonly<Record<string, Connect>> = {
  openai: (url, fetch) =>
    chat(new OpenAI({ apiKey: "k", baseURL: `${url}/v1`, fetch, maxRetries: 0, timeout: 600_000 })),
  azure: (endpoint, fetch) =>
    chat(
      new AzureOpenAI({
        apiKey: "k",
        endpoint,
        apiVersion: "2024-10-21",
        fetch,
        maxRetries: 0,
        timeout: 600_000,
      }),
    ),
  anthropic: (baseURL, fetch) => {
    const client = new Anthropic({ apiKey: "k", baseURL, fetch, maxRetries: 0, timeout: 600_000 });
    return async ({ prompt, maxTokens, isStreamed, cached }) => {
      const system = cached === undefined ? {} : { system: markedForAnthropic(cached) };
      const request = {
        model: "claude-test",
        max_tokens: maxTokens,
        messages: userMessage(prompt),
        ...system,
      };
      if (!isStreamed) return client.messages.create(request);
      return readAll(await client.messages.create({ ...request, stream: true }));
    };
  },
  bedrock:
    (url, fetch) =>
    async ({ prompt, maxTokens, cached }) => {
      const messages = [{ role: "user", content: [{ text: prompt }] }];
      const system = cached === undefined ? {} : { system: markedForBedrock(cached) };
      const body = JSON.stringify({ messages, inferenceConfig: { maxTokens }, ...system });
      const answer = await fetch(`${url}/model/anthropic.claude-test/converse`, {
        method: "POST",
        body,
      });
      return answer.json();
    },
};

const PRESETS = { openai, azure, anthropic, bedrock };

const config = JSON.parse(process.argv[2] ?? "{}") as LlmCallerConfig;
const corpus = readFileSync(join(process.cwd(), "docs/reference/faults.md"), "utf8").repeat(3);

const nextCall = sizedCalls(corpus, config);

const { redis, prefix } = config;
const sluice = createSluice({ redis, prefix, storeTimeoutMs: 30_000 });
const estimates = watchEstimates(PRESETS[config.provider](config.limits));
const bucket = sluice.bucket("model", estimates.options);
const call = CLIENTS[config.provider]!(config.url, bucket.fetch);
const failures: string[] = [];
let isOver = false;

async function callAgainAndAgain(): Promise<void> {
  while (!isOver) {
    await call(nextCall()).catch((error: unknown) => {
      if (!isOver) failures.push(String(error));
    });
  }
}

const ORDERS = {
  go() {
    for (let each = 0; each < config.atOnce; each++) void callAgainAndAgain();
  },
  measure: () => estimates.reset(),
  stop() {
    isOver = true;
    const report: LlmCallerReport = { failures, errors: estimates.errors() };
    process.send?.(report, () => process.exit(0));
  },
};
process.on("message", (order: keyof typeof ORDERS) => ORDERS[order]());
process.send?.("ready");
