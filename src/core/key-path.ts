/**
 * The key of a call or job, such as a tenant or an endpoint. A key is a name, or a path of up to three names, the
 * widest first: `["acme", "endpoint-7"]`. A path of one name equals that name.
 */
export type Key = string | readonly string[];

/** Several keys of one call, side by side. Each key has a name: `{ address: "10.0.0.1", email: "a@b.c" }`. */
export type NamedKeys = Readonly<Record<string, string>>;

export const MOST_LEVELS = 3;

/** Separates the names in the encoded text of a path. Names cannot contain control characters. */
const BETWEEN = "\u001F";
/** Separates the name of a named key from its value, and several named keys from each other. */
const VALUED = "\u001E";
const BESIDE = "\u001D";
/** Begins the text that stands for a member of a pool in place of a key. No key begins with it. */
const MEMBER = "\u001C";

/** Returns the text that stands for a member of a pool in place of a key. */
export function memberKey(name: string): string {
  return MEMBER + name;
}

/** True if the text stands for a member of a pool. */
export function isMemberKey(text: string): boolean {
  return text.startsWith(MEMBER);
}

/** Returns the name of the member that the text stands for. Undefined for the text of a key. */
export function memberOfText(text: string | undefined): string | undefined {
  return text !== undefined && isMemberKey(text) ? text.slice(MEMBER.length) : undefined;
}

/** Encodes a key as one text, which is part of the names under which its state is stored. A plain name is unchanged. */
export function encodeKey(key: Key): string {
  return typeof key === "string" ? key : key.join(BETWEEN);
}

/** Decodes the text of a key into the form that users see. A path of one name becomes that name. */
export function decodeKey(text: string): Key {
  return text.includes(BETWEEN) ? Object.freeze(text.split(BETWEEN)) : text;
}

/** Returns the names in an encoded path, the widest first. */
export function namesOfText(text: string): string[] {
  return text.split(BETWEEN);
}

/** Returns the number of names in an encoded path. */
export function levelsOfText(text: string): number {
  let levels = 1;
  for (let at = text.indexOf(BETWEEN); at !== -1; at = text.indexOf(BETWEEN, at + 1)) levels += 1;
  return levels;
}

/** Returns the encoded prefixes of an encoded path, the widest first and the whole path last. */
export function headsOfText(text: string): string[] {
  const heads: string[] = [];
  for (let at = text.indexOf(BETWEEN); at !== -1; at = text.indexOf(BETWEEN, at + 1)) {
    heads.push(text.slice(0, at));
  }
  heads.push(text);
  return heads;
}

/** Returns the first name of an encoded path: `"acme"` for `["acme", "endpoint-7"]`. */
export function firstOfText(text: string): string {
  const end = text.indexOf(BETWEEN);
  return end === -1 ? text : text.slice(0, end);
}

/** True if the path `text` equals the path `head`, or is below it. */
export function isWithin(text: string, head: string): boolean {
  return text === head || text.startsWith(head + BETWEEN);
}

/** Encodes one named key. */
export function textOfNamedKey(name: string, value: string): string {
  return `${name}${VALUED}${value}`;
}

/** Combines encoded named keys into one text. The text does not depend on their order. */
export function textOfNamedKeys(texts: readonly string[]): string {
  const areInOrder = texts.every((text, index) => index === 0 || texts[index - 1]! < text);
  return (areInOrder ? texts : texts.toSorted()).join(BESIDE);
}

/** Splits a combined text into its encoded named keys. */
export function textsOfNamedKeys(text: string): string[] {
  return text.split(BESIDE);
}

/** Returns the name in an encoded named key. */
export function nameOfNamedKey(text: string): string {
  return text.slice(0, text.indexOf(VALUED));
}

/** Returns the value in an encoded named key. */
export function valueOfNamedKey(text: string): string {
  return text.slice(text.indexOf(VALUED) + 1);
}

/**
 * Combines the encoded scopes of a key, given the widest first. For a path, the result is the text of the narrowest
 * scope.
 */
export function textOfScopes(texts: readonly string[]): string {
  const last = texts.at(-1) ?? "";
  return texts.length > 1 && isOfNames(last) ? textOfNamedKeys(texts) : last;
}

/** True if the text encodes named keys. */
export function isOfNames(text: string): boolean {
  return text.includes(VALUED);
}

/** A decoded key: `key`, `keys` or `member` is set. */
export interface Named {
  readonly key: Key | undefined;
  readonly keys: NamedKeys | undefined;
  /** The name of a member, if the text stands for a member of a pool. */
  readonly member?: string | undefined;
}

const UNNAMED: Named = Object.freeze({ key: undefined, keys: undefined });

/** Decodes a key or named keys into the form that users see. */
export function namedOf(text: string | undefined): Named {
  if (text === undefined) return UNNAMED;
  if (isMemberKey(text)) return { ...UNNAMED, member: memberOfText(text) };
  if (!isOfNames(text)) return { key: decodeKey(text), keys: undefined };
  const keys = textsOfNamedKeys(text).map((each) => [nameOfNamedKey(each), valueOfNamedKey(each)]);
  return { key: undefined, keys: Object.freeze(Object.fromEntries(keys)) };
}
