import { Discard } from "sluice";
import { z } from "zod";
import { CallError, isFinal, callInTime } from "../shared/call.ts";
import { readAnswer, readStreamedAnswer } from "./answer.ts";
import type { ChatRequest, ChatResult } from "./queue.ts";

export interface CompleteOptions {
  /** Includes the version: `https://api.openai.com/v1`. */
  readonly baseUrl: string;
  readonly apiKey: string;
  /** The longest time for one whole completion, to its last piece. */
  readonly timeoutMs: number;
  /** That of the bucket, which counts what the answer took. Defaults to the global one. */
  readonly fetch?: typeof globalThis.fetch | undefined;
}

interface CompleteContext {
  readonly signal: AbortSignal;
  /** Called with all the text so far, for each piece of a streamed answer. */
  readonly onText: (text: string) => void;
}

/** Asks for one chat completion. */
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

/** Discards a request that can never be sent; another try would not help. */
function readRequest(data: unknown): ChatRequest {
  const read = REQUEST.safeParse(data);
  if (!read.success) throw new Discard(`cannot be sent: ${read.error.issues[0]!.message}`);
  if (read.data.stream !== true || read.data["tools"] === undefined)
    return read.data as ChatRequest;
  throw new Discard("cannot be sent: it has tools, which a streamed request may not have here");
}

/** Asks for the usage, which a stream does not report by itself. */
function withUsage(request: ChatRequest): ChatRequest {
  const own = request["stream_options"] as object | undefined;
  return { ...request, stream_options: { include_usage: true, ...own } };
}

async function refusal(response: Response): Promise<Error> {
  const { status, headers } = response;
  // The text may repeat the prompt, so only the code is kept.
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
