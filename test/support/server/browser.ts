import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { delimiter, join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { chromium, type Browser } from "playwright-core";

const run = promisify(execFile);
const INSTALL = fileURLToPath(new URL("install-chromium.sh", import.meta.url));
const NAMES = ["chromium", "chromium-browser", "google-chrome-stable", "google-chrome"];

/** A real browser: `$CHROMIUM`, or the one on the PATH; on Debian, root installs it. */
export async function openBrowser(): Promise<Browser> {
  const executablePath = find() ?? (await install());
  // Root has no sandbox; in containers /dev/shm is small.
  const args = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"];
  return chromium.launch({ executablePath, args, timeout: 120_000 });
}

function find(): string | undefined {
  const { CHROMIUM: given, PATH = "" } = process.env;
  if (given !== undefined) return given;
  const folders = PATH.split(delimiter);
  const paths = NAMES.flatMap((name) => folders.map((folder) => join(folder, name)));
  return paths.find((path) => existsSync(path));
}

async function install(): Promise<string> {
  const isDebian = process.getuid?.() === 0 && existsSync("/usr/bin/apt-get");
  if (isDebian) await run("sh", [INSTALL], { timeout: 600_000 });
  const found = find();
  if (found !== undefined) return found;
  throw new Error("There is no Chromium: install it, or say in $CHROMIUM where it is.");
}
