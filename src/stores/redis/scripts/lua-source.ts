import { readFileSync } from "node:fs";

const LUA_FOLDER = new URL("../../../../lua/", import.meta.url);

/** The text of `lua/<name>.lua` as it is written. The build replaces this module by one that holds all texts. */
export function readLuaFile(name: string): string {
  return readFileSync(new URL(`${name}.lua`, LUA_FOLDER), "utf8");
}
