import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { accessSync, constants } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { connect, createServer, type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import process from "node:process";
import { setTimeout as pause } from "node:timers/promises";

/** A Redis that the command has started, and may therefore stop. */
export interface PrivateRedis extends AsyncDisposable {
  readonly url: string;
  /** Kills the server. Its data is lost. */
  kill(): Promise<void>;
  /** Starts the server again on the same port. */
  start(): Promise<void>;
}

const HOST = "127.0.0.1";
const START_LIMIT_MS = 10_000;

/** Returns the path of a Redis server on the `PATH`, if there is one. */
export function findRedisServer(path: string = process.env["PATH"] ?? ""): string | undefined {
  const folders = path.split(delimiter).filter((folder) => folder !== "");
  const files = ["redis-server", "valkey-server"].flatMap((name) =>
    folders.map((folder) => join(folder, name)),
  );
  return files.find(isExecutable);
}

export async function startPrivateRedis(binary: string): Promise<PrivateRedis> {
  const dir = await mkdtemp(join(tmpdir(), "sluice-conform-"));
  const port = await freePort();
  let server: ChildProcess | undefined;

  async function start(): Promise<void> {
    const where = ["--bind", HOST, "--port", String(port), "--dir", dir];
    const args = [...where, "--save", "", "--appendonly", "no"];
    // Detached, so that Ctrl-C does not reach it before its keys are no longer needed.
    server = spawn(binary, args, { stdio: ["ignore", "pipe", "inherit"], detached: true });
    let log = "";
    server.stdout?.setEncoding("utf8").on("data", (text: string) => (log += text));
    const failed = once(server, "error").then(([error]) => Promise.reject(error as Error));
    await Promise.race([untilItListens(server, () => log), failed]);
  }

  async function untilItListens(child: ChildProcess, log: () => string): Promise<void> {
    const untilMs = performance.now() + START_LIMIT_MS;
    while (!(await isListening(port))) {
      if (child.exitCode !== null || performance.now() > untilMs) {
        throw new Error(`${binary} did not start on port ${port}. Its log: ${log().trim()}`);
      }
      await pause(10);
    }
  }

  async function kill(): Promise<void> {
    if (server === undefined || server.exitCode !== null || server.signalCode !== null) return;
    const exited = once(server, "exit");
    server.kill("SIGKILL");
    await exited;
  }

  const killAtExit = (): void => void server?.kill("SIGKILL");
  process.once("exit", killAtExit);
  await start();
  return {
    url: `redis://${HOST}:${port}`,
    start,
    kill,
    async [Symbol.asyncDispose]() {
      process.off("exit", killAtExit);
      await kill();
      await rm(dir, { recursive: true, force: true });
    },
  };
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, HOST);
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, "close");
  return port;
}

function isListening(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, HOST);
    const end = (isOpen: boolean): void => {
      socket.destroy();
      resolve(isOpen);
    };
    socket.once("connect", () => end(true)).once("error", () => end(false));
  });
}

function isExecutable(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
