/**
 * Counts the tokens of the text that a model reads in requests and answers, for the formats of all
 * APIs.
 */
import type { CountTokens } from "./estimate.ts";

/** The number of tokens that is assumed for a picture, a sound or a document. */
const MEDIA_TOKENS = 1_000;
/** The tokens that the structure of each message adds. */
const MESSAGE_TOKENS = 4;
const DEEPEST = 20;
const MOST_VALUES = 200_000;

/** Matches the names of fields whose values the model does not read as text. */
const NO_TEXT =
  /^(?:role|type|id|index|.*_id|.*Id|cache_?[cC]ontrol|cachePoint|media_?[tT]ype|mime_?[tT]ype|format|detail|signature|thought_?[sS]ignature|encrypted_content|redactedContent|finish_?[rR]eason|logprobs|status|object)$/;

/** The values of `type` that mark media in OpenAI, Anthropic, Vercel's AI SDK and LangChain. */
const MEDIA_TYPES: ReadonlySet<unknown> = new Set([
  // OpenAI's chat completions and responses.
  "image_url",
  "input_image",
  "input_audio",
  "input_file",
  "file",
  "image_generation_call",
  "computer_screenshot",
  // Anthropic's messages.
  "image",
  "document",
  "redacted_thinking",
  "container_upload",
  // LangChain, Vercel's AI SDK, and servers with OpenAI's API.
  "audio",
  "video",
  "video_url",
  "audio_url",
  "input_video",
  "media",
]);
/**
 * The names of fields that contain media in Gemini and Bedrock, and of the media lists of Ollama
 * and Cohere.
 */
const MEDIA_NAMES: ReadonlySet<string> = new Set([
  "inlineData",
  "inline_data",
  "fileData",
  "file_data",
  "image_url",
  "image",
  "images",
  "audio",
  "video",
  "document",
]);
/** The names of fields inside media that may contain text instead of bytes, as in a document. */
const SOURCES: readonly string[] = ["source", "document", "file"];
/**
 * The names of the fields that contain the format of media, and of those that contain the bytes.
 */
const FORMATS: readonly string[] = ["mimeType", "mime_type", "mediaType", "media_type", "format"];
const BYTES: readonly string[] = ["data", "bytes", "file_data"];
/**
 * Matches the media formats that the model reads as text. Bedrock names formats by file extension.
 */
const TEXT_FORMAT = /^(?:text\/|application\/(?:json|xml)\b|(?:csv|html|md|txt)$)/;
const TEXT_URL = /^data:(?:text\/|application\/(?:json|xml)\b)[^,]{0,200};base64,/;

/**
 * The names of fields with tool data. Tool data is JSON of any form, which the model reads
 * unchanged.
 */
const TOOL_DATA_NAMES: ReadonlySet<string> = new Set(["args", "arguments", "json", "parameters"]);
/** The names of fields with tool data in Gemini and Bedrock, by the name of the enclosing field. */
const TOOL_DATA_OF_NAME: ReadonlyMap<string, string> = new Map([
  ["functionResponse", "response"],
  ["function_response", "response"],
  ["toolUse", "input"],
]);
/**
 * The names of fields with tool data in Anthropic, OpenAI and Vercel's AI SDK, by the `type` of the
 * enclosing part.
 */
const TOOL_DATA_OF_TYPE: ReadonlyMap<unknown, string> = new Map([
  ["tool_use", "input"],
  ["server_tool_use", "input"],
  ["mcp_tool_use", "input"],
  ["tool-call", "input"],
  ["tool_call", "input"],
  ["custom_tool_call", "input"],
  ["json", "value"],
  ["error-json", "value"],
  ["tool-result", "result"],
  ["web_search_call", "action"],
  ["computer_call", "action"],
  ["local_shell_call", "action"],
]);

const CACHE_MARK = /^cache_?control$|^cachePoint$/i;

type Part = Readonly<Record<string, unknown>>;

/**
 * Counts all tokens that a model reads in a value. Each message in a list adds tokens for its
 * structure.
 */
export function tokensIn(value: unknown, count: CountTokens): number {
  const state = { left: MOST_VALUES };
  return visit("", value, 0);

  function visit(name: string, part: unknown, depth: number): number {
    state.left -= 1;
    if (state.left < 0 || depth > DEEPEST || part === undefined || part === null) return 0;
    if (typeof part === "string") return isMediaText(name, part) ? MEDIA_TOKENS : count(part);
    if (typeof part === "number" || typeof part === "boolean") return 1;
    if (typeof part !== "object") return 0;
    if (isBinary(part)) return MEDIA_TOKENS;
    if (Array.isArray(part)) {
      return part.reduce((sum: number, each) => sum + visit(name, each, depth + 1), 0);
    }
    const fields = part as Part;
    if (MEDIA_NAMES.has(name) || MEDIA_TYPES.has(fields["type"])) {
      return mediaIn(fields, depth) ?? MEDIA_TOKENS;
    }
    return partsIn(name, fields, depth);
  }

  function partsIn(name: string, fields: Part, depth: number): number {
    const toolData = TOOL_DATA_OF_NAME.get(name) ?? TOOL_DATA_OF_TYPE.get(fields["type"]);
    const entries = Object.entries(fields).filter(([each]) => !NO_TEXT.test(each));
    return entries.reduce(
      (sum, [each, inner]) => {
        const isData = each === toolData || TOOL_DATA_NAMES.has(each);
        if (isData && typeof inner !== "string") return sum + tokensOfJson(inner, count);
        return sum + visit(each, inner, depth + 1);
      },
      "role" in fields ? MESSAGE_TOKENS : 0,
    );
  }

  /**
   * Counts media that contain text, such as a plain-text document. Returns undefined for other
   * media.
   */
  function mediaIn(fields: Part, depth: number, outer?: unknown): number | undefined {
    const { type, text, content, data, title, context } = fields;
    const around = [title, context].reduce(
      (sum: number, each) => sum + (typeof each === "string" ? count(each) : 0),
      0,
    );
    const isTyped = typeof type === "string" && MEDIA_TYPES.has(type);
    if (typeof text === "string") return around + count(text);
    if (content !== undefined) return around + visit("content", content, depth + 1);
    if (typeof data === "string" && isProse(data)) return around + count(data);
    // The documents of Cohere may be objects of any form.
    if (isJson(data)) return around + tokensOfJson(data, count);
    const format = FORMATS.map((name) => fields[name]).find(isText) ?? outer;
    const decoded = BYTES.map((name) => decodedText(fields[name], format)).find(isText);
    if (decoded !== undefined) return around + count(decoded);
    if (depth > DEEPEST) return undefined;
    for (const name of SOURCES) {
      const inner = fields[name];
      const isPart = isJson(inner) && (isTyped || name === "source");
      const found = isPart ? mediaIn(inner as Part, depth + 1, format) : undefined;
      if (found !== undefined) return around + found;
    }
    return undefined;
  }
}

/** Decodes the text of media in bytes or base64. Returns undefined for other media. */
function decodedText(data: unknown, format: unknown): string | undefined {
  if (isText(data) && TEXT_URL.test(data))
    return Buffer.from(data.slice(data.indexOf(",") + 1), "base64").toString();
  if (!isText(format) || !TEXT_FORMAT.test(format)) return undefined;
  if (data instanceof Uint8Array) return Buffer.from(data).toString();
  const isAddress = isText(data) && data.slice(0, 200).includes(":");
  return isText(data) && !isAddress ? Buffer.from(data, "base64").toString() : undefined;
}

function isText(value: unknown): value is string {
  return typeof value === "string";
}

/** True if a string is media: a URL, or bytes in base64. */
function isMediaText(name: string, text: string): boolean {
  if (/^data:[^,]{0,200};base64,/.test(text)) return true;
  return MEDIA_NAMES.has(name) && !isProse(text);
}

/** True if a text is prose, which contains spaces. Base64 contains only line breaks. */
function isProse(text: string): boolean {
  return text.slice(0, 200).includes(" ") && !text.startsWith("data:");
}

function isJson(value: unknown): value is object {
  return typeof value === "object" && value !== null && !isBinary(value);
}

function isBinary(value: object): boolean {
  return ArrayBuffer.isView(value) || value instanceof ArrayBuffer || value instanceof Blob;
}

/** True if a value contains a cache mark: Anthropic's `cache_control` or Bedrock's `cachePoint`. */
export function hasCacheMark(value: unknown, depth = 0): boolean {
  if (typeof value !== "object" || value === null || depth > DEEPEST) return false;
  if (isBinary(value)) return false;
  return Object.entries(value).some(
    ([name, inner]) => (CACHE_MARK.test(name) && inner !== null) || hasCacheMark(inner, depth + 1),
  );
}

/**
 * Counts the tokens of a value that the model receives as JSON: schemas, tools, and tool inputs and
 * outputs.
 */
export function tokensOfJson(value: unknown, count: CountTokens): number {
  if (value === undefined || value === null) return 0;
  try {
    return count(JSON.stringify(value, withoutBytes) ?? "");
  } catch {
    // A circular value cannot be sent to the model either.
    return 0;
  }
}

/**
 * Omits bytes, which JSON would write as a list of numbers. `this` contains the value before its
 * `toJSON` ran.
 */
function withoutBytes(this: unknown, name: string, value: unknown): unknown {
  const original = (this as Part)[name];
  return typeof original === "object" && original !== null && isBinary(original)
    ? undefined
    : value;
}
