import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { delimiter, join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const run = promisify(execFile);
const INSTALLER = fileURLToPath(new URL("install-promtool.sh", import.meta.url));

/** Prometheus' own tool on the PATH; on Debian, root installs it. */
export async function findPromtool(): Promise<string> {
  const found = find();
  if (found !== undefined) return found;
  const isDebian = process.getuid?.() === 0 && existsSync("/usr/bin/apt-get");
  if (isDebian) await run("sh", [INSTALLER], { maxBuffer: 16 * 1024 * 1024, timeout: 600_000 });
  const installed = find();
  if (installed !== undefined) return installed;
  throw new Error("There is no promtool: install Prometheus, and put promtool on the PATH.");
}

function find(): string | undefined {
  const folders = (process.env["PATH"] ?? "").split(delimiter).filter(Boolean);
  return folders.map((folder) => join(folder, "promtool")).find((path) => existsSync(path));
}
