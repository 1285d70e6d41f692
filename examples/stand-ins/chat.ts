import { json, type StandInAnswer, type StandInCall } from "./server.ts";

interface Asked {
  readonly model: string;
  readonly messages: readonly { readonly content: string }[];
  readonly stream?: boolean;
  readonly stream_options?: { readonly include_usage?: boolean };
}

/** Answers a chat completion in OpenAI's format, whole or streamed. The answer repeats the question. */
export function answerChat({ method, path, headers, body }: StandInCall): StandInAnswer {
  if (method !== "POST" || !path.endsWith("/chat/completions")) return refuse(404, "unknown_url");
  if (headers["authorization"] === undefined) return refuse(401, "invalid_api_key");
  const { model, messages, stream, stream_options } = JSON.parse(body) as Asked;
  const words = ["You", "asked:", ...messages.at(-1)!.content.split(" ")];
  const usage = usageOf(messages, words);
  const about = { id: "chatcmpl-1", created: 1_790_000_000, model };
  if (stream !== true) {
    const message = { role: "assistant", content: words.join(" ") };
    const choices = [{ index: 0, message, finish_reason: "stop" }];
    return json(200, { ...about, object: "chat.completion", choices, usage });
  }
  const chunks = words.map((word, index) => ({
    choices: [
      { index: 0, delta: { content: index === 0 ? word : ` ${word}` }, finish_reason: null },
    ],
  }));
  const end = { choices: [{ index: 0, delta: {}, finish_reason: "stop" }] };
  const last = stream_options?.include_usage === true ? [{ choices: [], usage }] : [];
  const events = [...chunks, end, ...last].map((chunk) => {
    const whole = { ...about, object: "chat.completion.chunk", ...chunk };
    return `data: ${JSON.stringify(whole)}\n\n`;
  });
  return {
    status: 200,
    headers: { "content-type": "text/event-stream" },
    body: [...events, "data: [DONE]\n\n"],
  };
}

/** Counts each word as one token. */
function usageOf(messages: Asked["messages"], words: readonly string[]): object {
  const asked = messages.flatMap(({ content }) => content.split(" ")).length;
  return {
    prompt_tokens: asked,
    completion_tokens: words.length,
    total_tokens: asked + words.length,
  };
}

function refuse(status: number, code: string): StandInAnswer {
  return json(status, { error: { message: "Refused", type: "invalid_request_error", code } });
}
