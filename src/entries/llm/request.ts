/** Reads the request to a model from the arguments of `fetch` or of a client's method. */
import { hasCacheMark, tokensIn, tokensOfJson } from "./count-tokens.ts";
import type { CountTokens } from "./estimate.ts";
import { isModelCommand, isModelMethod, isModelPath } from "./operations.ts";

/** A request to a model. */
export interface Asked {
  /** The name of the model, such as `"gpt-5-mini"`. `""` if the request names no model. */
  readonly model: string;
  /** The tokens of the prompt, counted or estimated here. */
  readonly prompt: number;
  /** The prompt tokens before the last cache mark. Undefined if there is no mark. */
  readonly marked: number | undefined;
  /** The most tokens of one answer. Undefined if the request sets no limit. */
  readonly maxOutput: number | undefined;
  /** The number of answers that the model generates. */
  readonly answers: number;
  /** False if the answer contains no tokens, as with embeddings. */
  readonly hasOutput: boolean;
}

type Fields = Readonly<Record<string, unknown>>;

/** The fields whose text the model reads. */
const PROMPTS = [
  "messages",
  "system",
  "input",
  "instructions",
  "prompt",
  "suffix",
  "contents",
  "content",
  "systemInstruction",
  "system_instruction",
  // Fields of Titan, Vertex, Mistral, Hugging Face and Cohere.
  "inputText",
  "instances",
  "inputs",
  "message",
  "chat_history",
  "preamble",
  "documents",
  "texts",
  "images",
] as const;
/** The fields that the model reads as JSON. */
const SCHEMAS = [
  "tools",
  "functions",
  "toolConfig",
  "response_format",
  "responseSchema",
  "output_config",
] as const;
/** The fields that limit the length of the answer, in order of precedence. */
const MOST_OUTPUT = [
  "max_completion_tokens",
  "max_output_tokens",
  "max_tokens",
  "maxOutputTokens",
  "maxTokens",
  "max_tokens_to_sample",
  "maxTokenCount",
  "max_gen_len",
  "max_new_tokens",
  "num_predict",
] as const;
/** The objects within a request that may contain its settings. */
const SETTINGS = [
  "generationConfig",
  "generation_config",
  "config",
  "inferenceConfig",
  "textGenerationConfig",
  "completion_args",
  "parameters",
  "options",
] as const;

const NO_OUTPUT = /embed|moderation|rerank|whisper|\btts\b|dall-e/i;
const LONGEST_MODEL = 200;

/** What the arguments of a call reveal about its request. */
export interface ReadCall {
  /** The request to a model. Undefined if the arguments contain none. */
  readonly asked: Asked | undefined;
  /**
   * False if the call certainly does not generate an answer. In that case, its HTTP method and
   * path, command name or client method show that the call manages stored data or counts tokens.
   */
  readonly mayAsk: boolean;
}

const ASKS_NOTHING: ReadCall = { asked: undefined, mayAsk: false };

/** Reads a call from its arguments, and from the name of the client's method if that is known. */
export async function readRequest(
  args: readonly unknown[],
  count: CountTokens,
  method?: string,
): Promise<ReadCall> {
  const [first] = args;
  if (method !== undefined && !isModelMethod(method)) return ASKS_NOTHING;
  if (isCommand(first) && !isModelCommand(first.constructor.name)) return ASKS_NOTHING;
  const path = urlOf(first);
  if (path !== undefined) return readFetch(args, path, count);
  const fields = fieldsOfCall(args);
  return { asked: fields && asked({ fields, path: "" }, count), mayAsk: true };
}

/**
 * Finds the request in the arguments of a function. If the first argument is a prompt, the second
 * argument contains the other fields.
 */
function fieldsOfCall([first, second]: readonly unknown[]): Fields | undefined {
  return typeof first === "string" ? { prompt: first, ...fieldsOf(second) } : fieldsOf(first);
}

/** Reads a call of `fetch`. Only a POST can call a model, and only on some paths. */
async function readFetch(
  [first, second]: readonly unknown[],
  path: string,
  count: CountTokens,
): Promise<ReadCall> {
  const init = objectOf(second);
  const method = init["method"] ?? (isRequest(first) ? first.method : "GET");
  const isPost = typeof method === "string" && method.toUpperCase() === "POST";
  if (!isPost || !isModelPath(path)) return ASKS_NOTHING;
  const { body } = init;
  const text = isGiven(body) ? textOf(body) : await bodyOf(first);
  const fields = parsed(text);
  return { asked: fields && asked({ fields, path }, count), mayAsk: true };
}

/** Reads a request from a body, such as the data of a job. */
export function readBody(body: unknown, count: CountTokens): Asked | undefined {
  const fields = fieldsOf(body);
  return fields === undefined ? undefined : asked({ fields, path: "" }, count);
}

interface Sent {
  readonly fields: Fields;
  /** The path of the URL. `""` if there is no URL. */
  readonly path: string;
}

/**
 * Returns the path of the URL that is the first argument of a `fetch` call. Returns undefined for
 * an argument that is not a URL, such as a prompt.
 */
function urlOf(first: unknown): string | undefined {
  const address = isRequest(first) ? first.url : first instanceof URL ? first.href : first;
  if (typeof address !== "string" || !/^https?:/i.test(address) || !URL.canParse(address)) {
    return undefined;
  }
  return new URL(address).pathname;
}

function isRequest(first: unknown): first is Request {
  if (typeof first !== "object" || first === null) return false;
  const { url, clone } = first as Partial<Request>;
  return typeof url === "string" && typeof clone === "function";
}

/** Reads the body of a `Request` from a copy. Returns undefined if the body was already read. */
async function bodyOf(first: unknown): Promise<string | undefined> {
  if (!isRequest(first) || first.body === null || first.bodyUsed) return undefined;
  if (!/json/i.test(first.headers.get("content-type") ?? "")) return undefined;
  try {
    return await first.clone().text();
  } catch {
    // The request is invalid. `fetch` itself reports the error.
    return undefined;
  }
}

function textOf(body: unknown): string | undefined {
  if (typeof body === "string") return body;
  if (ArrayBuffer.isView(body) || body instanceof ArrayBuffer)
    return Buffer.from(body as ArrayBuffer).toString();
  return undefined;
}

function parsed(text: string | undefined): Fields | undefined {
  if (text === undefined || !text.trimStart().startsWith("{")) return undefined;
  try {
    return fieldsOf(JSON.parse(text));
  } catch {
    return undefined;
  }
}

/**
 * Returns the fields of a request. For an AWS command, returns the fields of its input. Parses a
 * `body` that contains text or bytes.
 */
function fieldsOf(given: unknown): Fields | undefined {
  if (typeof given !== "object" || given === null || Array.isArray(given)) return undefined;
  const fields = given as Fields;
  if (isCommand(given)) return fieldsOf(fields["input"]);
  if (typeof fields["modelId"] !== "string" || fields["body"] === undefined) return fields;
  return { ...parsed(textOf(fields["body"])), modelId: fields["modelId"] };
}

/** True for a command of the AWS SDK. */
function isCommand(value: unknown): value is object {
  return typeof objectOf(value)["resolveMiddleware"] === "function";
}

function asked({ fields, path }: Sent, count: CountTokens): Asked | undefined {
  if (!hasPrompt(fields)) return undefined;
  const settings = [
    fields,
    ...SETTINGS.map((name) => objectOf(fields[name])),
    ...requestsIn(fields),
  ];
  const model = modelOf(fields, path).slice(0, LONGEST_MODEL);
  const prompts = settings.flatMap((each) => PROMPTS.map((name) => each[name]));
  const schemas = settings.flatMap((each) => SCHEMAS.map((name) => each[name]));
  const answers = [
    fields["best_of"],
    ...settings.flatMap((each) => [each["n"], each["candidateCount"]]),
  ];
  return {
    model,
    prompt: Math.ceil(
      sum(prompts.map((each) => tokensIn(each, count))) +
        sum(schemas.map((each) => tokensOfJson(each, count))),
    ),
    marked: markedIn(fields, count),
    maxOutput: settings.flatMap((each) => MOST_OUTPUT.map((name) => each[name])).find(isAmount),
    answers: answers.find(isAmount) ?? 1,
    hasOutput: !NO_OUTPUT.test(path) && !NO_OUTPUT.test(model),
  };
}

function hasPrompt(fields: Fields): boolean {
  return [fields, ...requestsIn(fields)].some((each) =>
    PROMPTS.some((name) => isGiven(each[name])),
  );
}

/** Returns the requests inside a Gemini batch, such as a call of `batchEmbedContents`. */
function requestsIn({ requests }: Fields): readonly Fields[] {
  return Array.isArray(requests) ? requests.map(objectOf) : [];
}

/**
 * Counts the prompt tokens before the last cache mark. Models read tools first, then the system
 * prompt, then messages, and caches store a prefix of that sequence.
 */
function markedIn(fields: Fields, count: CountTokens): number | undefined {
  const { messages, cache_control: ofAll } = fields;
  const schemas = [fields["tools"], fields["toolConfig"]].filter(isGiven);
  const texts = [fields["system"], ...(Array.isArray(messages) ? (messages as unknown[]) : [])];
  const lastText = isGiven(ofAll)
    ? texts.length - 1
    : texts.findLastIndex((each) => hasCacheMark(each));
  if (lastText === -1 && !schemas.some((each) => hasCacheMark(each))) return undefined;
  return Math.ceil(
    sum(schemas.map((each) => tokensOfJson(each, count))) +
      sum(texts.slice(0, lastText + 1).map((each) => tokensIn(each, count))),
  );
}

/** Returns the name of the model. Gemini, Bedrock and Azure put the name into the path. */
function modelOf({ model, modelId }: Fields, path: string): string {
  if (typeof model === "string") return model;
  if (typeof modelId === "string") return modelId;
  const [, inPath = ""] = /\/(?:models?|deployments)\/([^/:]+(?::\d+)?)/.exec(path) ?? [];
  return inPath;
}

function objectOf(value: unknown): Fields {
  return typeof value === "object" && value !== null ? (value as Fields) : {};
}

function isGiven(value: unknown): boolean {
  return value !== undefined && value !== null;
}

function isAmount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 1;
}

function sum(amounts: readonly number[]): number {
  return amounts.reduce((total, each) => total + each, 0);
}
