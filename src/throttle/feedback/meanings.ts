/** What the codes of downstreams mean: `rate_limit_error`, `ThrottlingException`, `RATE_LIMITED`, `dailyLimitExceeded`. */

/**
 * What a code says of a refusal: too many calls for now; no room for anybody; a quota that is used up for
 * hours; and an account for which no wait helps.
 */
export type Meaning = "rate" | "overloaded" | "quota" | "spent";

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
    /ratelimit|rateexceeded|toomany(?:requests|calls)|throttl|resourceexhausted|slowdown|(?:request|call|concurren\w*)limit(?:exceeded|reached|hit)|throughputexceeded|bandwidthlimitexceeded|priorrequestnotcomplete|transactioninprogressexception|complexitybudget|budgetexhausted|floodwait|enhanceyourcalm/,
  ],
];

/** Codes in a body that came with a success: only what says nothing but this. */
const REFUSED_IN_RESULT =
  /^(?:graphql)?(?:rate(?:limit)?limit(?:s|ed|exceeded|reached|error)?|ratelimit(?:s|ed|exceeded|reached|error)?|throttled|toomanyrequests|resourceexhausted|complexitybudgetexhausted|complexityexception|overloaded(?:error)?)$/;

/** What a code says of a refusal; undefined for any other code. */
export function meaningOf(code: unknown): Meaning | undefined {
  const letters = lettersOf(code);
  if (letters === undefined) return undefined;
  return MEANINGS.find(([, form]) => form.test(letters))?.[0];
}

/** The same for a code that came with a success. */
export function meaningInResult(code: unknown): Meaning | undefined {
  const letters = lettersOf(code);
  if (letters === undefined || !REFUSED_IN_RESULT.test(letters)) return undefined;
  return letters.startsWith("overload") ? "overloaded" : "rate";
}

/** The meaning that counts of several. */
export function strongest(meanings: ReadonlySet<Meaning>): Meaning | undefined {
  return MEANINGS.find(([meaning]) => meanings.has(meaning))?.[0];
}

/** Whether a sentence says that calls are refused for their number. */
export function saysTooMany(sentence: string): boolean {
  return /secondary rate limit|abuse detection|too many (?:requests|calls)|(?:rate|request|call)[ -]?limit(?:s|ed)?\b.{0,60}\b(?:exceed|reach|hit)|(?:exceed|reach|hit)\w*\b.{0,60}\b(?:rate|request|call)[ -]?limit|rate[ -]?limited|(?:was|were|been|are) throttled/i.test(
    sentence,
  );
}

/** GitHub's limit on calls that come too fast or cost too much, after which a minute is to pass. */
export function saysSecondaryLimit(sentence: string): boolean {
  return /secondary rate limit|abuse detection/i.test(sentence);
}

export function saysOverloaded(sentence: string): boolean {
  return /\boverloaded\b|\bover capacity\b/i.test(sentence);
}

function lettersOf(code: unknown): string | undefined {
  if (typeof code !== "string" || code.length > LONGEST_CODE) return undefined;
  return code.toLowerCase().replaceAll(/[^a-z0-9]/g, "");
}
