import { execFile, spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer, type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterEach, beforeAll } from "vitest";
import { waitUntil } from "../async/wait-until.ts";

const run = promisify(execFile);
const INSTALL = fileURLToPath(new URL("install-proxies.sh", import.meta.url));

export interface Proxies {
  /** Real nginx with these servers; `{port}` in them becomes the port of the URL that is returned. */
  nginx(servers: string): Promise<string>;
  /** Real Caddy with this Caddyfile, without its global options. */
  caddy(sites: string): Promise<string>;
}

/** Reverse proxies of this test file; they end with their test. On Debian, root installs them. */
export function reverseProxies(): Proxies {
  const started: (() => Promise<void>)[] = [];
  beforeAll(async () => {
    if (process.getuid?.() === 0) await run("sh", [INSTALL], { timeout: 600_000 });
  }, 700_000);
  afterEach(async () => {
    await Promise.all(started.splice(0).map((end) => end()));
  });

  async function start(
    name: string,
    text: string,
    argsOf: (file: string, folder: string) => readonly string[],
  ): Promise<string> {
    const folder = await mkdtemp(join(tmpdir(), `sluice-${name}-`));
    const port = await freePort();
    const file = join(folder, `${name}.conf`);
    await writeFile(file, text.replaceAll("{port}", String(port)).replaceAll("{folder}", folder));
    const child = spawn(name, argsOf(file, folder), {
      stdio: ["ignore", "ignore", "pipe"],
      env: { ...process.env, HOME: folder, XDG_DATA_HOME: folder, XDG_CONFIG_HOME: folder },
    });
    let said = "";
    child.stderr.on("data", (chunk: Buffer) => (said += chunk.toString()));
    started.push(async () => {
      await ended(child);
      await rm(folder, { recursive: true });
    });
    const url = `http://127.0.0.1:${port}`;
    await waitUntil(async () => {
      if (child.exitCode !== null) throw new Error(`${name} has ended: ${said}`);
      return fetch(url).then(
        () => true,
        () => false,
      );
    }, `${name} listens`);
    return url;
  }

  return {
    nginx: (servers) =>
      start("nginx", nginxConfig(servers), (file, folder) => ["-c", file, "-p", folder]),
    caddy: (sites) =>
      start("caddy", `{\n  admin off\n  auto_https off\n}\n${sites}`, (file) => [
        "run",
        "--adapter",
        "caddyfile",
        "--config",
        file,
      ]),
  };
}

function nginxConfig(servers: string): string {
  const kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
  const folders = kinds.map((kind) => `${kind}_temp_path {folder}/${kind};`).join("\n");
  return `daemon off;
pid {folder}/pid;
error_log stderr;
events {}
http {
  access_log off;
  ${folders}
  ${servers}
}`;
}

async function freePort(): Promise<number> {
  const server = createServer();
  await once(server.listen(0, "127.0.0.1"), "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, "close");
  return port;
}

async function ended(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null) return;
  const exit = once(child, "exit");
  child.kill("SIGTERM");
  await exit;
}
