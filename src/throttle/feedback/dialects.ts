/**
 * The words with which APIs and their clients refuse calls: codes, sentences, header names and
 * property names. The other files of this folder interpret these words. A new dialect usually needs
 * a change here only.
 */
import type { QuotaPeriod } from "../../core/answer.ts";
import { readProperty } from "./properties.ts";

/**
 * The meaning of a code:
 *
 * - `rate`: there were too many calls.
 * - `overloaded`: the server has no capacity.
 * - `quota`: a quota is used up, often for hours.
 * - `spent`: the account is out of money or credits, so waiting does not help.
 */
export type Meaning = "rate" | "overloaded" | "quota" | "spent";

/** The JSON-RPC code for an exceeded limit (EIP-1474). Ethereum nodes that lag behind also use this code. */
export const RPC_LIMIT_EXCEEDED = -32005;

/** The longest code that is read, in characters. */
const LONGEST_CODE = 200;

/**
 * The codes of each meaning, in lower case without punctuation. If several meanings match, the
 * first one counts.
 */
const MEANINGS: readonly (readonly [Meaning, RegExp])[] = [
  [
    "spent",
    /insufficientquota|insufficient(?:funds?|credits?|balance)|billing(?:hardlimit|notactive|disabled|limit)|creditbalance|outofcredits|paymentrequired/,
  ],
  [
    "quota",
    /^(?:the)?(?:user|project|account|daily|monthly|hourly|day|month)*(?:quota|dailylimit|monthlylimit|daylimit)(?:exceeded|exhausted|reached)(?:unreg|error|exception)?$/,
  ],
  ["overloaded", /overload|(?:server|system|service)(?:is)?(?:too)?busy|atcapacity/],
  [
    "rate",
    /ratelimit|rateexceeded|toomany(?:requests|calls)|throttl|resourceexhausted|slowdown|(?:request|call|concurren\w*)limit(?:exceeded|reached|hit)|throughputexceeded|bandwidthlimitexceeded|priorrequestnotcomplete|transactioninprogressexception|complexitybudget|budgetexhausted|floodwait|enhanceyourcalm|requestratetoolarge/,
  ],
];

/**
 * Matches codes that are about a limit itself and not about an exceeded limit: `InvalidRateLimit`,
 * `rate_limit_policy_not_found`.
 */
const ABOUT_LIMITS =
  /^(?:invalid|missing|unknown|unsupported)|(?:notfound|exists|invalid|required|missing|disabled|unsupported)$/;

/**
 * Matches codes of refusals in the body of a successful response. Only unambiguous codes count
 * there.
 */
const REFUSED_IN_RESULT =
  /^(?:graphql|api|query|request|user)?(?:rate(?:limit)?limit(?:s|ed|exceeded|reached|error)?|ratelimit(?:s|ed|exceeded|reached|error)?|throttled|throttling(?:error|exception)?|toomanyrequests|(?:provisioned)?throughputexceeded(?:exception)?|resourceexhausted|over(?:query|daily)limit|complexitybudgetexhausted|complexityexception|overloaded(?:error)?|maxlag)$/;

/** Returns the meaning of a code. Undefined if the code does not mean a refusal. */
export function meaningOf(code: unknown): Meaning | undefined {
  if (code === RPC_LIMIT_EXCEEDED) return "rate";
  const forms = formsOf(code);
  const meaning = MEANINGS.find(([, form]) => forms.some((letters) => form.test(letters)))?.[0];
  const isAboutLimits = meaning === "rate" && forms.some((letters) => ABOUT_LIMITS.test(letters));
  return isAboutLimits ? undefined : meaning;
}

/**
 * Returns the meaning of a code in a successful response. Undefined if the code does not mean a
 * refusal.
 */
export function meaningInResult(code: unknown): Meaning | undefined {
  const found = formsOf(code).find((letters) => REFUSED_IN_RESULT.test(letters));
  if (found === undefined) return undefined;
  return /^(?:overload|maxlag)/.test(found) ? "overloaded" : "rate";
}

/** Returns the meaning that counts if a response has several meanings. */
export function strongest(meanings: ReadonlySet<Meaning>): Meaning | undefined {
  return MEANINGS.find(([meaning]) => meanings.has(meaning))?.[0];
}

/** True if a sentence reports too many calls. */
export function saysTooMany(sentence: string): boolean {
  return /secondary rate limit|abuse detection|too many (?:requests|calls)|\bIP banned until\b|\benhance your calm\b|\bflood_wait|\ba wait of \d+ seconds is required\b|(?:rate|request|call)[ -]?limit(?:s|ed)?\b.{0,60}(?<!\b(?:must|may|can|could|should|not|cannot) )\b(?:exceed|reach|hit)|(?:exceed|reach|hit)\w*\b.{0,60}\b(?:rate|request|call)[ -]?limit|rate[ -]?limited|(?:was|were|been|are) throttled/i.test(
    sentence,
  );
}

/**
 * True if a sentence reports GitHub's secondary limit, on bursts and expensive calls. The next call
 * must then wait for a minute.
 */
export function saysSecondaryLimit(sentence: string): boolean {
  return /secondary rate limit|abuse detection/i.test(sentence);
}

/**
 * True if a sentence says that one call exceeds the whole limit, so that waiting does not help.
 * OpenAI, Groq and ElevenLabs send such sentences.
 */
export function saysTooLarge(sentence: string): boolean {
  return /\brequest (?:is )?too large\b|\bmust be reduced in order to run\b|\bthis request exceeds your quota\b/i.test(
    sentence,
  );
}

/**
 * True if a sentence says that a message is too long. gRPC uses the code of a used-up quota for
 * such messages.
 */
export function saysTooLong(sentence: string): boolean {
  return /\blarger than (?:the )?(?:max|\d)/i.test(sentence);
}

/**
 * True if a sentence reports a limit on existing resources. Google uses the code of a daily quota
 * for such limits: `Quota 'CPUS' exceeded. Limit: 24.0 in region …`.
 */
export function saysTooMuchExists(sentence: string): boolean {
  return /\bquota '[^']{1,100}' exceeded\.\s+limit: [\d.]+ (?:in|globally)\b/i.test(sentence);
}

/**
 * True if a sentence says that an account is out of money. xAI and Gemini have no code for this.
 */
export function saysSpent(sentence: string): boolean {
  return /\bused all available credits\b|\bcredits (?:are|have been) (?:depleted|used up|exhausted)\b/i.test(
    sentence,
  );
}

/** True if a sentence reports a used-up quota of Azure API Management. */
export function saysUsedUp(sentence: string): boolean {
  return /\bout of call volume quota\b/i.test(sentence);
}

/**
 * True if an error says that a mail server accepts no more mail for now. A full mailbox does not
 * count.
 */
export function saysTooManyMails(error: object, message: string): boolean {
  const replyCode = readProperty(error, "responseCode");
  if (typeof replyCode !== "number" || replyCode < 400) return false;
  const reply = `${message}\n${String(readProperty(error, "response"))}`;
  return TOO_MANY_MAILS.test(reply) || (replyCode < 500 && TOO_MUCH_FOR_NOW.test(reply));
}

const TOO_MANY_MAILS =
  /\b(?:daily|hourly)\b.{0,40}\b(?:limit|quota)|\bsending (?:limit|quota|rate)/i;
const TOO_MUCH_FOR_NOW =
  /throttl|\brate limit|too many (?:\w+ ){0,2}(?:connections|sessions|messages|e?mails)\b|connections? limit exceeded|\b4\.7\.28\b/i;

export function saysOverloaded(sentence: string): boolean {
  return /\boverloaded\b|\bover capacity\b/i.test(sentence);
}

/**
 * Returns the letters of a code, with and without the code's prefix: `quotaexceeded` for
 * `messaging/quota-exceeded`.
 */
function formsOf(code: unknown): readonly string[] {
  if (typeof code !== "string" || code.length > LONGEST_CODE) return [];
  const nameAt = code.search(/[^/:#]*$/);
  const names = nameAt === 0 ? [code] : [code, code.slice(nameAt)];
  return names.map((name) => name.toLowerCase().replaceAll(/[^a-z0-9]/g, ""));
}

/**
 * The patterns for property names in a body. Names are compared in lower case without punctuation.
 */
export const CODE_NAME =
  /^(?:type|code|reason|status|statuscode|error|errorcode|errortype|subcode|kind)$/;
export const TEXT_NAME =
  /^(?:message|msg|errormessage|detail|details|description|errordescription|errors?|title)$/;
export const QUOTA_NAME = /^(?:quota|limit|policy)(?:id|metric|limit|name|unit|type)$/;
export const WAIT_NAME =
  /^estimatedtime$|^(?:retry|backoff|wait|msbefore)(?:after|in|delay|next|time|for)?(?:next)?(ms|millis|milliseconds|inms)?(?:s|secs?|seconds|inseconds)?$/;

export const RESET_NAME =
  /^(?:x?ratelimit)?resets?(?:at|in|after|time)?(?:ms|millis|milliseconds|inms)?(?:s|secs?|seconds|inseconds)?$/;

/** The header names to look up if a client cannot list its headers. */
export const USUAL_NAMES: readonly string[] = [
  "date",
  "age",
  "retry-after",
  "retry-after-ms",
  "x-ms-retry-after-ms",
  "x-amz-retry-after",
  "x-amzn-retry-after",
  "x-should-retry",
  ...["x-ratelimit", "x-rate-limit", "ratelimit"].flatMap((family) =>
    ["limit", "remaining", "reset", "reset-after"].map((figure) => `${family}-${figure}`),
  ),
  ...["requests", "tokens"].flatMap((counted) =>
    ["limit", "remaining", "reset"].map((figure) => `x-ratelimit-${figure}-${counted}`),
  ),
  ...["requests", "tokens", "input-tokens", "output-tokens"].flatMap((counted) =>
    ["limit", "remaining", "reset"].map((figure) => `anthropic-ratelimit-${counted}-${figure}`),
  ),
  "ratelimit",
  "ratelimit-policy",
  "x-shopify-shop-api-call-limit",
];

/**
 * Matches the name of a header that asks for a wait: `retry-after`, `x-ms-retry-after-ms`,
 * `retry-after-long`. The name may end with a unit. It may also end with the name of the exceeded
 * limit, as for named throttlers of NestJS.
 */
const WAIT_HEADER =
  /(?:^|-)(?:retry-after(?<limit>-(?!ms$|millis|seconds?$).+?)??|retry-(?:in|delay|pushback)|backoff)(?:-(?<unit>ms|millis|milliseconds|secs?|seconds))?$/;
/** Matches the endings of `retry-after` headers whose value is no time. */
const NO_LIMIT = /-(?:count|attempts?|reason|limit|max|type|policy)$/;
/**
 * The unit of headers whose name does not show it, or does not show that they ask for a wait.
 * Services and clients of AWS use ms.
 */
const WAIT_HEADERS: ReadonlyMap<string, "ms" | "s"> = new Map([
  ["x-amz-retry-after", "ms"],
  ["x-amzn-retry-after", "ms"],
]);

interface WaitHeader {
  /** The limit in the header's name, with a dash before it. `""` if the name contains no limit. */
  readonly limit: string;
  readonly isInMs: boolean;
}

export function readWaitHeader(name: string): WaitHeader | undefined {
  const known = WAIT_HEADERS.get(name);
  if (known !== undefined) return { limit: "", isInMs: known === "ms" };
  if (!name.includes("retry") && !name.includes("backoff")) return undefined;
  const groups = WAIT_HEADER.exec(name)?.groups;
  if (groups === undefined) return undefined;
  const { limit = "", unit = "" } = groups;
  if (NO_LIMIT.test(limit)) return undefined;
  return { limit, isInMs: unit.startsWith("m") };
}

/** The properties in which an error stores other errors. */
export const WITHIN = [
  "cause",
  "lastError",
  "originalError",
  "networkError",
  "innerError",
  "error",
  "reason",
  "err",
  "original",
  "previous",
];
/** The properties in which a result or an error stores its response. */
export const PARTS: readonly string[] = [
  "raw",
  "rawResponse",
  "$response",
  "$metadata",
  "res",
  "meta",
  "_response",
  "httpResponse",
  "originalResponse",
  "httpMeta",
];
/** The properties in which only errors store a response. In a result, these properties are data. */
export const PARTS_OF_ERRORS: readonly string[] = ["context", "output"];
/** The properties in which a response stores its status, headers or body. */
export const STATUSES: readonly string[] = [
  "status",
  "statusCode",
  "status_code",
  "httpStatusCode",
  "httpStatus",
  "networkStatusCode",
  "responseStatus",
];
export const HEADERS = [
  "headers",
  "responseHeaders",
  "httpHeaders",
  "header",
  "rawHeaders",
  "metadata",
  "trailers",
];
export const BODIES = [
  "data",
  "body",
  "_data",
  "responseBody",
  "rawBody",
  "bodyText",
  "responseText",
  "text",
  "error",
  "errors",
  "graphQLErrors",
  "errorDetails",
  "statusDetails",
  "details",
  "result",
  "extensions",
  "parameters",
  "rawError",
  "bodyAsText",
  "errorInfoMetadata",
  "CancellationReasons",
  "extra",
];

/** The properties in which an error stores a wait. */
export const WAITS = ["retryAfter", "retry_after", "retryAfterSeconds", "retryDelay"];
export const WAITS_IN_MS = [
  "retryAfterMs",
  "retry_after_ms",
  "retryAfterInMs",
  "retryAfterMilliseconds",
  "retryAfterInMilliseconds",
];

/** The properties in which an error stores its own codes. */
export const CODES_OF_ERRORS: readonly string[] = [
  "name",
  "code",
  "type",
  "__type",
  "errorCode",
  "Code",
  "reason",
  "lc_error_code",
  "codeName",
  "error",
];

export type Figure = "remaining" | "limit" | "reset" | "delay" | "interval";

/** The words in header names for the figures of a quota. */
export const FIGURES: ReadonlyMap<string, Figure> = new Map([
  ["remaining", "remaining"],
  ["left", "remaining"],
  ["available", "remaining"],
  ["limit", "limit"],
  ["max", "limit"],
  ["reset", "reset"],
  ["resets", "reset"],
  ["resettime", "reset"],
  ["resetat", "reset"],
  ["resetin", "reset"],
  ["resetafter", "reset"],
  // Akamai's `X-RateLimit-Next`.
  ["next", "reset"],
  // The length of the window, of HubSpot and Trello.
  ["interval", "interval"],
]);

/** The words in header names for time units, with their length in ms. */
export const TIME_UNITS: ReadonlyMap<string, number> = new Map([
  ["ms", 1],
  ["millis", 1],
  ["milliseconds", 1],
]);
/** The words in header names that do not distinguish quotas. */
export const FILLERS: ReadonlySet<string> = new Set([
  "after",
  "at",
  "in",
  "time",
  "seconds",
  "secs",
]);

/** The words for the period of a quota. The longest period comes first. */
export const PERIODS: readonly (readonly [QuotaPeriod, RegExp])[] = [
  ["month", /\bmonth(?:ly)?\b|\bper ?month/],
  ["day", /\bday\b|\bdaily\b|\bper ?day|\b24 ?h(?:ours?)?\b|\b[qrt]pd\b/],
  ["hour", /\bhour(?:ly)?\b|\bper ?hour|\b[rt]ph\b/],
  ["minute", /\bmin(?:ute)?(?:ly)?\b|\bper ?min|\b(?:[io]?[rt]|q)pm\b/],
  ["second", /\bsecond(?:ly)?\b|\bper ?sec|\b[qrt]ps\b/],
];

/** The words for the unit that a quota counts. */
export const UNITS: readonly (readonly [string, RegExp])[] = [
  ["input-tokens", /\binput ?tokens?\b|\bprompt tokens?\b|\bitpm\b/],
  ["output-tokens", /\boutput ?tokens?\b|\bcompletion tokens?\b|\botpm\b/],
  ["tokens", /\btokens?\b|\btp[mdhs]\b/],
  ["calls", /\brequests?\b|\bcalls?\b|\bquer(?:y|ies)\b|\brp[mdhs]\b/],
  ["points", /\bpoints?\b|\bcomplexity\b|\bcost\b/],
  ["credits", /\bcredits?\b/],
  ["bytes", /\bbytes?\b/],
  ["images", /\bimages?\b/],
];
