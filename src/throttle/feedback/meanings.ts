/** What the codes of downstreams mean: `rate_limit_error`, `ThrottlingException`, `RATE_LIMITED`, `dailyLimitExceeded`. */

import { readProperty } from "./properties.ts";

/**
 * What a code says of a refusal: too many calls for now; no room for anybody; a quota that is used up, often for
 * hours; and an account for which no wait helps.
 */
export type Meaning = "rate" | "overloaded" | "quota" | "spent";

/** The code of JSON-RPC for a limit that is exceeded (EIP-1474), also of a node that lags behind. */
export const RPC_LIMIT_EXCEEDED = -32005;

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
