/**
 * Finds secrets of the request in a reply. Receivers repeat a request in many forms: as bytes,
 * JSON, HTML, a query string or base64, complete or cut off. The search therefore undoes all
 * escapes in the secrets and in the reply, and compares the two texts piece by piece. It first
 * decodes anything that may be base64 or hex.
 */

/**
 * The decoded text of some bytes, such as a reply, with the position of each character in these
 * bytes.
 */
interface View {
  readonly text: string;
  readonly starts: readonly number[];
  readonly ends: readonly number[];
}

/**
 * The shortest run of equal characters that counts as a match. Shorter runs would match ordinary
 * words.
 */
const PIECE = 6;
/** The shortest start of a secret that counts as a match at the end of a truncated reply. */
const SHORTEST_START = 3;
/** The widest gap between two matches that is hidden too, in characters. */
const WIDEST_GAP = 6;
/** The most times that escapes are undone, for example for JSON in JSON in a query string. */
const MOST_ESCAPES = 4;
/** The most times that possible base64 or hex is decoded, for example for base64 of hex. */
const MOST_DECODINGS = 2;
const SHOWN = Buffer.from("***");

const ESCAPE =
  /\\u\{([0-9a-f]{1,6})\}|\\u([0-9a-f]{4})|\\x([0-9a-f]{2})|\\([0-7]{3})|\\([^])|%([0-9a-f]{2})|&#x([0-9a-f]{1,6});?|&#(\d{1,7});?|&([a-z]{2,8});/gi;
const CONTROLS: Readonly<Record<string, string>> = { n: "\n", r: "\r", t: "\t", b: "\b", f: "\f" };
const ENTITIES: Readonly<Record<string, string>> = {
  quot: '"',
  amp: "&",
  lt: "<",
  gt: ">",
  apos: "'",
  nbsp: " ",
};
/**
 * Replaces every non-ASCII character, because receivers write these characters as Latin-1, as
 * UTF-8, twice as UTF-8, or as a replacement character.
 */
const NOT_ASCII = "?";

interface Encoding {
  readonly run: RegExp;
  /**
   * Decodes a run of encoded text, once for each offset at which the first complete character may
   * begin.
   */
  readonly decode: (run: string) => readonly Buffer[];
}

const ENCODINGS: readonly Encoding[] = [
  {
    run: /[\w+/-]{8,}/g,
    decode: (run) => [0, 1, 2, 3].map((at) => Buffer.from(run.slice(at), "base64")),
  },
  {
    run: /(?:(?:0x)?[0-9a-f]{2}[\s:,-]{0,2}){6,}/gi,
    decode(run) {
      const digits = run.replaceAll(/0x|[^0-9a-f]/gi, "");
      return [0, 1].map((at) => Buffer.from(digits.slice(at), "hex"));
    },
  },
  {
    run: /(?:\d{1,3}\s*,\s*){5,}\d{1,3}/g,
    decode: (run) => [Buffer.from(run.split(",").map(Number))],
  },
];

/** Removes the secrets in `hidden` from a reply. The bytes may be in any encoding. */
export function hideSecrets(answer: Buffer, hidden: readonly string[]): Buffer {
  const values = hidden.filter((value) => value.length >= PIECE);
  if (values.length === 0 || answer.length < SHORTEST_START) return answer;
  const isHidden = new Uint8Array(answer.length);
  const hide = (from: number, to: number): void => void isHidden.fill(1, from, to);
  for (const bytes of values.flatMap((value) => [Buffer.from(value), latin1(value)])) {
    for (let at = answer.indexOf(bytes); at !== -1; at = answer.indexOf(bytes, at + 1)) {
      hide(at, at + bytes.length);
    }
  }
  const secrets = createSecrets(values);
  const views = unescaped(viewOf(answer));
  for (const view of views) hidePieces(view, secrets, hide);
  for (const view of views) {
    for (const { run, decode } of ENCODINGS) {
      for (const { 0: text, index } of view.text.matchAll(run)) {
        if (!decode(text).some((bytes) => reveals(bytes, secrets, 1))) continue;
        hide(view.starts[index]!, view.ends[index + text.length - 1]!);
      }
    }
  }
  return replaced(answer, isHidden);
}

interface Secrets {
  readonly texts: readonly string[];
  readonly pieces: ReadonlySet<string>;
}

function createSecrets(values: readonly string[]): Secrets {
  const views = values.flatMap((value) => unescaped(viewOf(latin1(value))));
  const texts = [...new Set(views.map((view) => plain(view).text))];
  const pieces = new Set<string>();
  for (const text of texts) {
    for (let at = 0; at + PIECE <= text.length; at++) pieces.add(text.slice(at, at + PIECE));
  }
  return { texts, pieces };
}

/** Encodes a header value as Latin-1, as HTTP sends it. */
function latin1(value: string): Buffer {
  return Buffer.from(value, "latin1");
}

function viewOf(bytes: Buffer): View {
  const starts = Array.from(bytes, (_byte, at) => at);
  return { text: bytes.toString("latin1"), starts, ends: starts.map((at) => at + 1) };
}

/** Returns the text itself, and the text after its escapes were undone once, twice and so on. */
function unescaped(view: View): readonly View[] {
  const views = [view];
  for (let last = view; views.length <= MOST_ESCAPES;) {
    const next = rewritten(last, ESCAPE, (match) => characterOf(match));
    if (next === last) break;
    views.push(next);
    last = next;
  }
  return views;
}

function characterOf(match: RegExpExecArray): string {
  const [, braced, unicode, hex, octal, escaped, percent, entityHex, entity, named] = match;
  if (escaped !== undefined) return CONTROLS[escaped] ?? escaped;
  if (named !== undefined) return ENTITIES[named.toLowerCase()] ?? NOT_ASCII;
  const ofHex = braced ?? unicode ?? hex ?? percent ?? entityHex;
  const code =
    ofHex !== undefined
      ? Number.parseInt(ofHex, 16)
      : Number.parseInt(octal ?? entity!, octal === undefined ? 10 : 8);
  return code > 0xff ? NOT_ASCII : String.fromCharCode(code);
}

/**
 * Removes the differences between receivers: case, kinds and runs of white space, and non-ASCII
 * characters.
 */
function plain(view: View): View {
  const folded = rewritten(view, /\0|[\s+]+|[?\u0080-\uffff]+/g, ([text]) =>
    text === "\0" ? "" : text.startsWith(NOT_ASCII) || text > "\u007f" ? NOT_ASCII : " ",
  );
  return { ...folded, text: folded.text.toLowerCase() };
}

/**
 * Replaces each match in the view's text with what `read` returns: one character, or `""` to remove
 * the match. Returns the view itself if nothing matches.
 */
function rewritten(view: View, pattern: RegExp, read: (match: RegExpExecArray) => string): View {
  const starts: number[] = [];
  const ends: number[] = [];
  let text = "";
  let from = 0;
  const copy = (to: number): void => {
    text += view.text.slice(from, to);
    for (let at = from; at < to; at++) {
      starts.push(view.starts[at]!);
      ends.push(view.ends[at]!);
    }
  };
  for (const match of view.text.matchAll(pattern)) {
    const { 0: found, index } = match;
    copy(index);
    from = index + found.length;
    const instead = read(match);
    if (instead === "") continue;
    text += instead;
    starts.push(view.starts[index]!);
    ends.push(view.ends[from - 1]!);
  }
  if (from === 0) return view;
  copy(view.text.length);
  return { text, starts, ends };
}

function hidePieces(
  view: View,
  { texts, pieces }: Secrets,
  hide: (from: number, to: number) => void,
): void {
  const { text, starts, ends } = plain(view);
  for (let at = 0; at + PIECE <= text.length; at++) {
    if (pieces.has(text.slice(at, at + PIECE))) hide(starts[at]!, ends[at + PIECE - 1]!);
  }
  for (let length = PIECE - 1; length >= SHORTEST_START && length <= text.length; length--) {
    const end = text.slice(-length);
    if (texts.some((secret) => secret.startsWith(end))) hide(starts.at(-length)!, ends.at(-1)!);
  }
}

/** True if the bytes contain a piece of a secret. */
function reveals(bytes: Buffer, secrets: Secrets, decodings: number): boolean {
  const views = unescaped(viewOf(bytes));
  const isThere = views.some((view) => {
    const { text } = plain(view);
    for (let at = 0; at + PIECE <= text.length; at++) {
      if (secrets.pieces.has(text.slice(at, at + PIECE))) return true;
    }
    return false;
  });
  if (isThere || decodings === MOST_DECODINGS) return isThere;
  return ENCODINGS.some(({ run, decode }) =>
    [...views.at(-1)!.text.matchAll(run)].some(([text]) =>
      decode(text).some((decoded) => reveals(decoded, secrets, decodings + 1)),
    ),
  );
}

/** Replaces each hidden part with three asterisks. */
function replaced(answer: Buffer, isHidden: Uint8Array): Buffer {
  const parts: Buffer[] = [];
  let from = 0;
  for (let at = isHidden.indexOf(1); at !== -1;) {
    let end = at;
    for (let next = at; next !== -1 && next - end <= WIDEST_GAP;) {
      end = isHidden.indexOf(0, next);
      if (end === -1) end = answer.length;
      next = isHidden.indexOf(1, end);
    }
    parts.push(answer.subarray(from, at), SHOWN);
    from = end;
    at = isHidden.indexOf(1, end);
  }
  return from === 0 ? answer : Buffer.concat([...parts, answer.subarray(from)]);
}
