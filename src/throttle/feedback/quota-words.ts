/** What the words of a header's name, of a quota's name or of a message say of the quota. */
import type { QuotaPeriod } from "../../core/answer.ts";

/** The most of a text that is searched. */
const MOST_SEARCHED = 2_000;

const PERIODS: readonly (readonly [QuotaPeriod, RegExp])[] = [
  ["month", /\bmonth(?:ly)?\b|\bper ?month/],
  ["day", /\bday\b|\bdaily\b|\bper ?day|\b24 ?h(?:ours?)?\b|\b[qrt]pd\b/],
  ["hour", /\bhour(?:ly)?\b|\bper ?hour|\b[rt]ph\b/],
  ["minute", /\bmin(?:ute)?(?:ly)?\b|\bper ?min|\b(?:[io]?[rt]|q)pm\b/],
  ["second", /\bsecond(?:ly)?\b|\bper ?sec|\b[qrt]ps\b/],
];

const UNITS: readonly (readonly [string, RegExp])[] = [
  ["input-tokens", /\binput ?tokens?\b|\bprompt tokens?\b|\bitpm\b/],
  ["output-tokens", /\boutput ?tokens?\b|\bcompletion tokens?\b|\botpm\b/],
  ["tokens", /\btokens?\b|\btp[mdhs]\b/],
  ["calls", /\brequests?\b|\bcalls?\b|\bquer(?:y|ies)\b|\brp[mdhs]\b/],
  ["points", /\bpoints?\b|\bcomplexity\b|\bcost\b/],
  ["credits", /\bcredits?\b/],
  ["bytes", /\bbytes?\b/],
  ["images", /\bimages?\b/],
];

/** The period for which a quota is given: `"day"` of `GenerateRequestsPerDayPerProject`, the longest if several are named. */
export function periodOf(text: string): QuotaPeriod | undefined {
  const words = wordsIn(text);
  return PERIODS.find(([, form]) => form.test(words))?.[0];
}

/** The period that a sentence names, in which a wait may stand as well: `"day"` of `"… on requests per day (RPD)"`. */
export function periodIn(sentence: string): QuotaPeriod | undefined {
  const given = sentence.slice(0, MOST_SEARCHED);
  const named = given.match(
    /\bper \d+ seconds\b|[a-z]_(?:month|day|hour|minute)\b|\b(?:per|each|every|a|this)[ -]?(?:month|day|hour|min(?:ute)?|second)\b|\/ ?(?:mo|month|day|d|hour|h|minute|min|m|second|sec|s)\b|\b(?:month|dai|hour|minute|second)ly\b|\b(?:[io]?[rt]|q)p[mdhs]\b/gi,
  );
  if (named === null) return undefined;
  const words = named.map((each) =>
    each.replace(/^(?:a|each|every|this)\b/i, "per").replace(/per \d+ seconds/i, "per minute"),
  );
  return periodOf(words.join(" "));
}

/** What a quota counts: `"tokens"` of `generate_content_input_token_count`. */
export function unitOf(text: string): string | undefined {
  const words = wordsIn(text);
  return UNITS.find(([, form]) => form.test(words))?.[0];
}

/** Words with a blank between them, also where capitals, dashes or underscores part them. */
function wordsIn(text: string): string {
  return text
    .slice(0, MOST_SEARCHED)
    .replaceAll(/([a-z\d])(?=[A-Z])/g, "$1 ")
    .replaceAll(/[-_./:]+/g, " ")
    .toLowerCase();
}
