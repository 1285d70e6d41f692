/** What the body of an answer says, whatever its form: the names of its parts tell what they are. */
import { types } from "node:util";
import type { QuotaPeriod } from "../../core/answer.ts";
import { readProperty } from "./properties.ts";
import { periodOf, unitOf } from "./remaining.ts";
import { readDelayMs, readWaitMs } from "./retry-after.ts";

/** What a body says. */
export interface BodyFacts {
  readonly meanings: Set<Meaning>;
  /** The longest wait that it asks for, in ms. */
  waitMs: number | undefined;
  /** The longest time until a quota is reset, in ms. */
  resetMs: number | undefined;
  period: QuotaPeriod | undefined;
  unit: string | undefined;
  /** The status that it repeats: `429`. */
  status: number | undefined;
  /** Whether it has the form of Google's APIs, whose daily quotas are reset at midnight in California. */
  isGoogle: boolean;
  /** Whether it names a limit of those that Google counts by the day, unless it says otherwise. */
  isOfDay: boolean;
  /** What it says to people. */
  text: string;
}

/** How a body is read. */
interface Reading {
  readonly facts: BodyFacts;
  /** Whether it came with a success: only clear words count then. */
  readonly isResult: boolean;
  readonly wallNowMs: number;
  readonly seen: Set<object>;
  left: number;
}

/** Bounds for a hostile body. */
const [MOST_VALUES, DEEPEST, LONGEST_BODY, LONGEST_TEXT] = [1_000, 8, 65_536, 4_000];
const MOST_IN_LIST = 100;

/** Names of parts, without case, dashes and underscores. */
const CODE = /^(?:type|code|reason|status|statuscode|error|errorcode|errortype|subcode|kind)$/;
const TEXT =
  /^(?:message|msg|errormessage|detail|details|description|errordescription|errors?|title)$/;
const QUOTA = /^(?:quota|limit|policy)(?:id|metric|limit|name|unit|type)$/;
const WAIT =
  /^estimatedtime$|^(?:retry|backoff|wait|msbefore)(?:after|in|delay|next|time|for)?(?:next)?(ms|millis|milliseconds|inms)?(?:s|secs?|seconds|inseconds)?$/;

const RESET =
  /^(?:x?ratelimit)?resets?(?:at|in|after|time)?(?:ms|millis|milliseconds|inms)?(?:s|secs?|seconds|inseconds)?$/;

/** A count of ms from here on is a moment: as a delay it would be of three years. */
const FIRST_EPOCH_MS = 1e11;

/** Reads a body as a client has parsed it, or its text; adds what it says to `facts`. Never throws. */
export function readBody(
  body: unknown,
  facts: BodyFacts,
  { isResult, wallNowMs }: { readonly isResult: boolean; readonly wallNowMs: number },
): void {
  const reading = { facts, isResult, wallNowMs, seen: new Set<object>(), left: MOST_VALUES };
  const parsed = typeof body === "string" ? parse(body, reading) : body;
  if (isResult) readResult(parsed, reading);
  else visit("", parsed, reading, 0);
}

export function noFacts(): BodyFacts {
  return {
    meanings: new Set(),
    waitMs: undefined,
    resetMs: undefined,
    period: undefined,
    unit: undefined,
    status: undefined,
    isGoogle: false,
    isOfDay: false,
    text: "",
  };
}

/** A body that came with a success may hold any data: only its errors are read. */
function readResult(body: unknown, reading: Reading): void {
  if (typeof body !== "object" || body === null) return;
  const [errors, error] = [readProperty(body, "errors"), readProperty(body, "error")];
  for (const each of [errors, readProperty(errors, "graphQLErrors"), error]) {
    if (each !== undefined && each !== null) visit("error", each, reading, 0);
  }
  const { facts } = reading;
  if (isRpcRefusal(body, readProperty(error, "code"))) facts.meanings.add("rate");
  // Marketo's codes are numbers, with a sentence each.
  if (readProperty(body, "success") === false && saysTooMany(facts.text)) {
    facts.meanings.add("rate");
  }
  const code = readProperty(body, "error_code") ?? overLimitOf(readProperty(body, "status"));
  const meaning = meaningInResult(code);
  if (meaning !== undefined) {
    facts.meanings.add(meaning);
    readPart("message", readProperty(body, "error_message"), reading);
  }
  if (facts.meanings.size > 0) readQueryCost(readProperty(body, "extensions"), facts);
}

/** Google's maps refuse by a status of this form; of other data a status may be anything. */
function overLimitOf(status: unknown): unknown {
  return typeof status === "string" && status.startsWith("OVER_") ? status : undefined;
}

/** JSON-RPC refuses with a 200, as OpenRouter may; the error of a record with an id is data. */
function isRpcRefusal(body: object, code: unknown): boolean {
  const isRpc = readProperty(body, "jsonrpc") !== undefined;
  if (code === RPC_LIMIT_EXCEEDED) return isRpc;
  return code === 429 && (isRpc || readProperty(body, "id") === undefined);
}

function visit(name: string, value: unknown, reading: Reading, depth: number): void {
  reading.left -= 1;
  if (reading.left < 0 || value === undefined || value === null) return;
  if (typeof value !== "object") return readPart(name, value, reading);
  // An error within is read by itself, with its headers.
  if (depth > DEEPEST || reading.seen.has(value) || types.isNativeError(value)) return;
  reading.seen.add(value);
  readTime(name, value, reading);
  try {
    visitParts(name, value, reading, depth);
  } catch {
    // A getter or a Proxy that throws says nothing more.
  }
}

function visitParts(name: string, value: object, reading: Reading, depth: number): void {
  if (Array.isArray(value)) {
    const count = Math.min(value.length, MOST_IN_LIST);
    for (let index = 0; index < count; index++) visit(name, value[index], reading, depth + 1);
    return;
  }
  if (value instanceof Uint8Array) return;
  if (!reading.isResult) {
    readQueryCost(readProperty(value, "extensions"), reading.facts);
    if (readProperty(readProperty(value, "cost"), "throttleStatus") !== undefined) {
      readQueryCost(value, reading.facts);
    }
  }
  let parts = 0;
  for (const part in value) {
    parts += 1;
    if (parts > MOST_IN_LIST) return;
    visit(plainName(part), readProperty(value, part), reading, depth + 1);
  }
}

function readPart(name: string, value: unknown, reading: Reading): void {
  const { facts, isResult } = reading;
  readTime(name, value, reading);
  if (CODE.test(name)) {
    const meaning = isResult ? meaningInResult(value) : meaningOf(value);
    if (meaning !== undefined) facts.meanings.add(meaning);
    const status = Number(value);
    if (!isResult && Number.isInteger(status) && status >= 400 && status <= 599) {
      facts.status ??= status;
    }
    // HubSpot and others name the limit that was hit where a code is expected.
    if (meaning === "quota" && typeof value === "string") facts.period ??= periodOf(value);
  }
  if (typeof value !== "string") return;
  if (QUOTA.test(name)) {
    facts.period = longer(facts.period, periodOf(value));
    facts.unit ??= unitOf(value);
  }
  if (name === "@type" || name === "domain") {
    facts.isOfDay ||= /^(?:usageLimits|youtube\.quota|global)$/.test(value);
    facts.isGoogle ||= facts.isOfDay || /googleapis\.com/.test(value);
  }
  if (TEXT.test(name) && facts.text.length < LONGEST_TEXT) {
    facts.text += `${value.slice(0, LONGEST_TEXT)}\n`;
  }
}

function readTime(name: string, value: unknown, { facts, wallNowMs }: Reading): void {
  const isReset = RESET.test(name);
  if (!isReset && !WAIT.test(name)) return;
  const isMs = /(?:ms|millis|milliseconds)$|^msbefore/.test(name);
  const isDelay = isMs && !(Number(value) >= FIRST_EPOCH_MS);
  const waitMs = isDelay ? readDelayMs(value, 1) : readWaitMs(value, wallNowMs);
  if (waitMs === undefined) return;
  if (isReset) facts.resetMs = Math.max(facts.resetMs ?? 0, waitMs);
  else facts.waitMs = Math.max(facts.waitMs ?? 0, waitMs);
}

/** Shopify says how much a query costs, what is left, and how fast that grows. */
function readQueryCost(extensions: unknown, facts: BodyFacts): void {
  const cost = readProperty(extensions, "cost");
  const status = readProperty(cost, "throttleStatus");
  const [requested, available, restoreRate] = [
    readProperty(cost, "requestedQueryCost"),
    readProperty(status, "currentlyAvailable"),
    readProperty(status, "restoreRate"),
  ].map(Number);
  const waitMs = ((requested! - available!) / restoreRate!) * 1_000;
  if (Number.isFinite(waitMs) && waitMs > 0) facts.waitMs ??= Math.ceil(waitMs);
  if (cost !== undefined) facts.unit ??= "points";
}

const LENGTHS: readonly QuotaPeriod[] = ["second", "minute", "hour", "day", "month"];

function longer(
  one: QuotaPeriod | undefined,
  other: QuotaPeriod | undefined,
): QuotaPeriod | undefined {
  if (one === undefined || other === undefined) return one ?? other;
  return LENGTHS.indexOf(one) >= LENGTHS.indexOf(other) ? one : other;
}

/** A text as JSON, or as XML, whose codes are read by their tags; anything else is a message for people. */
function parse(text: string, reading: Reading): unknown {
  const { facts, isResult } = reading;
  const given = text.slice(0, LONGEST_BODY).trim();
  if (given.startsWith("{") || given.startsWith("[")) {
    try {
      return JSON.parse(given);
    } catch {
      if (!isResult) readPieces(given, reading);
      return undefined;
    }
  }
  if (isResult) return undefined;
  const codes = given.matchAll(/<(?:\w+:)?(code|reason|status|type)>([\w.-]{1,100})</gi);
  for (const [, , code] of codes) {
    const meaning = meaningOf(code);
    if (meaning !== undefined) facts.meanings.add(meaning);
  }
  facts.text += `${given.slice(0, LONGEST_TEXT)}\n`;
  return undefined;
}

/** What can be read of JSON that was cut off, or is followed by more. */
function readPieces(text: string, reading: Reading): void {
  const pieces = text.matchAll(/"([@\w.-]{1,40})"\s*:\s*(?:"([^"\\]{0,1000})"|(\d[\d.]{0,20}))/g);
  for (const [, name = "", words, digits] of pieces) {
    reading.left -= 1;
    if (reading.left < 0) return;
    readPart(plainName(name), words ?? Number(digits), reading);
  }
}

function plainName(name: string): string {
  return name.toLowerCase().replaceAll(/[-_. ]/g, "");
}

/**
 * What a code says of a refusal: too many calls for now; no room for anybody; a quota that is used up, often for
 * hours; and an account for which no wait helps.
 */
export type Meaning = "rate" | "overloaded" | "quota" | "spent";

/** The code of JSON-RPC for a limit that is exceeded (EIP-1474), also of a node that lags behind. */
const RPC_LIMIT_EXCEEDED = -32005;

/** The longest code that is read. */
const LONGEST_CODE = 200;

/** Codes without case, dashes, dots and underscores, in the order in which they count. */
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

/** Codes that speak of a limit, and not of calls that exceed it: `InvalidRateLimit`, `rate_limit_policy_not_found`. */
const ABOUT_LIMITS =
  /^(?:invalid|missing|unknown|unsupported)|(?:notfound|exists|invalid|required|missing|disabled|unsupported)$/;

/** Codes in a body that came with a success: only what says nothing but this. */
const REFUSED_IN_RESULT =
  /^(?:graphql|api|query|request|user)?(?:rate(?:limit)?limit(?:s|ed|exceeded|reached|error)?|ratelimit(?:s|ed|exceeded|reached|error)?|throttled|throttling(?:error|exception)?|toomanyrequests|(?:provisioned)?throughputexceeded(?:exception)?|resourceexhausted|over(?:query|daily)limit|complexitybudgetexhausted|complexityexception|overloaded(?:error)?|maxlag)$/;

/** What a code says of a refusal; undefined for any other code. */
export function meaningOf(code: unknown): Meaning | undefined {
  if (code === RPC_LIMIT_EXCEEDED) return "rate";
  const forms = formsOf(code);
  const meaning = MEANINGS.find(([, form]) => forms.some((letters) => form.test(letters)))?.[0];
  const isAboutLimits = meaning === "rate" && forms.some((letters) => ABOUT_LIMITS.test(letters));
  return isAboutLimits ? undefined : meaning;
}

/** The same for a code that came with a success. */
export function meaningInResult(code: unknown): Meaning | undefined {
  const found = formsOf(code).find((letters) => REFUSED_IN_RESULT.test(letters));
  if (found === undefined) return undefined;
  return /^(?:overload|maxlag)/.test(found) ? "overloaded" : "rate";
}

/** The meaning that counts of several. */
export function strongest(meanings: ReadonlySet<Meaning>): Meaning | undefined {
  return MEANINGS.find(([meaning]) => meanings.has(meaning))?.[0];
}

/** Whether a sentence says that calls are refused for their number. */
export function saysTooMany(sentence: string): boolean {
  return /secondary rate limit|abuse detection|too many (?:requests|calls)|\bIP banned until\b|\benhance your calm\b|\bflood_wait|\ba wait of \d+ seconds is required\b|(?:rate|request|call)[ -]?limit(?:s|ed)?\b.{0,60}(?<!\b(?:must|may|can|could|should|not|cannot) )\b(?:exceed|reach|hit)|(?:exceed|reach|hit)\w*\b.{0,60}\b(?:rate|request|call)[ -]?limit|rate[ -]?limited|(?:was|were|been|are) throttled/i.test(
    sentence,
  );
}

/** GitHub's limit on calls that come too fast or cost too much, after which a minute is to pass. */
export function saysSecondaryLimit(sentence: string): boolean {
  return /secondary rate limit|abuse detection/i.test(sentence);
}

/** Whether a call is larger than its limit ever is, so that no wait helps: OpenAI, Groq, ElevenLabs. */
export function saysTooLarge(sentence: string): boolean {
  return /\brequest (?:is )?too large\b|\bmust be reduced in order to run\b|\bthis request exceeds your quota\b/i.test(
    sentence,
  );
}

/** gRPC has one code for a quota that is used up and for a message that is too long. */
export function saysTooLong(sentence: string): boolean {
  return /\blarger than (?:the )?(?:max|\d)/i.test(sentence);
}

/** Google has one code for the calls of a day and for how much may exist: `Quota 'CPUS' exceeded. Limit: 24.0 in region …`. */
export function saysTooMuchExists(sentence: string): boolean {
  return /\bquota '[^']{1,100}' exceeded\.\s+limit: [\d.]+ (?:in|globally)\b/i.test(sentence);
}

/** Whether an account is out of money, by those who have no code for it: xAI, Gemini. */
export function saysSpent(sentence: string): boolean {
  return /\bused all available credits\b|\bcredits (?:are|have been) (?:depleted|used up|exhausted)\b/i.test(
    sentence,
  );
}

/** Azure's API Management, of its quotas. */
export function saysUsedUp(sentence: string): boolean {
  return /\bout of call volume quota\b/i.test(sentence);
}

/** Whether a mail server takes no more for now; a mailbox that is full, or one recipient's limit, is none of it. */
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

/** The letters of a code, with and without what it is of: `quotaexceeded` of `messaging/quota-exceeded`. */
function formsOf(code: unknown): readonly string[] {
  if (typeof code !== "string" || code.length > LONGEST_CODE) return [];
  const nameAt = code.search(/[^/:#]*$/);
  const names = nameAt === 0 ? [code] : [code, code.slice(nameAt)];
  return names.map((name) => name.toLowerCase().replaceAll(/[^a-z0-9]/g, ""));
}
