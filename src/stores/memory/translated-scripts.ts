import { readLua } from "../redis/scripts/script.ts";
import type { MakeScript } from "./lua/script.ts";
import { translate } from "./lua/translate.ts";

/**
 * Translates the script `lua/<name>.lua` to JavaScript. The build replaces this module with one
 * that contains the translated scripts of `lua/bucket/`. Buckets in memory therefore never
 * evaluate text as code in the built package.
 */
export function translatedScript(name: string): MakeScript | undefined {
  // oxlint-disable-next-line no-implied-eval -- the text comes from a file of this repository
  return new Function(`return ${translate(readLua(name))}`)() as MakeScript;
}
