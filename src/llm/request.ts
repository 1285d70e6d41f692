/** What a call asks a model for: read from the arguments of `fetch`, or from those of a client's method. */
import { hasCacheMark, tokensIn, tokensOfJson } from "./texts.ts";
import type { CountTokens } from "./estimate.ts";
import { isModelCommand, isModelMethod, isModelPath } from "./operations.ts";

/** A request to a model. */
export interface Asked {
  /** `"gpt-5-mini"`; `""` if it names none. */
  readonly model: string;
  /** The tokens of the prompt, as counted or estimated here. */
  readonly prompt: number;
  /** Those of them that stand before a mark of what is to be cached; undefined without a mark. */
  readonly marked: number | undefined;
  /** The most tokens of an answer, if the request says so. */
  readonly maxOutput: number | undefined;
  /** How many answers are made. */
  readonly answers: number;
  /** Whether the model answers with tokens; one that embeds does not. */
  readonly hasOutput: boolean;
}

type Fields = Readonly<Record<string, unknown>>;

/** Fields that hold what the model reads. */
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
  // Titan, Vertex, Mistral and Hugging Face, Cohere.
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
/** Fields that reach the model as JSON. */
const SCHEMAS = [
  "tools",
  "functions",
  "toolConfig",
  "response_format",
  "responseSchema",
  "output_config",
] as const;
/** Where requests bound their answers, in the order in which they count. */
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
/** Objects within a request in which its settings may stand. */
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

/** What a call does, as far as its arguments show. */
export interface ReadCall {
  /** What it asks a model; undefined where its arguments do not say. */
  readonly asked: Asked | undefined;
  /**
   * Whether the answer is one of a model to this call. False where method and path, or the name of a command or of a
   * client's method, say that the call reads or manages what is stored, or counts tokens.
   */
  readonly mayAsk: boolean;
}

const ASKS_NOTHING: ReadCall = { asked: undefined, mayAsk: false };

/** Reads a call by its arguments, and by the method of the client that was called, if it is known. */
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

/** The fields of a request among the arguments of a function. Behind a prompt, or behind an id, stands the rest of it. */
function fieldsOfCall([first, second]: readonly unknown[]): Fields | undefined {
  return typeof first === "string" ? { prompt: first, ...fieldsOf(second) } : fieldsOf(first);
}

/** Reads a call of `fetch`: only a POST asks a model, and only to a path that is not one of those that ask none. */
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

/** The same for a body that is at hand, such as the data of a job. */
export function readBody(body: unknown, count: CountTokens): Asked | undefined {
  const fields = fieldsOf(body);
  return fields === undefined ? undefined : asked({ fields, path: "" }, count);
}

interface Sent {
  readonly fields: Fields;
  /** Of the URL; `""` if there is none. */
  readonly path: string;
}

/** The path of what `fetch` was given as its address; a prompt is none. */
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

/** The body of a Request, from a copy; one that was read already has none any more. */
async function bodyOf(first: unknown): Promise<string | undefined> {
  if (!isRequest(first) || first.body === null || first.bodyUsed) return undefined;
  if (!/json/i.test(first.headers.get("content-type") ?? "")) return undefined;
  try {
    return await first.clone().text();
  } catch {
    // fetch says what is wrong with it.
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

/** The fields of a request; those of a command of AWS, and what such a one sends as bytes. */
function fieldsOf(given: unknown): Fields | undefined {
  if (typeof given !== "object" || given === null || Array.isArray(given)) return undefined;
  const fields = given as Fields;
  if (isCommand(given)) return fieldsOf(fields["input"]);
  if (typeof fields["modelId"] !== "string" || fields["body"] === undefined) return fields;
  return { ...parsed(textOf(fields["body"])), modelId: fields["modelId"] };
}

/** A command of the AWS SDK. */
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

/** The requests that Gemini takes as one, such as those of `batchEmbedContents`. */
function requestsIn({ requests }: Fields): readonly Fields[] {
  return Array.isArray(requests) ? requests.map(objectOf) : [];
}

/** Models read tools first, then the system's prompt, then messages; what is cached is a beginning of that. */
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

/** Gemini, Bedrock and Azure name the model in the path. */
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
