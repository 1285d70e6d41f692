/**
 * Fakes of LLM APIs that count as the real ones do, answer with a usage, whole or as a stream, and punish: after a refusal
 * nothing passes for a while.
 */
import { countTokens } from "gpt-tokenizer";
import type { ApiCall } from "../servers/fake-api.ts";
import type { Quota } from "./quotas.ts";

export type Provider = "openai" | "azure" | "anthropic" | "bedrock" | "gemini";

/** A request as a fake reads it. */
interface Asked {
  readonly prompt: number;
  /** Of it, what is read from a cache. */
  readonly cached: number;
  readonly maxTokens: number | undefined;
  readonly streams: boolean;
}

/** What was let pass. */
interface Taken {
  readonly atMs: number;
  readonly amounts: Readonly<Record<string, number>>;
}

export interface FakeProviderOptions {
  readonly provider: Provider;
  /** By unit; all of each unit's have to agree. */
  readonly quotas: Readonly<Record<string, readonly Quota[]>>;
  /** How much of `max_tokens` an answer takes. */
  readonly answerPart?: number | undefined;
}

/** A provider, whatever its requests come by. */
export interface FakeProvider {
  readonly taken: readonly Taken[];
  readonly refusals: readonly string[];
  answer(call: Pick<ApiCall, "body" | "path">): ProviderAnswer;
}

interface ProviderAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  /** Counts what the answer took in the end, and returns its body. */
  readonly end: () => string;
}

/** What a token of an answer burns on Bedrock. */
const BURN = 5;
const PENALTY_MS = 3_000;
/** How long an answer takes. */
export const LATENCY_MS = 60;
/** The tokenizers of other makers cut text into more pieces. */
const FACTOR: Readonly<Record<Provider, number>> = {
  openai: 1,
  azure: 1,
  anthropic: 1.25,
  bedrock: 1.25,
  gemini: 0.95,
};

export function createFakeProvider(options: FakeProviderOptions): FakeProvider {
  const { provider, quotas, answerPart = 0.3 } = options;
  const taken: Taken[] = [];
  const refusals: string[] = [];
  let punishedUntilMs = -Infinity;

  function quotasOf(amounts: Readonly<Record<string, number>>): [string, Quota, number][] {
    return Object.entries(amounts).flatMap(([unit, amount]) =>
      (quotas[unit] ?? []).map((quota): [string, Quota, number] => [unit, quota, amount]),
    );
  }

  return {
    taken,
    refusals,
    answer({ body, path }) {
      const asked = readAsked(provider, body, path);
      const output = Math.max(1, Math.round((asked.maxTokens ?? 300) * answerPart));
      const before: Record<string, number> = { calls: 1, ...countedBefore(provider, asked) };
      const nowMs = performance.now();
      const short = quotasOf(before).find(([, quota, amount]) => !quota.has(amount));
      if (nowMs < punishedUntilMs || short !== undefined) {
        refusals.push(`${short?.[0] ?? "penalty"} at ${Math.round(nowMs)}`);
        punishedUntilMs = nowMs + PENALTY_MS;
        const { status, headers, text } = refused(provider);
        return { status, headers, end: () => text };
      }
      const inTheEnd = { ...before, ...countedAfter(provider, asked, output) };
      for (const [, quota, amount] of quotasOf(before)) quota.take(amount);
      taken.push({ atMs: nowMs, amounts: inTheEnd });
      // No provider says it: by unit, the most that it counted for the call.
      const counted = JSON.stringify(mostOf(before, inTheEnd));
      const type = asked.streams ? "text/event-stream" : "application/json";
      return {
        status: 200,
        headers: { "content-type": type, "x-counted": counted },
        end() {
          for (const [unit, quota, amount] of quotasOf(inTheEnd)) {
            quota.correct(amount - (before[unit] ?? 0));
          }
          if (asked.streams) return eventsOf(provider, asked, output);
          return JSON.stringify(answerOf(provider, asked, output));
        },
      };
    },
  };
}

function mostOf(
  before: Readonly<Record<string, number>>,
  after: Readonly<Record<string, number>>,
): Record<string, number> {
  const units = Object.keys({ ...before, ...after });
  return Object.fromEntries(
    units.map((unit) => [unit, Math.max(before[unit] ?? 0, after[unit] ?? 0)]),
  );
}

function tokensOf(provider: Provider, text: string): number {
  return Math.ceil(countTokens(text) * FACTOR[provider]);
}

interface SystemPart {
  readonly text?: string;
  readonly cache_control?: object;
  readonly cachePoint?: object;
}

interface Body {
  readonly messages?: readonly {
    readonly content: string | readonly { readonly text: string }[];
  }[];
  readonly contents?: readonly { readonly parts: readonly { readonly text: string }[] }[];
  readonly system?: string | readonly SystemPart[];
  readonly max_tokens?: number;
  readonly max_completion_tokens?: number;
  readonly inferenceConfig?: { readonly maxTokens?: number };
  readonly generationConfig?: { readonly maxOutputTokens?: number };
  readonly stream?: boolean;
}

function readAsked(provider: Provider, text: string, path: string): Asked {
  const body = JSON.parse(text) as Body;
  const contents = [
    ...(body.messages ?? []).flatMap(({ content }) =>
      typeof content === "string" ? [content] : content.map((part) => part.text),
    ),
    ...(body.contents ?? []).flatMap(({ parts }) => parts.map((part) => part.text)),
  ];
  const parts = typeof body.system === "string" ? [{ text: body.system }] : (body.system ?? []);
  const system = parts.reduce((sum, { text: part = "" }) => sum + tokensOf(provider, part), 0);
  // Neither Anthropic nor Bedrock caches what is not marked.
  const isMarked = parts.some((part) => "cache_control" in part || "cachePoint" in part);
  const own = contents.reduce((sum, each) => sum + tokensOf(provider, each) + 4, 0);
  return {
    prompt: own + system,
    cached: isMarked ? system : 0,
    maxTokens:
      body.max_completion_tokens ??
      body.max_tokens ??
      body.inferenceConfig?.maxTokens ??
      body.generationConfig?.maxOutputTokens,
    streams: body.stream === true || path.includes("streamGenerateContent"),
  };
}

function countedBefore(
  provider: Provider,
  { prompt, cached, maxTokens = 0 }: Asked,
): Record<string, number> {
  switch (provider) {
    case "openai":
      return { tokens: Math.max(prompt, maxTokens) };
    case "azure":
    case "bedrock":
      return { tokens: prompt + maxTokens };
    case "anthropic":
      return { input: prompt - cached, output: 0 };
    case "gemini":
      return { input: prompt };
  }
}

function countedAfter(
  provider: Provider,
  { prompt, cached }: Asked,
  output: number,
): Record<string, number> {
  if (provider === "anthropic") return { output };
  if (provider === "bedrock") return { tokens: prompt - cached + BURN * output };
  return {};
}

function answerOf(provider: Provider, { prompt, cached }: Asked, output: number): object {
  switch (provider) {
    case "openai":
    case "azure": {
      const message = { role: "assistant", content: "…" };
      const usage = {
        prompt_tokens: prompt,
        completion_tokens: output,
        total_tokens: prompt + output,
      };
      const choices = [{ index: 0, message, finish_reason: "stop" }];
      return { id: "c", object: "chat.completion", created: 1, model: "m", choices, usage };
    }
    case "anthropic": {
      const content = [{ type: "text", text: "…" }];
      const usage = {
        input_tokens: prompt - cached,
        cache_read_input_tokens: cached,
        cache_creation_input_tokens: 0,
        output_tokens: output,
      };
      return {
        id: "m",
        type: "message",
        role: "assistant",
        model: "m",
        content,
        stop_reason: "end_turn",
        usage,
      };
    }
    case "bedrock": {
      const usage = {
        inputTokens: prompt - cached,
        cacheReadInputTokens: cached,
        cacheWriteInputTokens: 0,
        outputTokens: output,
        totalTokens: prompt + output,
      };
      return { output: { message: { role: "assistant", content: [{ text: "…" }] } }, usage };
    }
    case "gemini": {
      const usageMetadata = { promptTokenCount: prompt, candidatesTokenCount: output };
      return {
        candidates: [{ content: { role: "model", parts: [{ text: "…" }] } }],
        usageMetadata,
      };
    }
  }
}

function eventsOf(provider: Provider, { prompt, cached }: Asked, output: number): string {
  if (provider === "anthropic") {
    const usage = {
      input_tokens: prompt - cached,
      cache_read_input_tokens: cached,
      output_tokens: 1,
    };
    const message = { id: "m", type: "message", role: "assistant", model: "m", content: [], usage };
    const delta = { type: "text_delta", text: "…" };
    return [
      { type: "message_start", message },
      { type: "content_block_start", index: 0, content_block: { type: "text", text: "" } },
      { type: "content_block_delta", index: 0, delta },
      { type: "content_block_stop", index: 0 },
      {
        type: "message_delta",
        delta: { stop_reason: "end_turn" },
        usage: { output_tokens: output },
      },
      { type: "message_stop" },
    ]
      .map((data) => `event: ${data.type}\ndata: ${JSON.stringify(data)}\n\n`)
      .join("");
  }
  const chunk = { id: "c", object: "chat.completion.chunk", created: 1, model: "m" };
  const usage = { prompt_tokens: prompt, completion_tokens: output, total_tokens: prompt + output };
  const events = [
    { ...chunk, choices: [{ index: 0, delta: { content: "…" }, finish_reason: null }] },
    { ...chunk, choices: [{ index: 0, delta: {}, finish_reason: "stop" }] },
    { ...chunk, choices: [], usage },
  ].map((data) => `data: ${JSON.stringify(data)}\n\n`);
  return `${events.join("")}data: [DONE]\n\n`;
}

interface Refusal {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly text: string;
}

function refused(provider: Provider): Refusal {
  const type = { "content-type": "application/json" };
  const seconds = String(PENALTY_MS / 1_000);
  switch (provider) {
    case "openai":
    case "azure": {
      const error = { message: "Rate limit reached", type: "tokens", code: "rate_limit_exceeded" };
      const headers = { ...type, "retry-after-ms": String(PENALTY_MS), "retry-after": seconds };
      return { status: 429, headers, text: JSON.stringify({ error }) };
    }
    case "anthropic": {
      const error = { type: "rate_limit_error", message: "Too many" };
      return {
        status: 429,
        headers: { ...type, "retry-after": seconds },
        text: JSON.stringify({ type: "error", error }),
      };
    }
    case "bedrock": {
      const headers = { ...type, "x-amzn-errortype": "ThrottlingException" };
      return {
        status: 429,
        headers,
        text: JSON.stringify({ message: "Too many tokens, please wait before trying again." }),
      };
    }
    case "gemini": {
      const details = [
        { "@type": "type.googleapis.com/google.rpc.RetryInfo", retryDelay: `${seconds}s` },
      ];
      const error = { code: 429, status: "RESOURCE_EXHAUSTED", message: "Quota exceeded", details };
      return { status: 429, headers: type, text: JSON.stringify({ error }) };
    }
  }
}
