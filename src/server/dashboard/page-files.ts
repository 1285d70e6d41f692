/**
 * Reads the files of the board from the folder beside this module. The build replaces this module
 * with the texts of the files, because a bundle has no such folder.
 */
import { readdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { extname, sep } from "node:path";

const EXTENSIONS: ReadonlySet<string> = new Set([".html", ".js", ".css", ".svg"]);
const OF_UPLOT = { "uplot.js": "uPlot.iife.min.js", "uplot.css": "uPlot.min.css" } as const;

/** Matches comments that fill whole lines. Browsers need none, and they are a fifteenth of the scripts. */
const COMMENT_LINES = /^[ \t]*(?:\/\*\*[\s\S]*?\*\/|\/\/.*)\n/gm;

function served(text: string): string {
  return text.replaceAll(COMMENT_LINES, "");
}

/** Returns the files of the board by path, such as `"parts/dom.js"`. */
export function readPageFiles(): Readonly<Record<string, string>> {
  const folder = new URL("./page/", import.meta.url);
  const names = readdirSync(folder, { recursive: true, encoding: "utf8" })
    .filter((name) => EXTENSIONS.has(extname(name)))
    .map((name) => name.split(sep).join("/"));
  const { resolve } = createRequire(import.meta.url);
  return Object.fromEntries([
    ...names.map((name) => [name, served(readFileSync(new URL(name, folder), "utf8"))]),
    ...Object.entries(OF_UPLOT).map(([name, file]) => [
      name,
      readFileSync(resolve(`uplot/dist/${file}`), "utf8"),
    ]),
  ]) as Readonly<Record<string, string>>;
}
