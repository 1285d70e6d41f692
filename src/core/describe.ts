const LONGEST = 60;
/** Passwords are searched in this much of a text. */
const MOST_SEARCHED = 4_000;

/** A value as an error message shows it: on one line, without passwords, and about 60 characters at most. */
export function describeValue(value: unknown): string {
  const text = typeof value === "string" ? JSON.stringify(value) : plainText(value);
  const start = onOneLine(withoutPasswords(text.slice(0, MOST_SEARCHED)));
  const isWhole = start.length <= LONGEST && text.length <= MOST_SEARCHED;
  const { length } = typeof value === "string" ? value : text;
  return isWhole ? start : `${start.slice(0, LONGEST)}… (${length} characters)`;
}

/** A text without line breaks or other control characters, so that it is one line of a log. */
export function onOneLine(text: string): string {
  return text.replaceAll(/[\p{Cc}\p{Zl}\p{Zp}]/gu, " ");
}

/** A text without the full stop at its end, so that a sentence can go on after it; an ellipsis stays. */
export function withoutStop(text: string): string {
  return text.replace(/(?<!\.)\.\s*$/, "");
}

/** The text of anything that was thrown, with that of its cause, and without passwords. */
export function reasonOf(error: unknown): string {
  try {
    return withoutPasswords(withCause(String(error), error));
  } catch {
    // Its toString throws, or it has none.
    return "an error without a text";
  }
}

/** How far causes are followed: wrapped by `fetch`, by a client and by its user. */
const MOST_CAUSES = 5;

/** A text of an error with that of its innermost cause: of `fetch`, "fetch failed" says nothing. */
export function withCause(text: string, error: unknown): string {
  let words: string | undefined;
  let at = error;
  try {
    for (let depth = 0; depth < MOST_CAUSES; depth++) {
      if (typeof at !== "object" || at === null) break;
      at = (at as { cause?: unknown }).cause;
      const { message, code } = (at ?? {}) as { message?: unknown; code?: unknown };
      // When a name has several addresses, the error for all of them has a code and no message.
      const found = [message, code].find((part) => typeof part === "string" && part !== "");
      if (found !== undefined) words = found as string;
    }
  } catch {
    // A getter or a proxy that throws.
  }
  return words === undefined || text.includes(words) ? text : `${text} (${words})`;
}

/** The message of an error, as part of a sentence: `"connect ECONNREFUSED 127.0.0.1:6379"`, `"WRONGPASS invalid username-password pair"`. */
export function wordsOf(error: Error): string {
  // When a name has several addresses, the error for all of them has a code and no message.
  const { code } = error as NodeJS.ErrnoException;
  return withoutPasswords(error.message || code || error.name).replace(/\.$/, "");
}

/** Redis repeats the arguments of an unknown command, and those of AUTH include a password. */
const ARGUMENTS = /with args beginning with: .*/gs;

/** A text without the user and password of URLs, and of addresses without a scheme. */
export function withoutPasswords(text: string): string {
  return text.replaceAll(ARGUMENTS, "with arguments").replaceAll(/[^\s"']+/g, withoutUser);
}

/** Up to the last @: a password that was not encoded may contain a slash or an @. */
function withoutUser(word: string): string {
  const end = word.lastIndexOf("@");
  if (end === -1) return word;
  const slashes = word.indexOf("//");
  if (slashes !== -1 && slashes < end) return `${word.slice(0, slashes)}//***${word.slice(end)}`;
  return word.slice(0, end).includes(":") ? `***${word.slice(end)}` : word;
}

function plainText(value: unknown): string {
  if (typeof value === "function") return "a function";
  if (typeof value !== "object" || value === null) return String(value);
  try {
    if (value instanceof Promise) return "a promise";
    if (value instanceof Date && Number.isNaN(value.getTime())) return "an invalid date";
    return JSON.stringify(value, readable) ?? "an object";
  } catch {
    // A cycle, or a toJSON that throws: only the type can be shown.
    return typeOf(value);
  }
}

/** JSON has no BigInt. */
function readable(_name: string, value: unknown): unknown {
  return typeof value === "bigint" ? `${value}n` : value;
}

function typeOf(value: object): string {
  try {
    return Object.prototype.toString.call(value);
  } catch {
    // A proxy that throws.
    return "an object";
  }
}

/** Names of options and fields that nothing is shown of, whatever is in them. */
const NAMES =
  /(?:password|passwd|passphrase|secrets?|token|credentials?|authorization|cookie|(?:api|private|access|signing|encryption)[-_]?key)$|^(?:headers|certificate)$/i;
const PRIVATE_KEY = /-----BEGIN [A-Z ]*PRIVATE KEY-----/;
const HIDDEN = "***";
const DEEPEST = 5;
/** The most values that are searched: an error about a job's data must not take long because the data is large. */
const MOST_VALUES = 1_000;

/** The value of an option as an error keeps it: the value itself, or a copy without passwords if it contains any. */
export function withoutSecrets(option: string, value: unknown): unknown {
  const names = option.split(".");
  const name = names.find((each) => NAMES.test(each)) ?? names.at(-1)!;
  return hide(name, value, { deep: 0, left: { count: MOST_VALUES } });
}

interface Bounds {
  readonly deep: number;
  readonly left: { count: number };
}

function hide(name: string, value: unknown, { deep, left }: Bounds): unknown {
  left.count -= 1;
  if (value !== undefined && value !== null && NAMES.test(name)) return HIDDEN;
  if (typeof value === "string") return PRIVATE_KEY.test(value) ? HIDDEN : withoutPasswords(value);
  if (typeof value !== "object" || value === null || deep > DEEPEST || left.count <= 0)
    return value;
  if (ArrayBuffer.isView(value)) return value;
  try {
    const entries = firstEntries(value, left.count);
    const hidden = entries.map(
      ([key, each]) => [key, hide(key, each, { deep: deep + 1, left })] as const,
    );
    if (hidden.every(([, each], index) => Object.is(each, entries[index]![1]))) return value;
    return Array.isArray(value) ? hidden.map(([, each]) => each) : Object.fromEntries(hidden);
  } catch {
    // A getter or a proxy that throws.
    return value;
  }
}

/** The first entries of an object. `Object.entries` would list all of them first. */
function firstEntries(value: object, count: number): [string, unknown][] {
  const entries: [string, unknown][] = [];
  for (const key in value) {
    if (entries.length >= count) break;
    if (Object.hasOwn(value, key)) entries.push([key, value[key as keyof typeof value]]);
  }
  return entries;
}

/** Handles the rejection of a promise that cannot be used: an unhandled one ends the process. */
export function ignoreRejection(value: unknown): void {
  try {
    if (value instanceof Promise) value.catch(() => {});
  } catch {
    // A proxy that throws is no promise.
  }
}

/** Whether a value can be awaited. */
export function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof (value as { then?: unknown } | null | undefined)?.then === "function";
}

/** What JSON says of a time without an end; it has no Infinity, and would say `null`. */
const FOREVER = "forever";

/**
 * Makes JSON say `"forever"` of each time of a result that has no end. In the process it stays Infinity, which is
 * compared like any other time.
 */
export function sayEndless<Result extends object>(result: Result): Result {
  if (!Object.values(result).includes(Infinity)) return result;
  const toJSON = (): object => {
    const said = Object.entries(result).map(([name, value]: [string, unknown]) => [
      name,
      value === Infinity ? FOREVER : value,
    ]);
    return Object.fromEntries(said) as object;
  };
  // Not enumerable: it is no field of the result.
  return Object.defineProperty(result, "toJSON", { value: toJSON });
}

/** A fact of an error as JSON can hold it: no error may fail as it is logged. */
export function factInJson(name: string, value: unknown): unknown {
  if (typeof value === "number" && !Number.isFinite(value)) {
    return value === Infinity && name.endsWith("Ms") ? FOREVER : String(value);
  }
  if (typeof value === "bigint" || typeof value === "function" || typeof value === "symbol") {
    return describeValue(value);
  }
  if (typeof value !== "object" || value === null) return value;
  try {
    JSON.stringify(value);
    return value;
  } catch {
    // A cycle, a BigInt, or a toJSON that throws.
    return describeValue(value);
  }
}

/** All that stands in data, by where: `["maxBacklog.all", 500]`. */
export function leavesOf(data: unknown, path: string = ""): (readonly [string, unknown])[] {
  if (typeof data !== "object" || data === null) return data === undefined ? [] : [[path, data]];
  return Object.entries(data).flatMap(([name, value]) =>
    leavesOf(value, path === "" ? name : `${path}.${name}`),
  );
}
