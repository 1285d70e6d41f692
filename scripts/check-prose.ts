/**
 * Checks the wording of the documentation, comments, messages and titles of tests. `tsx scripts/check-prose.ts [paths]`
 *
 * Exits with 1 if there are errors. Warnings are advice.
 */
import { readdirSync, readFileSync, statSync } from "node:fs";
import { extname, join, resolve } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import {
  checkTexts,
  GUIDE_LIMITS,
  LIMITS,
  PAGE_LIMITS,
  type Finding,
  type ProseLimits,
} from "./prose/check-text.ts";
import { PROSE_EXTENSIONS, textsIn } from "./prose/texts.ts";

const PAGES = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "ARCHITECTURE.md"];
/** What is checked without arguments. */
export const EVERYTHING: readonly string[] = [
  ...PAGES,
  ".changeset",
  "docs",
  "skills",
  "ops",
  "src",
  "lua",
  "workers",
  "examples",
  "test",
];
/** Pages that list every detail have room for long cells. */
const REFERENCE = /(?:^|\/)docs\/(?:reference|decisions|guarantees)\b/;

export function checkProse(path: string, source: string): readonly Finding[] {
  return checkTexts(textsIn(path, source), limitsFor(path));
}

function limitsFor(path: string): ProseLimits {
  if (extname(path) !== ".md") return LIMITS;
  return REFERENCE.test(path) ? PAGE_LIMITS : GUIDE_LIMITS;
}

/** Pages that the build of the site writes from the sources, whose own texts are checked. */
const GENERATED = /(?:^|\/)docs\/reference\/(?:api|changelog\.md|http\.md|rules-file\.md)$/;

/** Files under test/ that hold no tests. */
const SUPPORT = /(?:^|\/)test\/.*(?<!\.test\.ts)$/;

/** Returns the files under a path that are checked. */
export function filesUnder(path: string): readonly string[] {
  if (!statSync(path).isDirectory()) return [path];
  return readdirSync(path, { withFileTypes: true })
    .filter(({ name }) => name !== "node_modules" && !name.startsWith("."))
    .map((entry) => join(path, entry.name))
    .filter((file) => !GENERATED.test(file))
    .flatMap(filesUnder)
    .filter((file) => PROSE_EXTENSIONS.includes(extname(file)) && !SUPPORT.test(file))
    .toSorted();
}

function main(paths: readonly string[]): void {
  const counts = { error: 0, warning: 0 };
  for (const path of paths.flatMap(filesUnder)) {
    for (const { line, severity, rule, message } of checkProse(path, readFileSync(path, "utf8"))) {
      counts[severity] += 1;
      console.log(`${path}:${line}: ${severity} ${rule}: ${message}`);
    }
  }
  console.log(`prose: ${counts.error} errors, ${counts.warning} warnings`);
  process.exitCode = counts.error === 0 ? 0 : 1;
}

if (process.argv[1] !== undefined && resolve(process.argv[1]) === fileURLToPath(import.meta.url)) {
  const paths = process.argv.slice(2);
  main(paths.length === 0 ? EVERYTHING : paths);
}
