import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("../../../", import.meta.url));
const INCLUDE = /^-- @include (\S+)$/gm;

/** A file under `lua/` as it is written, before its includes are put in place. */
export interface LuaFile {
  /** As in `readLua(name)`: `bucket/slots-draw`, `lib/now`. */
  readonly name: string;
  /** From the root of the repository, for messages: `lua/lib/now.lua`. */
  readonly path: string;
  readonly text: string;
  readonly includes: readonly string[];
}

/** The scripts of `lua/`, or those in `lib/`, which they include. */
export function luaFiles(which: "scripts" | "lib"): readonly LuaFile[] {
  return readdirSync(`${ROOT}lua`, { recursive: true, encoding: "utf8" })
    .filter((file) => file.endsWith(".lua") && file.startsWith("lib/") === (which === "lib"))
    .map((file) => {
      const path = `lua/${file}`;
      const text = readFileSync(ROOT + path, "utf8");
      const includes = [...text.matchAll(INCLUDE)].map((match) => match[1] ?? "");
      return { name: file.slice(0, -".lua".length), path, text, includes };
    });
}

/** All TypeScript of `src/stores/redis/` in one text, to look script names up in. */
export function redisSources(): string {
  return readdirSync(`${ROOT}src/stores/redis`, { recursive: true, encoding: "utf8" })
    .filter((file) => file.endsWith(".ts"))
    .map((file) => readFileSync(`${ROOT}src/stores/redis/${file}`, "utf8"))
    .join("\n");
}
