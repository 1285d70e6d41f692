/** Finds the texts in what is sent to a model and in what it answers, whatever the API. */
import type { CountTokens } from "./estimate.ts";

/** What a picture, a sound or a document is taken for. */
const MEDIA_TOKENS = 1_000;
/** What the form of each message takes beside its text. */
const MESSAGE_TOKENS = 4;
const DEEPEST = 20;
const MOST_VALUES = 200_000;

/** Names under which no text for the model stands. */
const NO_TEXT =
  /^(?:role|type|id|index|.*_id|.*Id|cache_?[cC]ontrol|cachePoint|media_?[tT]ype|mime_?[tT]ype|mimeType|format|detail|signature|thoughtSignature|encrypted_content|finish_?[rR]eason|logprobs|status|object)$/;
/** Names under which media stand, by themselves or by their address. */
const MEDIA =
  /^(?:image_url|image|inline_?[dD]ata|file_?[dD]ata|file_url|file|input_audio|audio|video|bytes|data|url|uri|file_?[uU]ri|source|s3Location)$/;

const CACHE_MARK = /^cache_?control$|^cachePoint$/i;

/** The tokens of all texts in a value; a list counts each message in it. */
export function tokensIn(value: unknown, count: CountTokens): number {
  const state = { left: MOST_VALUES };
  return visit("", value, 0);

  function visit(name: string, part: unknown, depth: number): number {
    state.left -= 1;
    if (state.left < 0 || depth > DEEPEST || part === undefined || part === null) return 0;
    if (typeof part === "string")
      return MEDIA.test(name) && !isProse(part) ? MEDIA_TOKENS : count(part);
    if (typeof part === "number" || typeof part === "boolean") return 1;
    if (typeof part !== "object") return 0;
    if (ArrayBuffer.isView(part) || part instanceof ArrayBuffer || part instanceof Blob) {
      return MEDIA_TOKENS;
    }
    if (Array.isArray(part)) {
      return part.reduce((sum: number, each) => sum + visit(name, each, depth + 1), 0);
    }
    const own = "role" in part ? MESSAGE_TOKENS : 0;
    const entries = Object.entries(part).filter(([each]) => !NO_TEXT.test(each));
    // A picture in an object is one, whatever else says about it.
    if (MEDIA.test(name) && !entries.some(([each]) => each === "text" || each === "content")) {
      return MEDIA_TOKENS;
    }
    return entries.reduce((sum, [each, inner]) => sum + visit(each, inner, depth + 1), own);
  }
}

/** Whether a mark stands in it of what the provider is to cache: `cache_control` of Anthropic, or `cachePoint` of Bedrock. */
export function hasCacheMark(value: unknown, depth = 0): boolean {
  if (typeof value !== "object" || value === null || depth > DEEPEST) return false;
  if (ArrayBuffer.isView(value) || value instanceof ArrayBuffer) return false;
  return Object.entries(value).some(
    ([name, inner]) => (CACHE_MARK.test(name) && inner !== null) || hasCacheMark(inner, depth + 1),
  );
}

/** Whether what stands where media do is a text after all, such as that of a document. */
function isProse(text: string): boolean {
  return !/^(?:data:|https?:|gs:|s3:)/.test(text) && /\s/.test(text.slice(0, 200));
}

/** The tokens of what is given as a schema or as tools: the model gets its JSON. */
export function tokensOfJson(value: unknown, count: CountTokens): number {
  if (value === undefined || value === null) return 0;
  try {
    return count(JSON.stringify(value) ?? "");
  } catch {
    // With a circle in it, it cannot be sent either.
    return 0;
  }
}
