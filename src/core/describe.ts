const LONGEST = 60;
/** So much of a text is looked through for passwords, of which the beginning is shown. */
const LOOKED_THROUGH = 4_000;

/** A value as an error message may show it: on one line, quoted, and never longer than some 60 characters. */
export function describeValue(value: unknown): string {
  const text = typeof value === "string" ? JSON.stringify(value) : plainText(value);
  const start = onOneLine(withoutPasswords(text.slice(0, LOOKED_THROUGH)));
  const isWhole = start.length <= LONGEST && text.length <= LOOKED_THROUGH;
  const { length } = typeof value === "string" ? value : text;
  return isWhole ? start : `${start.slice(0, LONGEST)}… (${length} characters)`;
}

/** A text that cannot pass for two lines of a log. */
export function onOneLine(text: string): string {
  return text.replaceAll(/[\p{Cc}\p{Zl}\p{Zp}]/gu, " ");
}

/** What an error says, whatever was thrown, and without passwords. */
export function reasonOf(error: unknown): string {
  try {
    return withoutPasswords(String(error));
  } catch {
    // No text can be made of it, or what would make one throws.
    return "an error that says nothing";
  }
}

/** An error in its own words, as part of a sentence: `"connect ECONNREFUSED 127.0.0.1:6379"`, `"WRONGPASS invalid username-password pair"`. */
export function wordsOf(error: Error): string {
  // Where a name has several addresses, the error of all of them has a code and no message.
  const { code } = error as NodeJS.ErrnoException;
  return withoutPasswords(error.message || code || error.name).replace(/\.$/, "");
}

/** Redis tells the arguments of a command that it does not know, and AUTH has a password among them. */
const ARGUMENTS = /with args beginning with: .*/gs;

/** A text without what stands before the @ of URLs, and of addresses whose scheme was left out. */
export function withoutPasswords(text: string): string {
  return text.replaceAll(ARGUMENTS, "with arguments").replaceAll(/[^\s"']+/g, withoutUser);
}

/** Up to the last @: who forgets to encode a password may have a slash or an @ in it. */
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
    // A cycle, or a toJSON that throws: the kind of thing is all that can be shown.
    return kindOf(value);
  }
}

/** JSON knows no BigInt. */
function readable(_name: string, value: unknown): unknown {
  return typeof value === "bigint" ? `${value}n` : value;
}

function kindOf(value: object): string {
  try {
    return Object.prototype.toString.call(value);
  } catch {
    // A proxy that throws.
    return "an object";
  }
}

const NAMES = /^(?:password|sentinelPassword|passphrase|secret|authorization|cookie|api[-_]?key)$/i;
const PRIVATE_KEY = /-----BEGIN [A-Z ]*PRIVATE KEY-----/;
const HIDDEN = "***";
const DEEPEST = 5;
/** So many values are looked at: errors about a job's data must not take longer the more there is of it. */
const MOST_LOOKED_AT = 1_000;

/**
 * What an error may keep of the value of an option: the value itself, or a copy without
 * passwords if there are some in it.
 */
export function withoutSecrets(option: string, value: unknown): unknown {
  const name = option.split(".").at(-1)!;
  return hide(name, value, { deep: 0, left: { count: MOST_LOOKED_AT } });
}

interface Bounds {
  readonly deep: number;
  readonly left: { count: number };
}

function hide(name: string, value: unknown, { deep, left }: Bounds): unknown {
  left.count -= 1;
  if (typeof value === "string") {
    const isHidden = NAMES.test(name) || PRIVATE_KEY.test(value);
    return isHidden ? HIDDEN : withoutPasswords(value);
  }
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

/** As `Object.entries`, which would list all of them first. */
function firstEntries(value: object, count: number): [string, unknown][] {
  const entries: [string, unknown][] = [];
  for (const key in value) {
    if (entries.length >= count) break;
    if (Object.hasOwn(value, key)) entries.push([key, value[key as keyof typeof value]]);
  }
  return entries;
}

/** Hears how a promise ends that was given where none can be used: a rejection that nobody hears ends the process. */
export function ignoreRejection(value: unknown): void {
  try {
    if (value instanceof Promise) value.catch(() => {});
  } catch {
    // A proxy that throws is no promise.
  }
}

/** Whether this is a promise, or something else that can be awaited. */
export function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof (value as { then?: unknown } | null | undefined)?.then === "function";
}
