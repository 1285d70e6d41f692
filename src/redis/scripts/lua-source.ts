/** Reads `lua/` from the source tree; the build replaces this file by one that holds all scripts (`lua/embed.ts`). */
import { readFileSync } from "node:fs";

const LUA_FOLDER = new URL("../../../lua/", import.meta.url);
const INCLUDE = /^-- @include (\S+)$/gm;

/** The text of `lua/<name>.lua`, with the file of each `-- @include` line in its place. */
export function readLua(name: string): string {
  const text = readFileSync(new URL(`${name}.lua`, LUA_FOLDER), "utf8");
  return text.replace(INCLUDE, (_line, included: string) => readLua(included));
}
