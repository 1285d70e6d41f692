/**
 * What a call or a job is for: a name, or a path of up to three names, the widest first: `["acme", "endpoint-7"]`.
 * A path of one name is that name.
 */
export type Key = string | readonly string[];

/** Keys side by side, by their names: `{ address: "10.0.0.1", email: "a@b.c" }`. */
export type NamedKeys = Readonly<Record<string, string>>;

export const MOST_LEVELS = 3;

/** Stands between the names of a path in its text. No name holds it, since none holds control characters. */
const BETWEEN = "\u001F";
/** Stands between the name of a named key and its value, and between several of them. */
const VALUED = "\u001E";
const BESIDE = "\u001D";

/** Encodes a key as the one text that all of its state is stored under; a plain name is its own text. */
export function encodeKey(key: Key): string {
  return typeof key === "string" ? key : key.join(BETWEEN);
}

/** Decodes the text of a key to what users see; a path of one name is that name. */
export function decodeKey(text: string): Key {
  return text.includes(BETWEEN) ? Object.freeze(text.split(BETWEEN)) : text;
}

/** The names of the path of a text, the widest first. */
export function namesOfText(text: string): string[] {
  return text.split(BETWEEN);
}

/** How many names the path of a text has. */
export function levelsOfText(text: string): number {
  let levels = 1;
  for (let at = text.indexOf(BETWEEN); at !== -1; at = text.indexOf(BETWEEN, at + 1)) levels += 1;
  return levels;
}

/** The texts of a path's heads, the widest first and the whole path last. */
export function headsOfText(text: string): string[] {
  const heads: string[] = [];
  for (let at = text.indexOf(BETWEEN); at !== -1; at = text.indexOf(BETWEEN, at + 1)) {
    heads.push(text.slice(0, at));
  }
  heads.push(text);
  return heads;
}

/** The first name of a path: `"acme"` of `["acme", "endpoint-7"]`. */
export function firstOfText(text: string): string {
  const end = text.indexOf(BETWEEN);
  return end === -1 ? text : text.slice(0, end);
}

/** Whether a path is another, or lies below it. */
export function isWithin(text: string, head: string): boolean {
  return text === head || text.startsWith(head + BETWEEN);
}

/** The text of one named key. */
export function textOfNamedKey(name: string, value: string): string {
  return `${name}${VALUED}${value}`;
}

/** The one text of several named keys, whatever their order. */
export function textOfNamedKeys(texts: readonly string[]): string {
  const areInOrder = texts.every((text, index) => index === 0 || texts[index - 1]! < text);
  return (areInOrder ? texts : texts.toSorted()).join(BESIDE);
}

/** The texts of each of several named keys. */
export function textsOfNamedKeys(text: string): string[] {
  return text.split(BESIDE);
}

/** The name of a named key. */
export function nameOfNamedKey(text: string): string {
  return text.slice(0, text.indexOf(VALUED));
}

/** The value of a named key. */
export function valueOfNamedKey(text: string): string {
  return text.slice(text.indexOf(VALUED) + 1);
}

/** The one text of scopes of a key, the widest first: of a path, the narrowest names all. */
export function textOfScopes(texts: readonly string[]): string {
  const last = texts.at(-1) ?? "";
  return texts.length > 1 && isOfNames(last) ? textOfNamedKeys(texts) : last;
}

/** Whether a text is that of named keys. */
export function isOfNames(text: string): boolean {
  return text.includes(VALUED);
}

/** What users give and get of a text: a key, or named keys. */
export interface Named {
  readonly key: Key | undefined;
  readonly keys: NamedKeys | undefined;
}

const UNNAMED: Named = Object.freeze({ key: undefined, keys: undefined });

/** A text as users see it. */
export function namedOf(text: string | undefined): Named {
  if (text === undefined) return UNNAMED;
  if (!isOfNames(text)) return { key: decodeKey(text), keys: undefined };
  const keys = textsOfNamedKeys(text).map((each) => [nameOfNamedKey(each), valueOfNamedKey(each)]);
  return { key: undefined, keys: Object.freeze(Object.fromEntries(keys)) };
}

/** The text of what users see of a text. */
export function textOfNamed({ key, keys }: Named): string | undefined {
  if (keys !== undefined) {
    return textOfNamedKeys(Object.entries(keys).map(([name, of]) => textOfNamedKey(name, of)));
  }
  return key === undefined ? undefined : encodeKey(key);
}
