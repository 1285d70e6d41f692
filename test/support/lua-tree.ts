import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const INCLUDE = /^-- @include (\S+)$/gm;

/** A file under `lua/` as it is written, before its includes are put in place. */
export interface LuaFile {
  /** As in `readLua(name)`: `slots-draw`, `lib/now`. */
  readonly name: string;
  /** From the root of the repository, for messages: `lua/lib/now.lua`. */
  readonly path: string;
  readonly text: string;
  readonly includes: readonly string[];
}

/** The scripts of `lua/`, or with `lib/` the files they include. */
export function luaFiles(folder: "" | "lib/"): readonly LuaFile[] {
  return readdirSync(`${ROOT}lua/${folder}`)
    .filter((file) => file.endsWith(".lua"))
    .map((file) => {
      const path = `lua/${folder}${file}`;
      const text = readFileSync(ROOT + path, "utf8");
      const includes = [...text.matchAll(INCLUDE)].map((match) => match[1] ?? "");
      return { name: folder + file.slice(0, -".lua".length), path, text, includes };
    });
}

/** All TypeScript of `src/redis/` in one text, to look script names up in. */
export function redisSources(): string {
  return readdirSync(`${ROOT}src/redis`, { recursive: true, encoding: "utf8" })
    .filter((file) => file.endsWith(".ts"))
    .map((file) => readFileSync(`${ROOT}src/redis/${file}`, "utf8"))
    .join("\n");
}
