/** Options that several commands read. */
import { InvalidOptionError } from "../core/errors.ts";

export interface KeyGiven {
  readonly key?: string[];
}

export const KEY_OPTION = ["--key <names...>", "one key, or the names of a path"] as const;

export function keyOf({ key }: KeyGiven): { readonly key?: string | readonly string[] } {
  if (key === undefined) return {};
  return { key: key.length === 1 ? key[0]! : key };
}

/** @throws {@link InvalidOptionError} when it is no whole number from 1. */
export function countOf(option: string, text: string): number {
  const count = Number(text);
  if (Number.isInteger(count) && count >= 1) return count;
  const remedy = "give a whole number from 1";
  throw new InvalidOptionError({ where: "sluice", option, value: text, remedy });
}

/**
 * Settings of a queue, by the names that `sluice queue` shows: `defaults.attempts=3` is `{ defaults: { attempts: 3 } }`.
 *
 * @throws {@link InvalidOptionError} when one has no value.
 */
export function settingsOf(given: readonly string[]): Readonly<Record<string, unknown>> {
  // A key may be called `__proto__`.
  const make = (): Record<string, unknown> => Object.create(null) as Record<string, unknown>;
  const settings = make();
  for (const text of given) {
    const [, path = "", said = ""] = /^([^=]+)=(.+)$/s.exec(text) ?? [];
    if (path === "") {
      const remedy = "give a name and a value, such as maxBacklog=500";
      throw new InvalidOptionError({
        where: "sluice set",
        option: "--setting",
        value: text,
        remedy,
      });
    }
    // A key may have dots in its name.
    const names = path.startsWith("weights.")
      ? ["weights", path.slice("weights.".length)]
      : path.split(".");
    let at = settings;
    for (const name of names.slice(0, -1)) at = (at[name] ??= make()) as Record<string, unknown>;
    at[names.at(-1)!] = said.trim() !== "" && Number.isFinite(Number(said)) ? Number(said) : said;
  }
  return settings;
}
