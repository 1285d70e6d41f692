import process from "node:process";
import type { Queue, Sluice } from "sluice";
import { openai } from "sluice/llm";
import { z } from "zod";
import { readSettings, type SettingsOf, queueVariables, wholeNumber } from "../shared/settings.ts";

/** A job's data: the body of a chat completion request, in the API's form. */
export interface ChatRequest {
  readonly model: string;
  readonly messages: readonly { readonly role: string; readonly content?: unknown }[];
  readonly max_tokens?: number | undefined;
  readonly max_completion_tokens?: number | undefined;
  /** Whether the response is streamed. The job's result is the same. */
  readonly stream?: boolean | undefined;
  readonly [option: string]: unknown;
}

/** A job's result. */
export interface ChatResult {
  readonly text: string;
  /** Why the model stopped, as the API reports it: `"stop"`, `"length"`. */
  readonly finishReason: string | undefined;
  /** How many tokens the request used in total. Undefined if the API did not report this. */
  readonly totalTokens: number | undefined;
  /** The function calls that the model requests, in the API's form. */
  readonly toolCalls?: unknown;
}

const COUNTED = ["reserved", "used"] as const;

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
  tokensCounted: {
    name: "SLUICE_TOKENS_COUNTED",
    as: z.enum(COUNTED, { error: `give one of ${COUNTED.join(", ")}` }).default("reserved"),
  },
};

/**
 * Opens the queue of chat completions with the name from the environment. Producers and workers must use the same
 * queue. A job's cost is an estimate of the tokens that its request will use. After the call, the bucket charges the
 * tokens that the API counted.
 */
export function openLlmQueue(
  sluice: Sluice,
  settings: SettingsOf<typeof LLM_QUEUE> = readSettings(process.env, LLM_QUEUE),
): Queue<ChatRequest, ChatResult> {
  const { queue, bucket = queue, requestsPerMin, tokensPerMin, parallel: concurrency } = settings;
  const preset = openai({
    requests: `${requestsPerMin}/min`,
    tokens: `${tokensPerMin}/min`,
    counts: settings.tokensCounted,
  });
  return sluice.queue(queue, { bucket: sluice.bucket(bucket, { ...preset, concurrency }) });
}
