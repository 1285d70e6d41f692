/**
 * Reads a cron expression strictly, and rewrites it with numbers only: without names and without `H`.
 *
 * BullMQ uses cron-parser, which accepts too much (checked with 5.10.3). It fills in missing fields, ignores impossible
 * steps, reads the name of a month as a weekday, and draws `H` at random at each parse. Therefore cron-parser only gets
 * text that this module has written.
 */

/** Thrown when the text is not a cron expression. The message says what to write instead. */
export class CronTextError extends Error {
  override readonly name = "CronTextError";
}

interface Field {
  readonly name: string;
  readonly least: number;
  readonly most: number;
  /** The largest value that `*` and a step include. Weekdays also accept 7, which is a second number for Sunday. */
  readonly last: number;
  /** The largest value that `H` can become. For the day of the month this is 28, because every month has a 28th day. */
  readonly mostHashed: number;
  readonly words: readonly string[];
  /** Matches additional forms besides numbers, ranges and steps. Only the two day fields have such forms. */
  readonly others?: RegExp;
}

const MONTHS = ["jan", "feb", "mar", "apr", "may", "jun"].concat([
  "jul",
  "aug",
  "sep",
  "oct",
  "nov",
  "dec",
]);
const WEEKDAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

const FIELDS: readonly Field[] = [
  fieldOf("second", 0, 59),
  fieldOf("minute", 0, 59),
  fieldOf("hour", 0, 23),
  { ...fieldOf("day of month", 1, 31), mostHashed: 28, others: /^L$/ },
  { ...fieldOf("month", 1, 12), words: MONTHS },
  {
    ...fieldOf("day of week", 0, 7),
    last: 6,
    mostHashed: 6,
    words: WEEKDAYS,
    others: /^([0-7]|sun|mon|tue|wed|thu|fri|sat)(L|#[1-5])$/i,
  },
];

function fieldOf(name: string, least: number, most: number): Field {
  return { name, least, most, last: most, mostHashed: most, words: [] };
}

const NAMES: Readonly<Record<string, string>> = {
  "@yearly": "0 0 1 1 *",
  "@annually": "0 0 1 1 *",
  "@monthly": "0 0 1 * *",
  "@weekly": "0 0 * * 0",
  "@weekdays": "0 0 * * 1-5",
  "@weekends": "0 0 * * 0,6",
  "@daily": "0 0 * * *",
  "@midnight": "0 0 * * *",
  "@hourly": "0 * * * *",
  "@minutely": "* * * * *",
  "@secondly": "* * * * * *",
};

const EXAMPLE = 'such as "0 9 * * 1-5"';
/** The most characters of an expression. An expression that lists every value of all fields has about half of them. */
const MOST_CHARACTERS = 1_024;

/**
 * Returns the expression with names, weekdays and `H` written as numbers. `H` becomes a hash of `id`, the schedule's
 * id. Each schedule therefore keeps its times, and the schedules spread over the allowed times.
 *
 * @throws {@link CronTextError} when a field is missing, or has an impossible value.
 */
export function readCronText(text: string, id: string): string {
  const trimmed = text.trim();
  if (trimmed.length > MOST_CHARACTERS) {
    throw new CronTextError(`give a cron expression of ${MOST_CHARACTERS} characters at most`);
  }
  if (trimmed.startsWith("@")) return namedTimes(trimmed);
  const texts = trimmed === "" ? [] : trimmed.split(/\s+/);
  if (texts.length < 5 || texts.length > 6) {
    const fields = FIELDS.slice(1).map(({ name }) => name);
    throw new CronTextError(
      `it has ${texts.length} ${texts.length === 1 ? "field" : "fields"}; give five (${fields.join(", ")}), or six with the second first, ${EXAMPLE}`,
    );
  }
  const fields = FIELDS.slice(-texts.length);
  return fields.map((field, index) => readField(texts[index]!, field, id)).join(" ");
}

/** True if the text contains `H`, so that reading it requires the schedule id. */
export function usesHash(text: string): boolean {
  return /(^|[\s,])H/.test(text);
}

function namedTimes(text: string): string {
  const name = text.toLowerCase();
  if (Object.hasOwn(NAMES, name)) return NAMES[name]!;
  const names = Object.keys(NAMES).join(", ");
  const other = name.startsWith("@every") ? "give every, in ms, instead of cron; " : "";
  throw new CronTextError(`${other}the names of times are ${names}`);
}

function readField(text: string, field: Field, id: string): string {
  const items = text.split(",");
  if (items.length > 1 && items.some((item) => item.includes("#"))) {
    throw wrong(field, text, "give # alone, without a list");
  }
  const [first, ...others] = items.map((item) => readItem(item, field, id));
  return others.length === 0 ? first! : mergeItems([first!, ...others], field);
}

const READ = /^(?:\*|(\d+)(?:-(\d+))?)(?:\/(\d+))?$/;

/**
 * Merges the items of a list so that each value appears once. cron-parser rejects a list with overlapping items, such
 * as `0-10,5`, and rejects Sunday as both 0 and 7.
 */
function mergeItems(items: readonly string[], { least, most, last }: Field): string {
  // A list that contains `*` becomes `*` alone, because only then does the other day field decide.
  if (items.includes("*")) return "*";
  const values = new Set<number>();
  const others = new Set<string>();
  for (const item of items.flatMap((each) => each.split(","))) {
    const range = READ.exec(item);
    if (range === null) {
      others.add(item);
      continue;
    }
    const [, from, to, step] = range;
    const begin = Number(from ?? least);
    const end = Number(to ?? from ?? last);
    for (const value of steps(begin, end, Number(step ?? 1))) {
      values.add(value === most && last < most ? least : value);
    }
  }
  return [...[...values].sort((one, other) => one - other), ...others].join(",");
}

const HASHED = /^H(?:\((\d+)-(\d+)\))?(?:\/(\d+))?$/;
const PLAIN = /^(?:(\*)|([a-z]+|\d+)(?:-([a-z]+|\d+))?)(?:\/(\d+))?$/i;

function readItem(item: string, field: Field, id: string): string {
  const hashed = HASHED.exec(item);
  if (hashed !== null) return hashedItem(item, hashed, { field, id });
  if (field.others?.test(item) === true) return item;
  // Quartz allows `?` in either day field. cron-parser reads `?` as `*` in any field.
  if (item === "?" && field.others !== undefined) return "*";
  const plain = PLAIN.exec(item);
  if (plain === null) throw wrong(field, item, formOf(field));
  const [, all, first, second, step] = plain;
  if (all !== undefined) {
    checkStep(item, step, { field, least: field.least, most: field.last });
    return item;
  }
  const from = valueOf(item, first!, field);
  if (second === undefined) {
    if (step === undefined) return String(from);
    checkStep(item, step, { field, least: from, most: field.last });
    return `${from}-${field.last}/${step}`;
  }
  let to = valueOf(item, second, field);
  // In a range such as "fri-sun", Sunday is 7, so that the range goes upwards.
  if (to === 0 && field.last !== field.most && from > 0) to = field.most;
  if (from > to) {
    throw wrong(
      field,
      item,
      `a range goes upwards; give two, such as ${from}-${field.last},${field.least}-${to}`,
    );
  }
  checkStep(item, step, { field, least: from, most: to });
  // cron-parser adds Sunday to each range of weekdays that ends with 7, whatever its step. So the days are listed
  // instead.
  if (to === field.most && field.last !== field.most && step !== undefined) {
    return steps(from, to, Number(step))
      .map((day) => day % 7)
      .join(",");
  }
  return `${from}-${to}${step === undefined ? "" : `/${step}`}`;
}

/**
 * Replaces `H` as Jenkins does: `H` becomes one value of the field or range, and `H/15` begins at one of the first 15
 * values.
 */
function hashedItem(
  item: string,
  [, from, to, every]: RegExpExecArray,
  { field, id }: { readonly field: Field; readonly id: string },
): string {
  const least = from === undefined ? field.least : Number(from);
  const most = to === undefined ? field.mostHashed : Number(to);
  if (least < field.least || most > field.most || least > most) {
    throw wrong(field, item, `give a range within ${field.least} to ${field.most}`);
  }
  checkStep(item, every, { field, least, most });
  const hash = hashOf(`${id}\n${field.name}`);
  if (every === undefined) return String(least + (hash % (most - least + 1)));
  const step = Number(every);
  return steps(least + (hash % step), most, step).join(",");
}

function steps(from: number, to: number, step: number): number[] {
  const count = Math.floor((to - from) / step) + 1;
  return Array.from({ length: count }, (_, index) => from + index * step);
}

function valueOf(item: string, text: string, field: Field): number {
  const at = field.words.indexOf(text.toLowerCase());
  if (at !== -1) return at + field.least;
  const value = /^\d+$/.test(text) ? Number(text) : Number.NaN;
  if (value >= field.least && value <= field.most) return value;
  throw wrong(field, item, formOf(field));
}

function checkStep(
  item: string,
  text: string | undefined,
  { field, least, most }: { readonly field: Field; readonly least: number; readonly most: number },
): void {
  if (text === undefined) return;
  const values = most - least + 1;
  const step = Number(text);
  if (step >= 1 && step <= values) return;
  throw wrong(
    field,
    item,
    step < 1
      ? "give a step from 1"
      : `the step is larger than ${least} to ${most}; give one up to ${values}, or every instead of cron`,
  );
}

function formOf({ least, most, words }: Field): string {
  const named = words.length === 0 ? "" : `, ${words[0]} to ${words.at(-1)}`;
  return `give ${least} to ${most}${named}, a range, a list, *, H or a step such as */${Math.min(15, most)}`;
}

function wrong({ name }: Field, item: string, remedy: string): CronTextError {
  return new CronTextError(`its ${name} cannot be "${item}": ${remedy}`);
}

/**
 * Hashes a text with 32-bit FNV-1a and the final mix of MurmurHash3. Without the mix, the last bits of the hash hardly
 * depend on the first letters.
 */
function hashOf(text: string): number {
  let hash = 0x811c9dc5;
  for (const byte of new TextEncoder().encode(text)) {
    hash = Math.imul(hash ^ byte, 0x01000193);
  }
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return (hash ^ (hash >>> 16)) >>> 0;
}
