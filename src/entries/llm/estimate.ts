/**
 * Estimates the number of tokens in a text without a vocabulary. The estimate is based on the form
 * and script of the text's words and signs.
 */

/** A function that counts the tokens of a text, such as `countTokens` of gpt-tokenizer. */
export type CountTokens = (text: string) => number;

/**
 * The characters per token for each script. They were measured with o200k on sentences including
 * their spaces. Scripts that are rare in training data need several tokens per character.
 */
const SCRIPTS: readonly (readonly [first: number, last: number, perToken: number])[] = [
  [0x0370, 0x03ff, 2.6], // Greek
  [0x0400, 0x052f, 3.7], // Cyrillic
  [0x0530, 0x058f, 3.2], // Armenian
  [0x0590, 0x05ff, 2.5], // Hebrew
  [0x0600, 0x06ff, 3.2], // Arabic
  [0x0700, 0x08ff, 0.5], // Syriac, Thaana and others
  [0x0900, 0x097f, 3], // Devanagari
  [0x0980, 0x09ff, 3], // Bengali
  [0x0a00, 0x0a7f, 2], // Gurmukhi
  [0x0a80, 0x0aff, 3.2], // Gujarati
  [0x0b00, 0x0b7f, 1], // Odia
  [0x0b80, 0x0bff, 2.8], // Tamil
  [0x0c00, 0x0d7f, 2.8], // Telugu, Kannada, Malayalam
  [0x0d80, 0x0dff, 1.6], // Sinhala
  [0x0e00, 0x0e7f, 2.6], // Thai
  [0x0e80, 0x0fff, 0.64], // Lao, Tibetan
  [0x1000, 0x109f, 2], // Burmese
  [0x10a0, 0x10ff, 2.6], // Georgian
  [0x1100, 0x11ff, 0.6], // Hangul in parts
  [0x1200, 0x139f, 0.46], // Ethiopic
  [0x1780, 0x17ff, 1.5], // Khmer
  [0x3040, 0x30ff, 1.25], // Kana
  [0x3400, 0x9fff, 1.1], // Chinese characters
  [0xac00, 0xd7a3, 1.4], // Hangul
];
const OF_OTHER_SCRIPTS = 0.4;

/** The characters per token in a word. Each part of a camel-case name counts as a word. */
const OF_WORD = 7;
/**
 * The characters per token in a word with letters beyond ASCII. Tokenizers split such words into
 * smaller pieces.
 */
const OF_FOREIGN_WORD = 4;
const OF_CAPITALS = 4;
const OF_NUMBER = 3;
/** The tokens that a sign directly before a word adds, as in `.push` or `"name`. */
const SIGN_BEFORE_WORD = 0.5;
const OF_SIGNS = 3;
/**
 * The number of repetitions that form one token: of a sign, of line breaks or tabs, of spaces, and
 * of the same letter.
 */
const OF_REPEATS = 32;
const OF_BREAKS = 16;
const OF_SPACES = 80;
const OF_SAME_LETTER = 8;
/**
 * The conditions for encoded bytes: the least number of characters, and the least part of them at
 * which the form changes. The forms are lowercase letters, capitals and digits.
 */
const SHORTEST_CODE = 16;
const CODE_CHANGES = 0.28;
const OF_CODE = 1.5;
const OF_HEX = 1.75;
/**
 * The largest part of encoded bytes that runs of lowercase letters can be. Camel-case names have as
 * many changes, but more lowercase runs.
 */
const WORDS_IN_NAME = 0.4;
const SMALL_LETTERS = /[a-z]{3,}/g;
/**
 * The most letters of a word. A longer run of letters is not a word, and has fewer characters per
 * token.
 */
const LONGEST_WORD = 30;
const OF_LONGEST = 2.2;
/** The tokens of an emoji or of the joiner between two emoji, and of other signs beyond ASCII. */
const EMOJI = 1.6;
const SYMBOL = 1.1;

type Form = "space" | "break" | "digit" | "lower" | "upper" | "sign" | "other";

/** Matches hexadecimal text: digits and the letters `a` to `f` in one case. */
const HEX = /^[\da-f-]*$|^[\dA-F-]*$/;
const ENCODED = /[\w+/=-]{16,}/g;

/**
 * Estimates the number of tokens in a text. The average error is one seventh over many kinds of
 * text. The remaining error depends on the model and the kind of text; `meter.ts` learns to correct
 * it from calls.
 */
export function estimateTokens(text: string): number {
  let tokens = 0;
  let from = 0;
  for (const { 0: run, index } of text.matchAll(ENCODED)) {
    const perToken = encodedBy(run);
    if (perToken === undefined) continue;
    tokens += tokensOfPieces(text, from, index) + run.length / perToken;
    from = index + run.length;
  }
  return Math.round(tokens + tokensOfPieces(text, from, text.length));
}

/**
 * Returns the characters per token of a run that is encoded bytes: base64, or hexadecimal as in
 * UUIDs. Returns undefined for other runs.
 */
function encodedBy(run: string): number | undefined {
  let changes = 0;
  let before: Form = "other";
  let characters = 0;
  let digits = 0;
  for (let index = 0; index < run.length; index++) {
    const form = formOf(run.charCodeAt(index));
    if (form === "sign") continue;
    characters += 1;
    if (form === "digit") digits += 1;
    if (form !== before) changes += 1;
    before = form;
  }
  if (characters < SHORTEST_CODE || digits === characters) return undefined;
  if (changes / characters < CODE_CHANGES) return undefined;
  if (HEX.test(run)) return OF_HEX;
  const words = run.match(SMALL_LETTERS)?.join("").length ?? 0;
  return words / characters > WORDS_IN_NAME ? undefined : OF_CODE;
}

/**
 * Sums over all words in Latin letters. The language of a text is recognizable only over many
 * words.
 */
interface LatinFacts {
  letters: number;
  foreign: number;
  tokens: number;
}

function tokensOfPieces(text: string, from: number, to: number): number {
  const latin: LatinFacts = { letters: 0, foreign: 0, tokens: 0 };
  let tokens = 0;
  let at = from;
  let isAfterSign = false;
  while (at < to) {
    const code = text.charCodeAt(at);
    const form = formOf(code);
    const start = at;
    if (form === "lower" || form === "upper") {
      at = endOfWord(text, at, to);
      tokens += tokensOfWord(text, start, at, latin);
    } else if (form === "digit") {
      at = endOf(text, at, to, "digit");
      tokens += Math.ceil((at - start) / OF_NUMBER);
    } else if (form === "sign") {
      at = endOf(text, at, to, "sign");
      tokens += tokensOfSigns(text, start, at, to);
    } else if (form === "other") {
      at = endOf(text, at, to, "other");
      tokens += tokensOfScripts(text, start, at);
    } else {
      at = endOfSpace(text, at, to);
      tokens += tokensOfSpace(text.slice(start, at), isAfterSign, formOf(text.charCodeAt(at)));
    }
    isAfterSign = form === "sign";
  }
  // In languages with many accents, tokenizers also split words without an accent into smaller
  // pieces.
  const accents = latin.letters === 0 ? 0 : latin.foreign / latin.letters;
  return tokens + latin.tokens * Math.min(0.35, Math.max(0, (accents - 0.04) * 5));
}

function formOf(code: number): Form {
  if (code === 10 || code === 13) return "break";
  if (code <= 32 || code === 0xa0 || code === 0x3000) return "space";
  if (code >= 48 && code <= 57) return "digit";
  if (code >= 97 && code <= 122) return "lower";
  if (code >= 65 && code <= 90) return "upper";
  if (code < 0xc0) return code < 127 ? "sign" : "other";
  // Accented Latin letters count as lowercase, because separate rules for each case improve the
  // estimate too little.
  if (code <= 0x24f || (code >= 0x1e00 && code <= 0x1eff))
    return code === 0xd7 || code === 0xf7 ? "other" : "lower";
  return Number.isNaN(code) ? "space" : "other";
}

function endOf(text: string, at: number, to: number, form: Form): number {
  let end = at;
  while (end < to && formOf(text.charCodeAt(end)) === form) end += 1;
  return end;
}

function endOfSpace(text: string, at: number, to: number): number {
  let end = at;
  for (; end < to; end++) {
    const form = formOf(text.charCodeAt(end));
    if (form !== "space" && form !== "break") break;
  }
  return end;
}

/**
 * Returns the index after a word. A word consists of capitals, then lowercase letters: `HTTPServer`
 * is one word, `camelCase` is two. Letters after an apostrophe belong to the word.
 */
function endOfWord(text: string, at: number, to: number): number {
  const end = endOf(text, endOf(text, at, to, "upper"), to, "lower");
  const isContracted = text[end] === "'" && formOf(text.charCodeAt(end + 1)) === "lower";
  const contracted = isContracted ? endOf(text, end + 1, to, "lower") : end;
  return contracted - end <= 3 ? contracted : end;
}

function tokensOfWord(text: string, from: number, to: number, latin: LatinFacts): number {
  const length = to - from;
  let foreign = 0;
  let capitals = 0;
  let repeats = 0;
  for (let at = from; at < to; at++) {
    const code = text.charCodeAt(at);
    if (code > 127) foreign += 1;
    else if (code < 97) capitals += 1;
    if (at > from && code === text.charCodeAt(at - 1)) repeats += 1;
  }
  latin.letters += length;
  latin.foreign += foreign;
  const tokens = tokensOfLetters(length, { foreign, capitals, repeats });
  if (foreign === 0) latin.tokens += tokens;
  return tokens;
}

function tokensOfLetters(
  length: number,
  { foreign, capitals, repeats }: Record<"foreign" | "capitals" | "repeats", number>,
): number {
  if (length <= 3) return 1;
  if (repeats > length / 2) return Math.ceil(length / OF_SAME_LETTER);
  if (length > LONGEST_WORD) return Math.ceil(length / OF_LONGEST);
  if (foreign > 0) return Math.ceil(length / OF_FOREIGN_WORD);
  return Math.ceil(length / (capitals > 2 ? OF_CAPITALS : OF_WORD));
}

function tokensOfSigns(text: string, from: number, to: number, end: number): number {
  const length = to - from;
  if (length === 1) {
    const form = to < end ? formOf(text.charCodeAt(to)) : "space";
    return form === "lower" || form === "upper" ? SIGN_BEFORE_WORD : 1;
  }
  let repeats = 0;
  for (let at = from + 1; at < to; at++) {
    if (text.charCodeAt(at) === text.charCodeAt(at - 1)) repeats += 1;
  }
  return Math.ceil((length - repeats) / OF_SIGNS + repeats / OF_REPEATS);
}

/**
 * Counts the tokens of white space. A single space belongs to the word after it, unless a number
 * follows. A line break belongs to the signs before it.
 */
function tokensOfSpace(space: string, isAfterSign: boolean, next: Form): number {
  const lines = space.split(/\r\n|\n|\r/);
  const last = lines.at(-1)!;
  const rest = last.length > 1 ? Math.ceil(last.length / OF_SPACES) : 0;
  const beforeNumber = last.length === 1 && next === "digit" ? 1 : 0;
  if (lines.length === 1) return tabsOr(last, rest) + beforeNumber;
  const filled = lines.slice(0, -1).filter((line) => line !== "").length;
  const perToken = space.includes("\r") ? OF_BREAKS / 4 : OF_BREAKS;
  const isFree = isAfterSign && lines.length <= 3 && filled === 0;
  const breaks = isFree ? 0 : Math.ceil((lines.length - 1 - filled) / perToken) + filled;
  return breaks + tabsOr(last, rest) + beforeNumber;
}

function tabsOr(space: string, tokens: number): number {
  return space.includes("\t") ? Math.ceil(space.length / OF_BREAKS) : tokens;
}

/**
 * Counts the tokens of text without Latin letters: words in other scripts, each with the space
 * before it, emoji and signs.
 */
function tokensOfScripts(text: string, from: number, to: number): number {
  let tokens = 0;
  let before: number | undefined;
  for (let at = from; at < to; at++) {
    const code = text.charCodeAt(at);
    const isPair = code >= 0xd800 && code <= 0xdbff;
    if (isPair) at += 1;
    const perToken = isPair ? undefined : perTokenOf(code);
    if (perToken === undefined) tokens += isPair ? tokensOfPair(text.codePointAt(at - 1)!) : SYMBOL;
    // The space before a word counts as a part of the word.
    else tokens += (before === undefined && perToken > 1.6 ? 2 : 1) / perToken;
    before = perToken;
  }
  return tokens;
}

function tokensOfPair(codePoint: number): number {
  // Each half of a flag counts two tokens. Surrogate pairs other than emoji are rare.
  if (codePoint >= 0x1f1e6 && codePoint <= 0x1f1ff) return 2;
  return codePoint >= 0x1f300 && codePoint <= 0x1faff ? EMOJI : 2.5;
}

/** Returns the characters per token for the script of a character. Returns undefined for signs. */
function perTokenOf(code: number): number | undefined {
  const isSign = (code >= 0x2000 && code <= 0x2bff) || (code >= 0x3000 && code <= 0x303f);
  if (code < 0x370 || isSign || code >= 0xfe00) return undefined;
  return SCRIPTS.find(([first, last]) => code >= first && code <= last)?.[2] ?? OF_OTHER_SCRIPTS;
}

/**
 * Returns the caller's token counter, or else the built-in estimate. If the counter throws or
 * returns no valid number, the estimate is used, because a count must not fail a call.
 */
export function counting(own: CountTokens | undefined): CountTokens {
  if (own === undefined) return estimateTokens;
  return (text) => {
    try {
      const tokens = own(text);
      return Number.isFinite(tokens) && tokens >= 0 ? tokens : estimateTokens(text);
    } catch {
      // The counter of gpt-tokenizer throws on texts that contain its special tokens.
      return estimateTokens(text);
    }
  };
}
