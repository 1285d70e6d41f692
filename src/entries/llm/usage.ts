/** The token counts of a call. A figure is undefined if the answer does not state it. */
export interface Usage {
  /** The prompt tokens, without cache reads and cache writes. */
  readonly input?: number | undefined;
  readonly cacheRead?: number | undefined;
  readonly cacheWrite?: number | undefined;
  readonly output?: number | undefined;
}

/** A call whose price is computed. */
export interface PricedCall {
  readonly model: string;
  readonly usage: Usage;
}

/** Computes what a call costs, by unit: `{ usd: 0.0123 }`. */
export type PriceOfCall = (call: PricedCall) => Readonly<Record<string, number>>;

type Fields = Readonly<Record<string, unknown>>;

/**
 * The field names that an API uses for its usage figures. The name `a.b` is the field `b` within
 * `a`.
 */
interface Dialect {
  /** The fields that add up to the input. Only the first field is required. */
  readonly input: readonly [string, ...string[]];
  /** The fields that add up to the output. */
  readonly output: readonly string[];
  /**
   * The fields that may contain the cache reads. The first field that is present counts, also for
   * `cacheWrite`.
   */
  readonly cacheRead?: readonly string[];
  readonly cacheWrite?: readonly string[];
  /** True if the input figure excludes cached tokens. */
  readonly isCacheApart?: boolean;
  /** True if a missing output means zero, as for embeddings. */
  readonly isOutputOptional?: boolean;
  /**
   * The fields that identify the dialect. If set, the dialect applies only if one of these fields
   * is present.
   */
  readonly marks?: readonly string[];
}

/**
 * All dialects, in order of precedence. The first dialect with a stated input or output applies.
 */
const DIALECTS: readonly Dialect[] = [
  // OpenAI's chat completions, and servers with the same API.
  {
    input: ["prompt_tokens"],
    output: ["completion_tokens"],
    cacheRead: ["prompt_tokens_details.cached_tokens", "prompt_cache_hit_tokens"],
    isOutputOptional: true,
  },
  // The clients of Mistral and of LangChain.
  { input: ["promptTokens"], output: ["completionTokens"], isOutputOptional: true },
  // OpenAI's responses; LangChain's messages.
  {
    marks: ["input_tokens_details", "input_token_details"],
    input: ["input_tokens"],
    output: ["output_tokens"],
    cacheRead: ["input_tokens_details.cached_tokens", "input_token_details.cache_read"],
    cacheWrite: ["input_token_details.cache_creation"],
  },
  // Anthropic's messages; Cohere.
  {
    input: ["input_tokens"],
    output: ["output_tokens"],
    cacheRead: ["cache_read_input_tokens"],
    cacheWrite: ["cache_creation_input_tokens"],
    isCacheApart: true,
  },
  // Vercel's AI SDK.
  {
    marks: ["inputTokenDetails", "cachedInputTokens"],
    input: ["inputTokens"],
    output: ["outputTokens"],
    cacheRead: ["inputTokenDetails.cacheReadTokens", "cachedInputTokens"],
    cacheWrite: ["inputTokenDetails.cacheWriteTokens"],
  },
  { input: ["tokens"], output: [], isOutputOptional: true },
  // Bedrock; the client of Cohere.
  {
    input: ["inputTokens"],
    output: ["outputTokens"],
    cacheRead: ["cacheReadInputTokens"],
    cacheWrite: ["cacheWriteInputTokens"],
    isCacheApart: true,
  },
  // Bedrock's metrics of an invocation.
  {
    input: ["inputTokenCount"],
    output: ["outputTokenCount"],
    cacheRead: ["cacheReadInputTokenCount"],
    cacheWrite: ["cacheWriteInputTokenCount"],
    isCacheApart: true,
  },
  // Gemini. The first events of a stream have no figure for the candidates.
  {
    input: ["promptTokenCount", "toolUsePromptTokenCount"],
    output: ["candidatesTokenCount", "responseTokenCount", "thoughtsTokenCount"],
    cacheRead: ["cachedContentTokenCount"],
  },
  // Gemini's interactions.
  {
    input: ["total_input_tokens", "total_tool_use_tokens"],
    output: ["total_output_tokens", "total_thought_tokens"],
    cacheRead: ["total_cached_tokens"],
    isOutputOptional: true,
  },
  // Replicate.
  { input: ["input_token_count"], output: ["output_token_count"] },
];

/** The dialects of answers that state their figures next to the text, not in a separate object. */
const DIALECTS_OF_ANSWERS: readonly Dialect[] = [
  // Ollama. It states no figure for a cached prompt.
  { input: ["prompt_eval_count"], output: ["eval_count"] },
  // Llama and Titan on Bedrock.
  { input: ["prompt_token_count"], output: ["generation_token_count"] },
  { input: ["inputTextTokenCount"], output: ["results.0.tokenCount"] },
  // Watsonx.
  { input: ["results.0.input_token_count"], output: ["results.0.generated_token_count"] },
];

const TOTALS = ["total_tokens", "totalTokens", "totalTokenCount"] as const;

/** The fields in which an answer may state its usage, in order of precedence. */
const PLACES = [
  "usageMetadata",
  "amazon-bedrock-invocationMetrics",
  // The AI SDK's `usage` covers only the last step.
  "totalUsage",
  // The fields of Cohere. Its billed figures may be lower.
  "usage.tokens",
  "meta.tokens",
  "usage",
  "usage.billed_units",
  "usage.billedUnits",
  "meta.billed_units",
  "meta.billedUnits",
  // The fields of LangChain.
  "usage_metadata",
  "tokenUsage",
  "token_usage",
  "metrics",
] as const;

/** The parts of an answer or event that may contain the usage. */
const PARTS = [
  "message",
  "response",
  "metadata",
  "data",
  "delta",
  "result",
  "body",
  "x_groq",
  "llmOutput",
  "llm_output",
  "response_metadata",
] as const;

/**
 * Returns the usage that an answer or an event of a stream states. Returns undefined if it states
 * none.
 */
export function usageIn(value: unknown): Usage | undefined {
  const fields = objectOf(value);
  // In a streaming result of the AI SDK, reading another property would start the stream.
  if (fields === undefined || "textStream" in fields || "fullStream" in fields) return undefined;
  for (const each of [fields, ...PARTS.map((name) => objectOf(fields[name]))]) {
    const found = each && statedIn(each);
    if (found !== undefined) return found;
  }
  return undefined;
}

/** Matches the fields in the response to a token-counting request. */
const TOKEN_COUNT =
  /^(?:input_tokens|inputTokens|total_?tokens|totalTokens|token_?count|totalBillableCharacters|cachedContentTokenCount|promptTokensDetails|cacheTokensDetails|context_management|object|\$metadata|sdkHttpResponse|_request_id)$/;

/** True if an answer states only the number of tokens in a text. */
export function isTokenCount(value: unknown): boolean {
  const fields = objectOf(value);
  if (fields === undefined || Array.isArray(value) || "textStream" in fields) return false;
  const stated = Object.keys(fields).filter((name) => has(fields, name));
  const isCount = stated.some((name) => /tokens?$|_count$/i.test(name));
  return isCount && stated.every((name) => TOKEN_COUNT.test(name));
}

function statedIn(fields: Fields): Usage | undefined {
  for (const place of PLACES) {
    const usage = objectOf(valueAt(fields, place));
    if (usage === undefined) continue;
    const total = TOTALS.map((name) => amount(usage[name])).find((each) => each !== undefined);
    const stated = statedBy(DIALECTS, usage);
    if (stated !== undefined) return withRest(stated, total);
    // Some embedding providers state only a total.
    if (total !== undefined) return { input: total, output: 0 };
  }
  return statedBy(DIALECTS_OF_ANSWERS, fields);
}

function statedBy(dialects: readonly Dialect[], usage: Fields): Usage | undefined {
  const dialect = dialects.find(
    ({ input, output, marks }) =>
      [...input, ...output].some((name) => amount(valueAt(usage, name)) !== undefined) &&
      (marks?.some((name) => has(usage, name)) ?? true),
  );
  return dialect && figuresOf(dialect, usage);
}

function figuresOf(dialect: Dialect, usage: Fields): Usage {
  const amountsOf = (names: readonly string[]): readonly number[] =>
    names.map((name) => amount(valueAt(usage, name))).filter((each) => each !== undefined);
  const outputs = amountsOf(dialect.output);
  const isOutputKnown = outputs.length > 0 || dialect.isOutputOptional === true;
  const output = isOutputKnown ? sum(outputs) : undefined;
  if (amount(valueAt(usage, dialect.input[0])) === undefined) return { output };
  const all = sum(amountsOf(dialect.input));
  const [cacheRead = 0] = amountsOf(dialect.cacheRead ?? []);
  const [cacheWrite = 0] = amountsOf(dialect.cacheWrite ?? []);
  const within = dialect.isCacheApart === true ? 0 : cacheRead + cacheWrite;
  return { input: Math.max(0, all - within), cacheRead, cacheWrite, output };
}

/**
 * Adds the tokens that only the total figure includes. These are output tokens that the output
 * figure omits, such as the reasoning tokens of xAI, or an input that is not stated.
 */
function withRest(stated: Usage, total: number | undefined): Usage {
  const { input, output = 0, cacheRead = 0, cacheWrite = 0 } = stated;
  if (total === undefined) return stated;
  if (input === undefined) return { ...stated, input: Math.max(0, total - output) };
  const rest = total - input - cacheRead - cacheWrite - output;
  return rest > 0 ? { ...stated, output: output + rest } : stated;
}

/** Reads the usage that Bedrock states in its response headers. */
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

/**
 * Adds the usage of an event to that of the events before it. The chunks of a LangChain stream each
 * state their part, whatever the API states. In other streams, the figures of the later event take
 * precedence.
 */
export function addUsageOf(event: unknown, stated: Usage, before: Usage): Usage {
  const isPart = objectOf(objectOf(event)?.["usage_metadata"]) !== undefined;
  if (!isPart) return mergeUsage(before, stated);
  const sums = Object.entries(stated).map(([name, figure]) => {
    const figures = [before[name as keyof Usage], figure].filter((each) => each !== undefined);
    return [name, figures.length === 0 ? undefined : sum(figures)] as const;
  });
  return mergeUsage(before, Object.fromEntries(sums) as Usage);
}

/** Merges the usage of two events. Figures of the later event take precedence. */
function mergeUsage(before: Usage, later: Usage): Usage {
  const stated = Object.entries(later).filter(([, figure]) => figure !== undefined);
  return { ...before, ...(Object.fromEntries(stated) as Usage) };
}

function amount(figure: unknown): number | undefined {
  return Number.isSafeInteger(figure) && (figure as number) >= 0 ? (figure as number) : undefined;
}

function has(fields: Fields, name: string): boolean {
  return fields[name] !== undefined && fields[name] !== null;
}

/**
 * Returns the value at a path such as `a.b`. Does not use `split`, because each event of a stream
 * looks up many paths.
 */
function valueAt(fields: Fields, path: string): unknown {
  const dot = path.indexOf(".");
  if (dot === -1) return fields[path];
  const inner = objectOf(fields[path.slice(0, dot)]);
  return inner && valueAt(inner, path.slice(dot + 1));
}

function sum(amounts: readonly number[]): number {
  return amounts.reduce((total, each) => total + each, 0);
}

function objectOf(value: unknown): Fields | undefined {
  return typeof value === "object" && value !== null ? (value as Fields) : undefined;
}
