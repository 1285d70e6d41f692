import { createParser } from "eventsource-parser";
import { z } from "zod";
import { CallError } from "../shared/call.ts";
import type { ChatResult } from "./queue.ts";

const USAGE = z
  .object({ total_tokens: z.int().nonnegative() })
  // Ignores usage in any other form. The job's cost then stays the estimate.
  .optional()
  .catch(undefined);
const FINISH = z.string().nullish();

const ANSWER = z.object({
  choices: z
    .array(
      z.object({
        message: z.object({ content: z.string().nullish(), tool_calls: z.unknown().optional() }),
        finish_reason: FINISH,
      }),
    )
    .min(1),
  usage: USAGE,
});
const CHUNK = z.object({
  choices: z
    .array(
      z.object({
        delta: z.object({ content: z.string().nullish() }).nullish(),
        finish_reason: FINISH,
      }),
    )
    // The stream's event with the token usage has no choices.
    .default([]),
  usage: USAGE,
});

const LAST_EVENT = "[DONE]";

/** @throws {@link CallError} when the response is not a chat completion. */
export async function readAnswer(response: Response): Promise<ChatResult> {
  const { choices, usage } = parse(ANSWER, await response.text());
  const { message, finish_reason } = choices[0]!;
  return {
    text: message.content ?? "",
    finishReason: finish_reason ?? undefined,
    totalTokens: usage?.total_tokens,
    ...(message.tool_calls != null && { toolCalls: message.tool_calls }),
  };
}

/**
 * Assembles a chat completion from a streamed response.
 *
 * @throws {@link CallError} when an event does not belong to a chat completion, or the last event is missing.
 */
export async function readStreamedAnswer(
  response: Response,
  onText: (text: string) => void,
): Promise<ChatResult> {
  let text = "";
  let finishReason: string | undefined;
  let totalTokens: number | undefined;
  let isComplete = false;
  for await (const data of readEvents(response.body ?? emptyBody())) {
    isComplete ||= data === LAST_EVENT;
    if (isComplete) break;
    const { choices, usage } = parse(CHUNK, data);
    const [choice] = choices;
    text += choice?.delta?.content ?? "";
    finishReason = choice?.finish_reason ?? finishReason;
    totalTokens = usage?.total_tokens ?? totalTokens;
    onText(text);
  }
  if (isComplete || finishReason !== undefined) return { text, finishReason, totalTokens };
  throw new CallError("broke off in the middle of its answer");
}

function parse<Output>(schema: z.ZodType<Output>, text: string): Output {
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch {
    json = undefined;
  }
  const read = schema.safeParse(json);
  // A stream may contain an error after some valid events.
  const isError =
    typeof json === "object" && json !== null && "error" in json && json.error !== null;
  if (read.success && !isError) return read.data;
  throw new CallError(
    isError ? "was answered an error" : "was answered something other than a completion",
  );
}

/** Yields the data of each server-sent event as it arrives. */
async function* readEvents(body: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  const events: string[] = [];
  const parser = createParser({ onEvent: ({ data }) => events.push(data) });
  const decoder = new TextDecoder();
  for await (const chunk of body) {
    parser.feed(decoder.decode(chunk, { stream: true }));
    yield* events.splice(0);
  }
  // Adds the empty line that ends an event, because some servers leave it out at the end.
  parser.feed(`${decoder.decode()}\n\n`);
  yield* events.splice(0);
}

async function* emptyBody(): AsyncGenerator<Uint8Array> {}
