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
