/**
 * Puts the text of each script into a package that was just built, in place of what reads it from this
 * folder: a service that is bundled into one file has no such folder beside it. `tsx lua/embed.ts dist`
 */
import { readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { readLua } from "../src/redis/scripts/lua-source.ts";

const file = join(process.argv[2]!, "redis/scripts/lua-source.js");
const names = readdirSync(import.meta.dirname, { recursive: true, encoding: "utf8" })
  .filter((name) => /^(?!lib\/).+\.lua$/.test(name))
  .map((name) => name.slice(0, -".lua".length));
const texts = Object.fromEntries(names.map((name) => [name, readLua(name)]));

writeFileSync(
  file,
  `const TEXTS = ${JSON.stringify(texts, undefined, 2)};\n\nexport function readLua(name) {\n  return TEXTS[name];\n}\n`,
);
rmSync(`${file}.map`, { force: true });
