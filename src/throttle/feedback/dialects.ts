/**
 * The words by which APIs and their clients refuse calls: codes, sentences, names of headers and
 * names of properties. The readers beside this file say what the words mean. A new dialect usually
 * needs a change here only.
 */
import type { QuotaPeriod } from "../../core/answer.ts";
import { readProperty } from "./properties.ts";

/**
 * What a code means. `rate`: too many calls. `overloaded`: a server without capacity. `quota`: a
 * quota that is used up, often for hours. `spent`: an account for which waiting does not help.
 */
export type Meaning = "rate" | "overloaded" | "quota" | "spent";

/** The JSON-RPC code for an exceeded limit (EIP-1474). Nodes that lag behind also use it. */
export const RPC_LIMIT_EXCEEDED = -32005;

/** The longest code that is read. */
const LONGEST_CODE = 200;

/** Codes in lower case without punctuation. If several match, the first meaning counts. */
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

/** Codes about a limit itself, which no call has exceeded: `InvalidRateLimit`, `rate_limit_policy_not_found`. */
const ABOUT_LIMITS =
  /^(?:invalid|missing|unknown|unsupported)|(?:notfound|exists|invalid|required|missing|disabled|unsupported)$/;

/** Codes in the body of a successful response. Only unambiguous ones count. */
const REFUSED_IN_RESULT =
  /^(?:graphql|api|query|request|user)?(?:rate(?:limit)?limit(?:s|ed|exceeded|reached|error)?|ratelimit(?:s|ed|exceeded|reached|error)?|throttled|throttling(?:error|exception)?|toomanyrequests|(?:provisioned)?throughputexceeded(?:exception)?|resourceexhausted|over(?:query|daily)limit|complexitybudgetexhausted|complexityexception|overloaded(?:error)?|maxlag)$/;

/** Returns what a code means, or undefined for codes that refuse no call. */
export function meaningOf(code: unknown): Meaning | undefined {
  if (code === RPC_LIMIT_EXCEEDED) return "rate";
  const forms = formsOf(code);
  const meaning = MEANINGS.find(([, form]) => forms.some((letters) => form.test(letters)))?.[0];
  const isAboutLimits = meaning === "rate" && forms.some((letters) => ABOUT_LIMITS.test(letters));
  return isAboutLimits ? undefined : meaning;
}

/** The same for a code in a successful response. */
export function meaningInResult(code: unknown): Meaning | undefined {
  const found = formsOf(code).find((letters) => REFUSED_IN_RESULT.test(letters));
  if (found === undefined) return undefined;
  return /^(?:overload|maxlag)/.test(found) ? "overloaded" : "rate";
}

/** Returns the meaning that counts if a response has several. */
export function strongest(meanings: ReadonlySet<Meaning>): Meaning | undefined {
  return MEANINGS.find(([meaning]) => meanings.has(meaning))?.[0];
}

/** True if a sentence reports too many calls. */
export function saysTooMany(sentence: string): boolean {
  return /secondary rate limit|abuse detection|too many (?:requests|calls)|\bIP banned until\b|\benhance your calm\b|\bflood_wait|\ba wait of \d+ seconds is required\b|(?:rate|request|call)[ -]?limit(?:s|ed)?\b.{0,60}(?<!\b(?:must|may|can|could|should|not|cannot) )\b(?:exceed|reach|hit)|(?:exceed|reach|hit)\w*\b.{0,60}\b(?:rate|request|call)[ -]?limit|rate[ -]?limited|(?:was|were|been|are) throttled/i.test(
    sentence,
  );
}

/** True for GitHub's limit on bursts and expensive calls. The next call must wait for a minute. */
export function saysSecondaryLimit(sentence: string): boolean {
  return /secondary rate limit|abuse detection/i.test(sentence);
}

/** True if a call exceeds the whole limit, so waiting does not help: OpenAI, Groq, ElevenLabs. */
export function saysTooLarge(sentence: string): boolean {
  return /\brequest (?:is )?too large\b|\bmust be reduced in order to run\b|\bthis request exceeds your quota\b/i.test(
    sentence,
  );
}

/** True for a message that is too long. gRPC uses the code of a used-up quota for it. */
export function saysTooLong(sentence: string): boolean {
  return /\blarger than (?:the )?(?:max|\d)/i.test(sentence);
}

/** True for a limit on existing resources. Google uses the code of a daily quota for it: `Quota 'CPUS' exceeded. Limit: 24.0 in region …`. */
export function saysTooMuchExists(sentence: string): boolean {
  return /\bquota '[^']{1,100}' exceeded\.\s+limit: [\d.]+ (?:in|globally)\b/i.test(sentence);
}

/** True if an account is out of money, for APIs without a code for it: xAI, Gemini. */
export function saysSpent(sentence: string): boolean {
  return /\bused all available credits\b|\bcredits (?:are|have been) (?:depleted|used up|exhausted)\b/i.test(
    sentence,
  );
}

/** True for a used-up quota of Azure API Management. */
export function saysUsedUp(sentence: string): boolean {
  return /\bout of call volume quota\b/i.test(sentence);
}

/** True if a mail server accepts no more mail for now. A full mailbox does not count. */
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

/** Returns the letters of a code, with and without its prefix: `quotaexceeded` of `messaging/quota-exceeded`. */
function formsOf(code: unknown): readonly string[] {
  if (typeof code !== "string" || code.length > LONGEST_CODE) return [];
  const nameAt = code.search(/[^/:#]*$/);
  const names = nameAt === 0 ? [code] : [code, code.slice(nameAt)];
  return names.map((name) => name.toLowerCase().replaceAll(/[^a-z0-9]/g, ""));
}

/** Names of properties in a body, in lower case without punctuation. */
export const CODE_NAME =
  /^(?:type|code|reason|status|statuscode|error|errorcode|errortype|subcode|kind)$/;
export const TEXT_NAME =
  /^(?:message|msg|errormessage|detail|details|description|errordescription|errors?|title)$/;
export const QUOTA_NAME = /^(?:quota|limit|policy)(?:id|metric|limit|name|unit|type)$/;
export const WAIT_NAME =
  /^estimatedtime$|^(?:retry|backoff|wait|msbefore)(?:after|in|delay|next|time|for)?(?:next)?(ms|millis|milliseconds|inms)?(?:s|secs?|seconds|inseconds)?$/;

export const RESET_NAME =
  /^(?:x?ratelimit)?resets?(?:at|in|after|time)?(?:ms|millis|milliseconds|inms)?(?:s|secs?|seconds|inseconds)?$/;

/** The headers to look up if a client cannot list them. */
export const USUAL_NAMES: readonly string[] = [
  "date",
  "age",
  "retry-after",
  "retry-after-ms",
  "x-ms-retry-after-ms",
  "x-amz-retry-after",
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
 * A header that asks for a wait: `retry-after`, `x-ms-retry-after-ms`, `retry-after-long`. It may end
 * with a unit, or with the limit that was hit, as for named throttlers of NestJS.
 */
const WAIT_HEADER =
  /(?:^|-)(?:retry-after(?<limit>-(?!ms$|millis|seconds?$).+?)??|retry-(?:in|delay|pushback)|backoff)(?:-(?<unit>ms|millis|milliseconds|secs?|seconds))?$/;
/** Endings of `retry-after` headers that contain no time. */
const NO_LIMIT = /-(?:count|attempts?|reason|limit|max|type|policy)$/;
/**
 * The unit of headers that ask for a wait under another name, or without naming its unit. Services and
 * clients of AWS use ms.
 */
const WAIT_HEADERS: ReadonlyMap<string, "ms" | "s"> = new Map([
  ["x-amz-retry-after", "ms"],
  ["x-amzn-retry-after", "ms"],
]);

interface WaitHeader {
  /** The limit in its name, with a dash before it; `""` if the name has none. */
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

/** The properties in which an error keeps its causes. */
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
/** The properties in which a result or an error keeps its response. */
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
/** The same of errors only. In a result, these properties are data. */
export const PARTS_OF_ERRORS: readonly string[] = ["context", "output"];
/** The properties of a response with its status, headers or body. */
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

/** The properties in which an error keeps a wait. */
export const WAITS = ["retryAfter", "retry_after", "retryAfterSeconds", "retryDelay"];
export const WAITS_IN_MS = [
  "retryAfterMs",
  "retry_after_ms",
  "retryAfterInMs",
  "retryAfterMilliseconds",
  "retryAfterInMilliseconds",
];

/** Where an error keeps its own codes. */
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

export type Figure = "remaining" | "limit" | "reset" | "delay";

/** The words for the figures of a quota, in the names of headers. */
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
]);

/** Units in the names of headers. */
export const TIME_UNITS: ReadonlyMap<string, number> = new Map([
  ["ms", 1],
  ["millis", 1],
  ["milliseconds", 1],
]);
/** Words that name no quota. */
export const FILLERS: ReadonlySet<string> = new Set([
  "after",
  "at",
  "in",
  "time",
  "seconds",
  "secs",
]);

/** The words for the period of a quota, the longest first. */
export const PERIODS: readonly (readonly [QuotaPeriod, RegExp])[] = [
  ["month", /\bmonth(?:ly)?\b|\bper ?month/],
  ["day", /\bday\b|\bdaily\b|\bper ?day|\b24 ?h(?:ours?)?\b|\b[qrt]pd\b/],
  ["hour", /\bhour(?:ly)?\b|\bper ?hour|\b[rt]ph\b/],
  ["minute", /\bmin(?:ute)?(?:ly)?\b|\bper ?min|\b(?:[io]?[rt]|q)pm\b/],
  ["second", /\bsecond(?:ly)?\b|\bper ?sec|\b[qrt]ps\b/],
];

/** The words for what a quota counts. */
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
