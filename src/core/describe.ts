const LONGEST = 60;
/** Passwords are searched for in this many characters of a text. */
const MOST_SEARCHED = 4_000;

/** Shows a value in an error message: on one line, without passwords, in at most about 60 characters. */
export function describeValue(value: unknown): string {
  const text = typeof value === "string" ? JSON.stringify(value) : plainText(value);
  const start = onOneLine(withoutPasswords(text.slice(0, MOST_SEARCHED)));
  const isWhole = start.length <= LONGEST && text.length <= MOST_SEARCHED;
  const { length } = typeof value === "string" ? value : text;
  return isWhole ? start : `${start.slice(0, LONGEST)}… (${length} characters)`;
}

/** Removes line breaks and other control characters, so that the text is one line of a log. */
export function onOneLine(text: string): string {
  return text.replaceAll(/[\p{Cc}\p{Zl}\p{Zp}]/gu, " ");
}

/** Removes the full stop at the end, so that a sentence can continue. Keeps an ellipsis. */
export function withoutStop(text: string): string {
  return text.replace(/(?<!\.)\.\s*$/, "");
}

/** The message of anything that was thrown, with the message of its cause, without passwords. */
export function reasonOf(error: unknown): string {
  try {
    return withoutPasswords(withCause(String(error), error));
  } catch {
    // Its toString throws, or it has none.
    return "an error without a text";
  }
}

/** How many causes are followed. `fetch`, a client and its user each wrap the error once. */
const MOST_CAUSES = 5;

/** Adds the message of the innermost cause, because the "fetch failed" of `fetch` alone explains nothing. */
export function withCause(text: string, error: unknown): string {
  let words: string | undefined;
  let at = error;
  try {
    for (let depth = 0; depth < MOST_CAUSES; depth++) {
      if (typeof at !== "object" || at === null) break;
      at = (at as { cause?: unknown }).cause;
      const { message, code } = (at ?? {}) as { message?: unknown; code?: unknown };
      // If a name has several addresses, the error for all of them has a code and no message.
      const found = [message, code].find((part) => typeof part === "string" && part !== "");
      if (found !== undefined) words = found as string;
    }
  } catch {
    // A getter or a proxy that throws.
  }
  return words === undefined || text.includes(words) ? text : `${text} (${words})`;
}

/**
 * The message of an error, as part of a sentence: `"connect ECONNREFUSED 127.0.0.1:6379"`, `"WRONGPASS invalid
 * username-password pair"`.
 */
export function messageOf(error: Error): string {
  // If a name has several addresses, the error for all of them has a code and no message.
  const { code } = error as NodeJS.ErrnoException;
  return withoutPasswords(error.message || code || error.name).replace(/\.$/, "");
}

/** Redis repeats the arguments of an unknown command. Those of AUTH include a password. */
const ARGUMENTS = /with args beginning with: .*/gs;

/** Removes the user and password from URLs and from addresses without a scheme. */
export function withoutPasswords(text: string): string {
  return text.replaceAll(ARGUMENTS, "with arguments").replaceAll(/[^\s"']+/g, withoutUser);
}

/** Removes everything up to the last @, because a password without URL encoding may contain a slash or an @. */
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
    // A cycle, or a toJSON that throws. Only the type can be shown.
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

/** Names of options and fields whose values are never shown. */
const NAMES =
  /(?:password|passwd|passphrase|secrets?|token|credentials?|authorization|cookie|(?:api|private|access|signing|encryption)[-_]?key)$|^(?:headers|certificate)$/i;
const PRIVATE_KEY = /-----BEGIN [A-Z ]*PRIVATE KEY-----/;
const HIDDEN = "***";
const DEEPEST = 5;
/** The most values that are searched. An error about a large job must not take long. */
const MOST_VALUES = 1_000;

/** The value of an option, as an error stores it: unchanged, or a copy without the passwords in it. */
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

/** Handles the rejection of a promise that is not used. An unhandled rejection ends the process. */
export function ignoreRejection(value: unknown): void {
  try {
    if (value instanceof Promise) value.catch(() => {});
  } catch {
    // A proxy that throws is not a promise.
  }
}

/** Whether a value can be awaited. */
export function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof (value as { then?: unknown } | null | undefined)?.then === "function";
}

/** The JSON text for a time without an end. JSON has no Infinity, and would write `null`. */
const FOREVER = "forever";

/**
 * Makes JSON write `"forever"` for each endless time in a result. In the process, the time stays Infinity, so that it
 * compares like any other number.
 */
export function withForever<Result extends object>(result: Result): Result {
  if (!Object.values(result).includes(Infinity)) return result;
  const toJSON = (): object => {
    const said = Object.entries(result).map(([name, value]: [string, unknown]) => [
      name,
      value === Infinity ? FOREVER : value,
    ]);
    return Object.fromEntries(said) as object;
  };
  // Not enumerable, because it is not a field of the result.
  return Object.defineProperty(result, "toJSON", { value: toJSON });
}

/** Converts a field of an error for JSON. Logging an error must never fail. */
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

/** Lists every leaf value in data with its path: `["maxBacklog.all", 500]`. */
export function listLeaves(data: unknown, path: string = ""): (readonly [string, unknown])[] {
  if (typeof data !== "object" || data === null) return data === undefined ? [] : [[path, data]];
  return Object.entries(data).flatMap(([name, value]) =>
    listLeaves(value, path === "" ? name : `${path}.${name}`),
  );
}
