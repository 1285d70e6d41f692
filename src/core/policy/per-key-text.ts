/** Reads and writes per-key limits in the text of a policy. Other replicas read that text. */
import { KEY } from "../input/options.ts";
import { MOST_LEVELS } from "../key-path.ts";
import type { Limit } from "../limits/rule.ts";

/**
 * The limits of one level or name. `true` stands for limits that only the writing process knows.
 */
export type PartText = readonly Limit[] | true;
export type PerKeyText =
  | PartText
  | { readonly levels: readonly PartText[] }
  | { readonly names: readonly (readonly [name: string, limits: PartText])[] };

/**
 * Returns the limits in a text, one part for each level or name. For keys side by side, also
 * returns their names.
 */
export function partsOf(text: PerKeyText): {
  readonly names: readonly string[] | undefined;
  readonly parts: readonly PartText[];
} {
  if (text === true || Array.isArray(text)) return { names: undefined, parts: [text as PartText] };
  if ("levels" in text) return { names: undefined, parts: text.levels };
  const { names } = text as { readonly names: readonly (readonly [string, PartText])[] };
  return { names: names.map(([name]) => name), parts: names.map(([, part]) => part) };
}

/** Rebuilds the `perKey` option from a text. `optionOf` converts each part. */
export function optionsOfText<Option>(
  text: PerKeyText,
  optionOf: (part: PartText) => Option,
): Option | Option[] | Record<string, Option> {
  const { names, parts } = partsOf(text);
  const options = parts.map(optionOf);
  if (names !== undefined) {
    return Object.fromEntries(names.map((name, index) => [name, options[index]!]));
  }
  return options.length === 1 ? options[0]! : options;
}

/** True if a value that another replica wrote has the form of per-key limits. */
export function isPerKeyText(
  given: unknown,
  isLimits: (value: unknown) => boolean,
): given is PerKeyText {
  const isPart = (value: unknown): boolean => value === true || isLimits(value);
  if (isPart(given)) return true;
  if (typeof given !== "object" || given === null) return false;
  const { levels, names } = given as { readonly levels?: unknown; readonly names?: unknown };
  const isList = (value: unknown): value is unknown[] =>
    Array.isArray(value) && value.length > 0 && value.length <= MOST_LEVELS;
  if (isList(levels)) return levels.every(isPart);
  const isNamed = (value: unknown): boolean =>
    Array.isArray(value) && KEY.safeParse(value[0]).success && isPart(value[1]);
  return isList(names) && names.every(isNamed);
}
