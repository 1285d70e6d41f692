import { execFile } from "node:child_process";
import { access, constants } from "node:fs/promises";
import { delimiter, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const run = promisify(execFile);
const BINARIES = ["redis-server", "valkey-server"];
const APT_GET = "/usr/bin/apt-get";
const INSTALLER = fileURLToPath(new URL("./install-redis.sh", import.meta.url));

/** The path of a Redis server program on the PATH, or nothing. */
export async function findRedisServer(): Promise<string | undefined> {
  const folders = (process.env["PATH"] ?? "").split(delimiter).filter(Boolean);
  for (const binary of BINARIES) {
    for (const folder of folders) {
      const candidate = join(folder, binary);
      if (await isExecutable(candidate)) return candidate;
    }
  }
  return undefined;
}

/** Whether this is root on a Debian or one of its kin. */
export async function canInstallRedis(): Promise<boolean> {
  return process.getuid?.() === 0 && (await isExecutable(APT_GET));
}

/** Installs the distribution's package and gives the path of its server; safe when two processes do so at once. */
export async function installRedis(): Promise<string> {
  process.stderr.write("No Redis found; installing redis-server with apt-get.\n");
  try {
    await run("sh", [INSTALLER], { maxBuffer: 16 * 1024 * 1024 });
  } catch (cause) {
    throw new Error(
      "apt-get could not install redis-server; install it by hand or set $REDIS_URL.",
      { cause },
    );
  }

  const binary = await findRedisServer();
  if (!binary) throw new Error("redis-server is installed but not on the PATH; add its folder.");
  return binary;
}

async function isExecutable(path: string): Promise<boolean> {
  return access(path, constants.X_OK).then(
    () => true,
    () => false,
  );
}
