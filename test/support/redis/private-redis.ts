import type { ChildProcess } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { freePort, redisAnswers } from "./redis-port.ts";
import { isRunning, startWatchedServer, stopWatchedServer } from "../servers/watched-server.ts";

/** A Redis that tests, the demo and the benchmark may use until they stop it. */
export interface LocalRedis {
  readonly url: string;
  /** How it was come by, for a log line: `$REDIS_URL`, `/usr/bin/redis-server`, `container redis:8-alpine`. */
  readonly origin: string;
  /** The server's process, where it is a private one: faults are made by signalling it. */
  readonly pid?: number;
  /** Ends a server that was started for this call, and leaves one that was there before alone. */
  stop(): Promise<void>;
}

export interface PrivateRedisOptions {
  /** More arguments for the server; they come last, so they can switch what is preset. Defaults to none. */
  readonly args?: readonly string[];
  /** Where it listens, on 127.0.0.1; for a restart in the same place. Defaults to a free one. */
  readonly port?: number;
  /** Its working folder, which must exist and outlives it. Defaults to a temporary one that goes with it. */
  readonly dir?: string;
}

export const SERVER_ARGS: readonly string[] = [
  "--save",
  "",
  "--appendonly",
  "no",
  "--maxmemory-policy",
  "noeviction",
  "--daemonize",
  "no",
];

/** For a primary: it would wait five seconds for more replicas than the one that asks for its data. */
export const REPLICATE_AT_ONCE: readonly string[] = ["--repl-diskless-sync-delay", "0"];

const HOST = "127.0.0.1";
const START_LIMIT_MS = 10_000;
const PORT_ATTEMPTS = 5;

/** Starts a server that ends with this process. A port of the caller's choice is tried once, a free one anew when it is snatched. */
export async function startPrivateRedis(
  binary: string,
  options: PrivateRedisOptions = {},
): Promise<LocalRedis> {
  const attempts = options.port === undefined ? PORT_ATTEMPTS : 1;
  for (let attempt = 1; ; attempt++) {
    const port = options.port ?? (await freePort(HOST));
    try {
      return await startOn(port, binary, options);
    } catch (error) {
      if (attempt >= attempts || !isPortTaken(error)) throw error;
    }
  }
}

async function startOn(
  port: number,
  binary: string,
  options: PrivateRedisOptions,
): Promise<LocalRedis> {
  const dir = options.dir ?? (await mkdtemp(join(tmpdir(), "sluice-redis-")));
  const dirToRemove = options.dir === undefined ? dir : undefined;
  const logFile = join(dir, "redis.log");
  const address = ["--bind", HOST, "--port", String(port), "--dir", dir];
  const server = startWatchedServer({
    command: [binary, ...address, ...SERVER_ARGS, ...(options.args ?? [])],
    logFile,
    dirToRemove,
  });
  const stop = async (): Promise<void> => {
    await stopWatchedServer(server);
    if (dirToRemove) await rm(dirToRemove, { recursive: true, force: true });
  };

  try {
    const pid = await waitUntilReady(server, port);
    return { url: `redis://${HOST}:${port}`, origin: binary, pid, stop };
  } catch (cause) {
    const log = await readFile(logFile, "utf8").catch(() => "");
    await stop();
    throw new Error(`${binary} did not start on port ${port}:\n${log}`, { cause });
  }
}

async function waitUntilReady(server: ChildProcess, port: number): Promise<number> {
  const deadline = performance.now() + START_LIMIT_MS;
  while (server.pid !== undefined && isRunning(server) && performance.now() < deadline) {
    if (await redisAnswers(HOST, port, server.pid)) return server.pid;
    await delay(10);
  }
  throw new Error(isRunning(server) ? `no answer in ${START_LIMIT_MS} ms` : "it has ended");
}

function isPortTaken(error: unknown): boolean {
  return error instanceof Error && /address already in use/i.test(error.message);
}
