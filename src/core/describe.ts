const LONGEST = 60;
/** The most characters of a text that are searched for passwords. */
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

/** Removes the full stop at the end of a text, so that the text can continue as a sentence. Keeps an ellipsis. */
export function withoutStop(text: string): string {
  return text.replace(/(?<!\.)\.\s*$/, "");
}

/** Returns the message of any thrown value together with the message of its cause, without passwords. */
export function reasonOf(error: unknown): string {
  try {
    return withoutPasswords(withCause(responseText(error) ?? String(error), error));
  } catch {
    // The `toString` of the thrown value is missing or throws.
    return "an error without a text";
  }
}

/** Describes a response by its status, because its text is only `[object Response]`. Undefined for other values. */
function responseText(value: unknown): string | undefined {
  if (typeof value !== "object" || value === null || value instanceof Error) return undefined;
  const { status, statusCode = status } = value as { status?: unknown; statusCode?: unknown };
  return typeof statusCode === "number" ? `a response with status ${statusCode}` : undefined;
}

/** The most levels of `cause` that are followed. `fetch`, a client and its user each wrap the error once. */
const MOST_CAUSES = 5;

/**
 * Adds the message of the innermost cause to a text, because the message "fetch failed" of `fetch` explains nothing.
 */
export function withCause(text: string, error: unknown): string {
  let words: string | undefined;
  let at = error;
  try {
    for (let depth = 0; depth < MOST_CAUSES; depth++) {
      if (typeof at !== "object" || at === null) break;
      at = (at as { cause?: unknown }).cause;
      const { message, code } = (at ?? {}) as { message?: unknown; code?: unknown };
      // If a host name has several addresses, Node throws one error for all of them, with a code but without a message.
      const found = [message, code].find((part) => typeof part === "string" && part !== "");
      if (found !== undefined) words = found as string;
    }
  } catch {
    // A getter or a proxy of the value throws.
  }
  return words === undefined || text.includes(words) ? text : `${text} (${words})`;
}

/**
 * Returns the message of an error as part of a sentence: `"connect ECONNREFUSED 127.0.0.1:6379"`, `"WRONGPASS invalid
 * username-password pair"`.
 */
export function messageOf(error: Error): string {
  // If a host name has several addresses, Node throws one error for all of them, with a code but without a message.
  const { code } = error as NodeJS.ErrnoException;
  return withoutPasswords(error.message || code || error.name).replace(/\.$/, "");
}

/** Matches the arguments in the error of Redis about an unknown command. The arguments of AUTH include a password. */
const ARGUMENTS = /with args beginning with: .*/gs;

/** Removes the user and password from URLs and from addresses without a scheme. */
export function withoutPasswords(text: string): string {
  return text.replaceAll(ARGUMENTS, "with arguments").replaceAll(/[^\s"']+/g, withoutUser);
}

/**
 * Removes the user and password before the last `@` of a word. A password without URL encoding may itself contain a
 * slash or an `@`.
 */
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
    // The value has a cycle, or its `toJSON` throws. Only its type can be shown.
    return typeOf(value);
  }
}

/** Writes a BigInt as text, because JSON has no BigInt. */
function readable(_name: string, value: unknown): unknown {
  return typeof value === "bigint" ? `${value}n` : value;
}

function typeOf(value: object): string {
  try {
    return Object.prototype.toString.call(value);
  } catch {
    // The value is a proxy that throws.
    return "an object";
  }
}

/** Matches the names of options and fields whose values errors never show. */
const NAMES =
  /(?:password|passwd|passphrase|secrets?|token|credentials?|authorization|cookie|(?:api|private|access|signing|encryption)[-_]?key)$|^(?:headers|certificate)$/i;
const PRIVATE_KEY = /-----BEGIN [A-Z ]*PRIVATE KEY-----/;
const HIDDEN = "***";
const DEEPEST = 5;
/** The most values that are searched for secrets, because an error about a large job must not take long. */
const MOST_VALUES = 1_000;

/** Returns the value of an option as errors store it: the value itself, or a copy without the passwords in it. */
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
    // A getter or a proxy of the value throws.
    return value;
  }
}

/** Returns the first entries of an object. `Object.entries` would list all of them first. */
function firstEntries(value: object, count: number): [string, unknown][] {
  const entries: [string, unknown][] = [];
  for (const key in value) {
    if (entries.length >= count) break;
    if (Object.hasOwn(value, key)) entries.push([key, value[key as keyof typeof value]]);
  }
  return entries;
}

/** Ignores the rejection of a promise that the caller does not use. An unhandled rejection would end the process. */
export function ignoreRejection(value: unknown): void {
  try {
    if (value instanceof Promise) value.catch(() => {});
  } catch {
    // A proxy that throws is not a promise.
  }
}

/** True if a value can be awaited. */
export function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof (value as { then?: unknown } | null | undefined)?.then === "function";
}

/** The JSON value for a time without an end. JSON has no Infinity and would write `null`. */
const FOREVER = "forever";

/**
 * Makes `JSON.stringify` write `"forever"` for each endless time in a result. In memory, the time stays Infinity, so
 * that code can compare it like any other number.
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
  // `toJSON` is not enumerable, because it is not a field of the result.
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
    // The value has a cycle or a BigInt, or its `toJSON` throws.
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
