/** How many tokens a text has, about: by the characters of its script, without a table of words. */

/** Counts the tokens of a text, such as `countTokens` of gpt-tokenizer. */
export type CountTokens = (text: string) => number;

/** How many characters of a run make a token. A word of three letters is one, whatever its letters. */
const OF_WORD = 7;
/** Words with letters beyond ASCII are cut into smaller pieces. */
const OF_FOREIGN_WORD = 4;
const OF_NUMBER = 3;
const OF_SIGNS = 2;
/** The lines of tables and headings have tokens of their own. */
const OF_REPEATS = 16;
/** A longer run without a space is no word, but an id or encoded bytes. */
const LONGEST_WORD = 30;
const OF_CODE = 1.6;

type Run = "word" | "number" | "signs" | "none";

/**
 * The tokens of a text, within a fifth for most texts. What is left is a factor of the model and of the kind of text,
 * which calls show (`meter.ts`).
 */
export function estimateTokens(text: string): number {
  let tokens = 0;
  let run: Run = "none";
  let length = 0;
  let isForeign = false;
  /** How many characters of the run are the one before them. */
  let repeats = 0;
  let before = 0;

  function end(): void {
    tokens += tokensOfRun(run, { length, isForeign, repeats });
    length = 0;
    isForeign = false;
    repeats = 0;
    before = 0;
  }

  for (let index = 0; index < text.length; index++) {
    const code = text.charCodeAt(index);
    if (isIdeograph(code)) {
      end();
      run = "none";
      tokens += 1;
      // The second half of a pair belongs to the first.
      if (code >= 0xd800 && code <= 0xdbff) index += 1;
      continue;
    }
    const next = runOf(code);
    if (next !== run) {
      end();
      run = next;
    }
    length += 1;
    if (code > 127) isForeign = true;
    if (code === before) repeats += 1;
    before = code;
  }
  end();
  return tokens;
}

interface RunFacts {
  readonly length: number;
  readonly isForeign: boolean;
  readonly repeats: number;
}

function tokensOfRun(run: Run, { length, isForeign, repeats }: RunFacts): number {
  // One space belongs to the word behind it.
  if (run === "none") return length <= 2 ? 0 : 1;
  if (run === "number") return Math.ceil(length / OF_NUMBER);
  if (run === "signs") return Math.ceil((length - repeats) / OF_SIGNS + repeats / OF_REPEATS);
  if (length <= 3) return 1;
  if (length > LONGEST_WORD) return Math.ceil(length / OF_CODE);
  return Math.ceil(length / (isForeign ? OF_FOREIGN_WORD : OF_WORD));
}

/** Chinese, Japanese and Korean characters and emoji are a token each, about. */
function isIdeograph(code: number): boolean {
  return (
    (code >= 0x3040 && code <= 0x30ff) ||
    (code >= 0x3400 && code <= 0x9fff) ||
    (code >= 0xac00 && code <= 0xdfff) ||
    (code >= 0xf900 && code <= 0xfaff)
  );
}

function runOf(code: number): Run {
  if (code <= 32 || code === 0xa0 || code === 0x3000) return "none";
  if (code >= 48 && code <= 57) return "number";
  const isLetter = (code >= 65 && code <= 90) || (code >= 97 && code <= 122) || code > 0xbf;
  return isLetter ? "word" : "signs";
}

/** Counts by `own`, and by characters where that fails or answers no number: a count must not fail a call. */
export function counting(own: CountTokens | undefined): CountTokens {
  if (own === undefined) return estimateTokens;
  return (text) => {
    try {
      const tokens = own(text);
      return Number.isFinite(tokens) && tokens >= 0 ? tokens : estimateTokens(text);
    } catch {
      // That of gpt-tokenizer throws on texts of its special tokens.
      return estimateTokens(text);
    }
  };
}
