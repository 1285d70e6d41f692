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
