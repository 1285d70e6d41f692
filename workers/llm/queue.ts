import process from "node:process";
import { leakyBucket, type Queue, type Sluice } from "sluice";
import { readSettings, type SettingsOf, queueVariables, wholeNumber } from "../shared/settings.ts";

/** A job's data: the body of a chat completion request, in the API's form. */
export interface ChatRequest {
  readonly model: string;
  readonly messages: readonly { readonly role: string; readonly content?: unknown }[];
  readonly max_tokens?: number | undefined;
  readonly max_completion_tokens?: number | undefined;
  /** Whether the answer is streamed; the result is the same. */
  readonly stream?: boolean | undefined;
  readonly [option: string]: unknown;
}

/** A job's result. */
export interface ChatResult {
  readonly text: string;
  /** In the API's words: `"stop"`, `"length"`. */
  readonly finishReason: string | undefined;
  /** All tokens used; undefined if the API did not report them. */
  readonly totalTokens: number | undefined;
  /** The function calls that the model asks for, in the API's form. */
  readonly toolCalls?: unknown;
}

export const LLM_QUEUE = {
  ...queueVariables("llm"),
  requestsPerMin: {
    name: "SLUICE_REQUESTS_PER_MIN",
    as: wholeNumber(1, 1_000_000, "requests").default(50),
  },
  tokensPerMin: {
    name: "SLUICE_TOKENS_PER_MIN",
    as: wholeNumber(1, 100_000_000, "tokens").default(90_000),
  },
  tokensBurst: {
    name: "SLUICE_TOKENS_BURST",
    as: wholeNumber(1, 10_000_000, "tokens").optional(),
  },
};

/** Opens the queue of chat completions that the environment names; producers and workers use the same one. */
export function openLlmQueue(
  sluice: Sluice,
  settings: SettingsOf<typeof LLM_QUEUE> = readSettings(process.env, LLM_QUEUE),
): Queue<ChatRequest, ChatResult> {
  const { queue, bucket = queue, requestsPerMin, tokensPerMin, parallel: concurrency } = settings;
  const { tokensBurst = Math.ceil(tokensPerMin / 10) } = settings;
  const limits = [
    leakyBucket(`${requestsPerMin}/min`),
    leakyBucket(`${tokensPerMin}/min`, { unit: "tokens", burst: tokensBurst }),
  ];
  return sluice.queue(queue, { bucket: sluice.bucket(bucket, { limits, concurrency }) });
}

const CHARACTERS_PER_TOKEN = 4;
/** For an answer whose length the request does not limit. */
const TOKENS_OF_ANSWER = 500;
/** For a picture or any other part of a message that is not text. */
const TOKENS_OF_PART = 1_000;

/**
 * Estimates the tokens of a request; pass the result to `enqueue` as `cost: { tokens }`.
 * The estimate is rough: a quarter of the prompt's characters, plus `max_tokens` for the answer
 * (500 if there is none). Text in other scripts than Latin takes more. The worker settles the true cost.
 */
export function estimateTokens(request: ChatRequest): number {
  const { messages, max_tokens, max_completion_tokens, tools } = request;
  let characters = tools === undefined ? 0 : JSON.stringify(tools).length;
  let parts = 0;
  for (const { content } of messages) {
    const contents: readonly unknown[] = Array.isArray(content) ? content : [content];
    for (const part of contents) {
      const text = textOf(part);
      if (text === undefined) parts += 1;
      else characters += text.length;
    }
  }
  const answer = max_completion_tokens ?? max_tokens ?? TOKENS_OF_ANSWER;
  return Math.ceil(characters / CHARACTERS_PER_TOKEN) + parts * TOKENS_OF_PART + answer;
}

function textOf(part: unknown): string | undefined {
  if (typeof part === "string") return part;
  if (typeof part !== "object" || part === null) return "";
  return "text" in part && typeof part.text === "string" ? part.text : undefined;
}
