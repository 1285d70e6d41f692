/** Tokens; a figure that the answer does not state is undefined. */
export interface Usage {
  /** Of the prompt, without what was read from a cache or written to it. */
  readonly input?: number | undefined;
  readonly cacheRead?: number | undefined;
  readonly cacheWrite?: number | undefined;
  readonly output?: number | undefined;
}

type Fields = Readonly<Record<string, unknown>>;

/** The usage that an answer, or an event of a stream, states; undefined if it states none. */
export function usageIn(value: unknown): Usage | undefined {
  const fields = objectOf(value);
  if (fields === undefined) return undefined;
  const within = ["message", "response", "metadata", "data"].map((name) =>
    objectOf(own(fields, name)),
  );
  for (const each of [fields, ...within]) {
    const found = each && statedIn(each);
    if (found !== undefined) return found;
  }
  return undefined;
}

/** What providers answer to a request that counts the tokens of a text. */
const TOKEN_COUNT =
  /^(?:input_tokens|inputTokens|total_?tokens|totalTokens|token_?count|totalBillableCharacters|cachedContentTokenCount|promptTokensDetails|cacheTokensDetails|context_management|object|\$metadata|sdkHttpResponse|_request_id)$/;

/** Whether an answer states how many tokens a text has, and nothing else. */
export function isTokenCount(value: unknown): boolean {
  const fields = objectOf(value);
  if (fields === undefined || Array.isArray(value) || "textStream" in fields) return false;
  const stated = Object.keys(fields).filter((name) => has(fields, name));
  const isCount = stated.some((name) => /tokens?$|_count$/i.test(name));
  return isCount && stated.every((name) => TOKEN_COUNT.test(name));
}

function statedIn(fields: Fields): Usage | undefined {
  const gemini = objectOf(own(fields, "usageMetadata"));
  if (gemini !== undefined) return withRest(ofGemini(gemini), gemini["totalTokenCount"]);
  const metrics = objectOf(own(fields, "amazon-bedrock-invocationMetrics"));
  if (metrics !== undefined) return ofInvocation(metrics);
  const usage = objectOf(own(fields, "usage") ?? own(fields, "usage_metadata"));
  if (usage !== undefined) {
    const stated = partsOf(usage);
    const all = TOTALS.map((name) => amount(usage[name])).find((each) => each !== undefined);
    if (stated !== undefined) return withRest(stated, all);
    // An embedding of some providers states nothing else.
    if (all !== undefined) return { input: all, output: 0 };
  }
  if (has(fields, "prompt_token_count")) {
    const [input, output] = [fields["prompt_token_count"], fields["generation_token_count"]].map(
      amount,
    );
    return { input, output };
  }
  return undefined;
}

const TOTALS = ["total_tokens", "totalTokens"] as const;

function partsOf(usage: Fields): Usage | undefined {
  if (has(usage, "prompt_tokens")) return ofChat(usage);
  if (has(usage, "input_tokens")) return ofInputTokens(usage);
  if (has(usage, "inputTokens")) return ofCamelCase(usage);
  if (has(usage, "total_input_tokens")) return ofInteraction(usage);
  if (has(usage, "output_tokens")) return { output: amount(usage["output_tokens"]) };
  return undefined;
}

/**
 * A total that exceeds the sum of the parts counts: the rest is output that its part leaves out, such as the reasoning
 * tokens of xAI.
 */
function withRest(stated: Usage, all: unknown): Usage {
  const { input, output, cacheRead = 0, cacheWrite = 0 } = stated;
  const whole = amount(all);
  if (whole === undefined || input === undefined) return stated;
  const rest = whole - input - cacheRead - cacheWrite - (output ?? 0);
  return rest > 0 ? { ...stated, output: (output ?? 0) + rest } : stated;
}

/** Gemini's interactions. */
function ofInteraction(usage: Fields): Usage {
  const [input, tools, cached, output, thoughts] = [
    "total_input_tokens",
    "total_tool_use_tokens",
    "total_cached_tokens",
    "total_output_tokens",
    "total_thought_tokens",
  ].map((name) => amount(usage[name]));
  const all = input === undefined ? undefined : input + (tools ?? 0);
  return { ...total(all, cached ?? 0, 0), output: (output ?? 0) + (thoughts ?? 0) };
}

/** OpenAI's chat completions, and those that speak like them. Cached tokens are among those of the prompt. */
function ofChat(usage: Fields): Usage {
  const details = objectOf(usage["prompt_tokens_details"]);
  const cached = amount(details?.["cached_tokens"] ?? usage["prompt_cache_hit_tokens"]) ?? 0;
  // An embedding has no completion.
  const output = has(usage, "completion_tokens") ? amount(usage["completion_tokens"]) : 0;
  return { ...total(amount(usage["prompt_tokens"]), cached, 0), output };
}

/** Anthropic's messages, where cached tokens are counted apart; OpenAI's responses and LangChain's, where they are not. */
function ofInputTokens(usage: Fields): Usage {
  const output = amount(usage["output_tokens"]);
  const details = objectOf(usage["input_tokens_details"] ?? usage["input_token_details"]);
  const input = amount(usage["input_tokens"]);
  if (details !== undefined) {
    const cached = amount(details["cached_tokens"] ?? details["cache_read"]) ?? 0;
    return { ...total(input, cached, amount(details["cache_creation"]) ?? 0), output };
  }
  const cacheRead = amount(usage["cache_read_input_tokens"]) ?? 0;
  const cacheWrite = amount(usage["cache_creation_input_tokens"]) ?? 0;
  return { input, cacheRead, cacheWrite, output };
}

/** Bedrock's, where cached tokens are counted apart; those of Vercel's AI SDK, where they are not. */
function ofCamelCase(usage: Fields): Usage {
  const [input, output] = [usage["inputTokens"], usage["outputTokens"]].map(amount);
  const details = objectOf(usage["inputTokenDetails"]);
  if (details !== undefined || has(usage, "cachedInputTokens")) {
    const cached = amount(details?.["cacheReadTokens"] ?? usage["cachedInputTokens"]) ?? 0;
    return { ...total(input, cached, amount(details?.["cacheWriteTokens"]) ?? 0), output };
  }
  const cacheRead = amount(usage["cacheReadInputTokens"]) ?? 0;
  const cacheWrite = amount(usage["cacheWriteInputTokens"]) ?? 0;
  return { input, cacheRead, cacheWrite, output };
}

function ofInvocation(metrics: Fields): Usage {
  return {
    input: amount(metrics["inputTokenCount"]),
    cacheRead: amount(metrics["cacheReadInputTokenCount"]) ?? 0,
    cacheWrite: amount(metrics["cacheWriteInputTokenCount"]) ?? 0,
    output: amount(metrics["outputTokenCount"]),
  };
}

function ofGemini(usage: Fields): Usage {
  const [prompt, tools, cached, candidates, thoughts] = [
    "promptTokenCount",
    "toolUsePromptTokenCount",
    "cachedContentTokenCount",
    "candidatesTokenCount",
    "thoughtsTokenCount",
  ].map((name) => amount(usage[name]));
  const input = prompt === undefined ? undefined : prompt + (tools ?? 0);
  // Until the first candidate, a stream says nothing of them.
  const isAnswered = candidates !== undefined || thoughts !== undefined;
  const output = isAnswered ? (candidates ?? 0) + (thoughts ?? 0) : undefined;
  return { ...total(input, cached ?? 0, 0), output };
}

/** What an answer of Bedrock says in its headers. */
export function usageInHeaders(headers: Headers): Usage | undefined {
  const [input, output, cacheRead, cacheWrite] = [
    "input-token-count",
    "output-token-count",
    "cache-read-input-token-count",
    "cache-write-input-token-count",
  ].map((name) => {
    const text = headers.get(`x-amzn-bedrock-${name}`);
    return text === null ? undefined : amount(Number(text));
  });
  if (input === undefined) return undefined;
  return { input, cacheRead: cacheRead ?? 0, cacheWrite: cacheWrite ?? 0, output };
}

/** The usage of a prompt whose cached tokens are among its own. */
function total(all: number | undefined, cacheRead: number, cacheWrite: number): Usage {
  if (all === undefined) return {};
  return { input: Math.max(0, all - cacheRead - cacheWrite), cacheRead, cacheWrite };
}

/** What a later event states holds over what one before it did. */
export function mergeUsage(before: Usage, later: Usage): Usage {
  const stated = Object.entries(later).filter(([, figure]) => figure !== undefined);
  return { ...before, ...(Object.fromEntries(stated) as Usage) };
}

function amount(figure: unknown): number | undefined {
  return Number.isSafeInteger(figure) && (figure as number) >= 0 ? (figure as number) : undefined;
}

function has(fields: Fields, name: string): boolean {
  return fields[name] !== undefined && fields[name] !== null;
}

/** A property, unless to read it does something: a result of the AI SDK that streams would begin to. */
function own(fields: Fields, name: string): unknown {
  if ("textStream" in fields || "fullStream" in fields) return undefined;
  return fields[name];
}

function objectOf(value: unknown): Fields | undefined {
  return typeof value === "object" && value !== null ? (value as Fields) : undefined;
}
