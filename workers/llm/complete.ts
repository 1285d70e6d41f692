import { Discard } from "sluice";
import { z } from "zod";
import { CallError, isFinal, callInTime } from "../shared/call.ts";
import { readAnswer, readStreamedAnswer } from "./answer.ts";
import type { ChatRequest, ChatResult } from "./queue.ts";

export interface CompleteOptions {
  /** The base URL of the API, including its version: `https://api.openai.com/v1`. */
  readonly baseUrl: string;
  readonly apiKey: string;
  /** The time limit for a whole completion, up to its last event, in ms. */
  readonly timeoutMs: number;
  /**
   * The function that sends requests. Pass the bucket's `fetch`, which counts the tokens that a response used. Defaults
   * to the global `fetch`.
   */
  readonly fetch?: typeof globalThis.fetch | undefined;
}

interface CompleteContext {
  readonly signal: AbortSignal;
  /** Called with the whole text so far, for each event of a streamed response. */
  readonly onText: (text: string) => void;
}

/** Requests one chat completion. */
export type Complete = (request: ChatRequest, context: CompleteContext) => Promise<ChatResult>;

const REQUEST = z.looseObject({
  model: z.string({ error: "it names no model" }),
  messages: z
    .array(z.looseObject({ role: z.string() }), { error: "it has no messages" })
    .min(1, { error: "it has no messages" }),
  stream: z.boolean({ error: "its stream is neither true nor false" }).optional(),
  n: z.literal(1, { error: "it asks for more than one answer" }).nullish(),
});

export function createComplete(options: CompleteOptions): Complete {
  const { baseUrl, apiKey, timeoutMs, fetch } = options;
  const url = `${baseUrl.replace(/\/+$/, "")}/chat/completions`;
  const headers = { "content-type": "application/json", authorization: `Bearer ${apiKey}` };
  return async (data, { signal, onText }) => {
    const request = readRequest(data);
    const body = JSON.stringify(request.stream === true ? withUsage(request) : request);
    const call = { url, method: "POST", headers, body };
    return callInTime(call, { timeoutMs, signal, fetch }, async (response) => {
      if (!response.ok) throw await refusal(response);
      return request.stream === true ? readStreamedAnswer(response, onText) : readAnswer(response);
    });
  };
}

/** Checks a job's data. An invalid request discards the job, because another attempt would not help. */
function readRequest(data: unknown): ChatRequest {
  const read = REQUEST.safeParse(data);
  if (!read.success) throw new Discard(`cannot be sent: ${read.error.issues[0]!.message}`);
  if (read.data.stream !== true || read.data["tools"] === undefined)
    return read.data as ChatRequest;
  throw new Discard("cannot be sent: it has tools, which a streamed request may not have here");
}

/** Adds the option that makes a stream report its token usage. */
function withUsage(request: ChatRequest): ChatRequest {
  const own = request["stream_options"] as object | undefined;
  return { ...request, stream_options: { include_usage: true, ...own } };
}

async function refusal(response: Response): Promise<Error> {
  const { status, headers } = response;
  // Keeps only the error code, because the response text may repeat the prompt.
  const code = codeOf(await response.text());
  const reason = `was answered ${status}${code === undefined ? "" : ` (${code})`}`;
  return isFinal(status) ? new Discard(reason) : new CallError(reason, { status, headers });
}

const ERROR = z.object({ error: z.object({ code: z.string().regex(/^[\w.-]{1,64}$/) }) });

function codeOf(body: string): string | undefined {
  try {
    return ERROR.safeParse(JSON.parse(body)).data?.error.code;
  } catch {
    return undefined;
  }
}
