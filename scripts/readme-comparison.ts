/**
 * Runs `sluice conform` against all peers, and writes its table into README.md. Needs a build, a redis-server on the
 * `PATH` and a quiet machine. Exits with 1 if Sluice missed a promise: the table shows that too. `npm run compare`
 */
import { execFileSync, spawnSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { resolve } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { PEERS } from "../src/cli/conform/limiters/limiters.ts";

const ROOT = resolve(import.meta.dirname, "..");
const README = resolve(ROOT, "README.md");
const BEGIN = "<!-- comparison: begin, written by npm run compare -->";
const END = "<!-- comparison: end -->";

/**
 * Replaces the comparison of a page.
 *
 * @throws Error when the page has no place for it.
 */
export function replaceComparison(page: string, table: string): string {
  const begin = page.indexOf(BEGIN);
  const end = page.indexOf(END, begin);
  if (begin === -1 || end === -1) throw new Error(`The page needs ${BEGIN} and ${END}.`);
  return `${page.slice(0, begin + BEGIN.length)}\n\n${table.trim()}\n\n${page.slice(end)}`;
}

function main(): void {
  // Without $REDIS_URL, the command starts a server, and also runs the scenario that kills it.
  const { REDIS_URL: _, ...env } = process.env;
  const args = ["dist/cli.js", "conform", "--against", PEERS.join(","), "--markdown"];
  const { status, stdout } = spawnSync(process.execPath, args, {
    cwd: ROOT,
    env,
    encoding: "utf8",
    stdio: ["ignore", "pipe", "inherit"],
  });
  process.exitCode = status ?? 1;
  // A run that failed or was interrupted prints no table.
  if (!stdout.includes("| scenarios kept |")) return;
  writeFileSync(README, replaceComparison(readFileSync(README, "utf8"), stdout));
  execFileSync("npx", ["oxfmt", "README.md"], { cwd: ROOT, stdio: "inherit" });
}

if (process.argv[1] === fileURLToPath(import.meta.url)) main();
