import { readFileSync } from "node:fs";

const LUA_FOLDER = new URL("../../../../lua/", import.meta.url);

/**
 * Returns the unchanged text of `lua/<name>.lua`. The build replaces this module with one that
 * contains all texts.
 */
export function readLuaFile(name: string): string {
  return readFileSync(new URL(`${name}.lua`, LUA_FOLDER), "utf8");
}
