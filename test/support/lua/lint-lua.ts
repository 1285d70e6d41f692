import { readLua } from "../../../src/stores/redis/scripts/script.ts";
import { allScripts } from "./all-scripts.ts";
import { undeclaredGlobals } from "./lua-globals.ts";
import { missingArguments } from "./lua-header.ts";
import { luaFiles, redisSources, type LuaFile } from "./lua-tree.ts";

const MAX_LINES = 80;
const HEADER = /^(?:--\[\[[\s\S]*?\]\]|(?:--[^\n]*\n)+)/;
const HEADER_PARTS = ["KEYS", "ARGV", "Reply"];

const scripts = luaFiles("scripts");
const libraries = luaFiles("lib");
const sources = redisSources();
const shaped = (await allScripts()).filter(({ argNames }) => argNames !== undefined);
// A set, because what is wrong in lib/ shows in every script that includes it.
const findings = new Set([
  ...scripts.flatMap((script) => [
    ...checkShape(script),
    ...checkUse(script),
    ...checkArguments(script),
    ...checkGlobals(script),
  ]),
  ...libraries
    .filter((library) => !isIncluded(library))
    .map(({ path }) => `${path}:1: no script includes this`),
]);

for (const finding of findings) console.log(finding);
if (findings.size === 0) console.log(`lua: ${scripts.length} scripts clean`);
process.exitCode = findings.size === 0 ? 0 : 1;

function checkShape({ path, text }: LuaFile): readonly string[] {
  const lineCount = text.trimEnd().split("\n").length;
  const header = HEADER.exec(text)?.[0] ?? "";
  const missing = HEADER_PARTS.filter((part) => !header.includes(part));
  return [
    ...(lineCount > MAX_LINES ? [`${path}:${MAX_LINES + 1}: longer than ${MAX_LINES} lines`] : []),
    ...(missing.length > 0 ? [`${path}:1: the header comment lacks ${missing.join(", ")}`] : []),
  ];
}

function checkUse({ name, path }: LuaFile): readonly string[] {
  const isNamed = [`readLua("${name}")`, `name: "${name}"`].some((use) => sources.includes(use));
  return isNamed ? [] : [`${path}:1: nothing in src/stores/redis names this script`];
}

function checkArguments({ name, path, text }: LuaFile): readonly string[] {
  return shaped
    .filter((script) => script.name === name)
    .flatMap(({ argNames = [] }) => missingArguments(text, argNames) ?? [])
    .map((wanted) => `${path}:1: ARGV has to list ${wanted}`);
}

function checkGlobals(script: LuaFile): readonly string[] {
  try {
    const source = readLua(script.name);
    const lines = source.split("\n");
    return undeclaredGlobals(source).map(({ name, line }) => {
      const place = placeOf(script, lines[line - 1] ?? "");
      return `${place}: "${name}" is not declared`;
    });
  } catch (error) {
    return [`${script.path}:1: ${error instanceof Error ? error.message : String(error)}`];
  }
}

/** Where a line of the expanded text was written. A line that stands twice is reported at the first place. */
function placeOf(script: LuaFile, line: string): string {
  for (const { path, text } of [script, ...includedBy(script)]) {
    const index = text.split("\n").indexOf(line);
    if (index >= 0) return `${path}:${index + 1}`;
  }
  return `${script.path}:1`;
}

function includedBy({ includes }: LuaFile): readonly LuaFile[] {
  return libraries
    .filter(({ name }) => includes.includes(name))
    .flatMap((library) => [library, ...includedBy(library)]);
}

function isIncluded(library: LuaFile): boolean {
  return scripts.some((script) => includedBy(script).includes(library));
}
