import luaparse, { type Token } from "luaparse";

/** One change of a Lua text. */
export interface LuaMutant {
  readonly file: string;
  /** Counted from 1. */
  readonly line: number;
  /** What stands there, and what is put in its place; from and to count characters of the file. */
  readonly before: string;
  readonly after: string;
  readonly from: number;
  readonly to: number;
}

/** What each operator or word becomes. */
const SWAPS: Readonly<Record<string, readonly string[]>> = {
  "<": ["<=", ">="],
  "<=": ["<", ">"],
  ">": [">=", "<="],
  ">=": [">", "<"],
  "==": ["~="],
  "~=": ["=="],
  "+": ["-"],
  "-": ["+"],
  "*": ["/"],
  "/": ["*"],
  "%": ["*"],
  and: ["or"],
  or: ["and"],
  not: [""],
  true: ["false"],
  false: ["true"],
  min: ["max"],
  max: ["min"],
  floor: ["ceil"],
  ceil: ["floor"],
};
/** Tokens of luaparse after which a minus belongs to the number or name that follows. */
const ENDS_VALUE = /^(?:[\w\])}"']|\.\.\.)/;
const KEYWORDS = new Set(["and", "or", "not", "return", "then", "do", "else", "if", "while", "in"]);

/** All changes of one operator, number, Boolean or condition of a file. */
export function luaMutants(file: string, text: string): readonly LuaMutant[] {
  const tokens = tokensOf(text);
  return tokens.flatMap((token, index) => {
    const [from, to] = token.range;
    const before = text.slice(from, to);
    const mutant = (after: string, end = to): LuaMutant => ({
      file,
      line: token.line,
      before: text.slice(from, end),
      after,
      from,
      to: end,
    });
    if (before === "-" && isSign(tokens[index - 1], text)) return [mutant("")];
    if (/^\d/.test(before)) return [mutant(`(${before} + 1)`)];
    if (before === "if" || before === "elseif" || before === "while") {
      return negations(tokens, index, text).map(({ after, end }) => mutant(after, end));
    }
    return Object.hasOwn(SWAPS, before) ? SWAPS[before]!.map((after) => mutant(after)) : [];
  });
}

function tokensOf(text: string): readonly Token[] {
  const parser = luaparse.parse(text, { wait: true, luaVersion: "5.1", comments: false });
  const tokens: Token[] = [];
  for (;;) {
    const token = parser.lex();
    if (token.value === "<eof>") return tokens;
    tokens.push({ ...token });
  }
}

function isSign(previous: Token | undefined, text: string): boolean {
  if (previous === undefined) return true;
  const word = text.slice(...previous.range);
  return KEYWORDS.has(word) || !ENDS_VALUE.test(word);
}

/** `if a then` becomes `if not (a) then`. */
function negations(
  tokens: readonly Token[],
  index: number,
  text: string,
): readonly { readonly after: string; readonly end: number }[] {
  const [from, start] = tokens[index]!.range;
  const closing = text.slice(from, start) === "while" ? "do" : "then";
  const close = tokens.slice(index).find(({ range }) => text.slice(...range) === closing);
  if (close === undefined) return [];
  const [end] = close.range;
  const condition = text.slice(start, end).trim();
  return [{ after: `${text.slice(from, start)} not (${condition}) `, end }];
}
