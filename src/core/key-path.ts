/**
 * What a call or a job is for: a name, or a path of up to three names, the widest first: `["acme", "endpoint-7"]`.
 * A path of one name is that name.
 */
export type Key = string | readonly string[];

export const MOST_LEVELS = 3;

/** Stands between the names of a path in its text. No name holds it, since none holds control characters. */
const BETWEEN = "\u001F";

/** The one text of a path, under which all that belongs to it is kept; that of a plain name is the name. */
export function textOfKey(key: Key): string {
  return typeof key === "string" ? key : key.join(BETWEEN);
}

/** The path of a text, as users see it: a path of one name is that name. */
export function keyOfText(text: string): Key {
  return text.includes(BETWEEN) ? Object.freeze(text.split(BETWEEN)) : text;
}

/** How many names the path of a text has. */
export function levelsOfText(text: string): number {
  return text.split(BETWEEN).length;
}

/** The texts of a path's heads, the widest first and the whole path last. */
export function headsOfText(text: string): string[] {
  const names = text.split(BETWEEN);
  return names.map((_, index) => names.slice(0, index + 1).join(BETWEEN));
}

/** Whether a path is another, or lies below it. */
export function isWithin(text: string, head: string): boolean {
  return text === head || text.startsWith(head + BETWEEN);
}
