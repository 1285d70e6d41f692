/**
 * Classifies the operations of LLM APIs. Some call a model; others manage stored data or count
 * tokens.
 */

/** Matches operations that count the tokens of a text without calling a model. */
const COUNTS_TOKENS =
  /(?:count|compute|num)_?tokens|\/input_tokens$|\/(?:de)?tokeni[sz]e(?:rs?|_text)?(?:\/|$)|token_count/;

/** Matches the ends of paths and method names that call a model. */
const ASKS_MODEL =
  /\/(?:completions|responses(?:\/compact)?|embeddings|interactions|agents\/(?:complete|stream)|converse(?:_stream)?|invoke(?:_with_response_stream)?|(?<!\/threads\/(?:[^/]+\/)?)messages|threads\/(?:[^/]+\/)?runs|threads\/create_and_run\w*)$|:(?:(?:stream_)?generate_content|embed_content|batch_embed_(?:contents|text)|(?:(?:stream_)?raw_)?predict)$/;

/** The path names of stored resources, and of products that are not counted in tokens. */
const RESOURCES = [
  "assistants",
  "batches",
  "cached_contents",
  "caches",
  "chatkit",
  "containers",
  "credentials",
  "dreams",
  "evals",
  "file_search_stores",
  "files",
  "fine_tuning",
  "guardrail",
  "memory_stores",
  "moderations",
  "organization",
  "realtime(?:api)?",
  "skills",
  "threads",
  "triggers",
  "tunings",
  "tunnels",
  "uploads",
  "user_profiles",
  "vaults",
  "vector_stores",
  "videos",
  "webhooks",
  // Azure and Bedrock have models under path names like these.
  String.raw`(?:beta|v\d)/(?:deployments|environments|sessions)`,
];

/** Matches paths at which a POST manages a resource, a stored answer or a batch job. */
const MANAGES = new RegExp(
  [
    String.raw`/(?:${RESOURCES.join("|")})(?:/|$)`,
    String.raw`/(?:responses|completions|interactions)/[^/:]+(?:/(?:cancel|messages|input_items))?$`,
    String.raw`/conversations/(?:[^/]+/)?items$`,
    String.raw`/tuned_models$|(?:^|/beta|/v\d\w*)/agents$`,
    String.raw`/api/(?:copy|create|pull|push|show)$`,
    String.raw`:\w*batch\w*$`,
    String.raw`:predict_long_running$`,
  ].join("|"),
);

/**
 * Matches client methods that read or change one stored object, or that produce something that is
 * not counted in tokens.
 */
const MANAGING_METHOD =
  /^(?:archive|cancel|count|del|delete|generateVideos|get|list|poll|remove|retrieve|update|submitToolOutputs(?:AndPoll|Stream)?)$/;

/** Matches commands of the AWS SDK that do not call a model. */
const MANAGING_COMMAND = /^(?:CountTokens|ApplyGuardrail|Get|List|Describe|Delete|Start|Stop)/;

/** True if a POST to this path calls a model. Also true for unknown paths. */
export function isModelPath(path: string): boolean {
  const words = wordsOf(path);
  return !COUNTS_TOKENS.test(words) && (ASKS_MODEL.test(words) || !MANAGES.test(words));
}

/**
 * True if a method of a client calls a model. `method` is the method's path from the client, such
 * as `"responses.create"`.
 */
export function isModelMethod(method: string): boolean {
  const words = wordsOf(`/${method.replaceAll(".", "/")}`);
  const owner = words.slice(0, words.lastIndexOf("/"));
  if (MANAGING_METHOD.test(method.slice(method.lastIndexOf(".") + 1))) return false;
  if (COUNTS_TOKENS.test(words)) return false;
  return ASKS_MODEL.test(words) || ASKS_MODEL.test(owner) || !MANAGES.test(owner);
}

export function isModelCommand(name: string): boolean {
  return !MANAGING_COMMAND.test(name);
}

/**
 * Normalizes a path. Names such as `cachedContents` and `count-tokens` become snake case, and
 * double slashes become one slash.
 */
function wordsOf(path: string): string {
  return path
    .replaceAll(/%3a/gi, ":")
    .replaceAll(/\/{2,}/g, "/")
    .replace(/\/$/, "")
    .replaceAll(/(?<=[a-z\d])(?=[A-Z])|-/g, "_")
    .toLowerCase();
}
