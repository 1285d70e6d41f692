import { once } from "node:events";
import { connect } from "node:net";
import { createInterface } from "node:readline";
import { onTestFinished } from "vitest";
import { createSluice, type Sluice, type SluiceOptions } from "sluice";
import { startRedis, type LocalRedisOptions } from "./local-redis.ts";
import type { LocalRedis } from "./private-redis.ts";
import { startTcpProxy, type TcpProxy } from "../servers/tcp-proxy.ts";

const SILENT = { warn: () => {}, error: () => {} };

/** A sluice that logs nothing unless it is told to. It is closed after the test, before what was started first. */
export function openSluice(options: SluiceOptions): Sluice {
  const sluice = createSluice({ logger: SILENT, ...options });
  onTestFinished(() => sluice.close());
  return sluice;
}

/** A Redis that the test may break. It ends after the test. */
export async function startOwnRedis(options?: LocalRedisOptions): Promise<LocalRedis> {
  const redis = await startRedis({ ...options, fresh: true });
  onTestFinished(() => redis.stop());
  return redis;
}

/** A proxy before a Redis. It ends after the test. */
export async function startProxy(redis: Pick<LocalRedis, "url">): Promise<TcpProxy> {
  const proxy = await startTcpProxy(portOf(redis));
  onTestFinished(() => proxy.close());
  return proxy;
}

export function portOf({ url }: Pick<LocalRedis, "url">): number {
  return Number(new URL(url).port);
}

/** A command that a Redis got, as MONITOR shows it: what is no plain text in it is escaped. */
interface HeardCommand {
  readonly atMs: number;
  readonly args: readonly string[];
  readonly isOfScript: boolean;
}

/**
 * Calls back with each command that a Redis gets, until the test ends. With a socket of its own: `monitor()` of ioredis
 * throws when another's command comes in one packet with the reply to MONITOR.
 */
export async function hearCommands(
  url: string,
  hear: (command: HeardCommand) => void,
): Promise<void> {
  const { hostname, port, username, password } = new URL(url);
  const socket = connect({ host: hostname, port: Number(port) });
  onTestFinished(() => void socket.destroy());
  const lines = createInterface({ input: socket });
  lines.on("line", (line) => {
    const [, at, source, command] = /^\+(\d+\.\d+) \[\d+ ([^\]]+)\] (.*)$/.exec(line) ?? [];
    if (command === undefined) return;
    const args = [...command.matchAll(/"((?:[^"\\]|\\.)*)"/g)].map(([, arg]) => arg!);
    hear({ atMs: Number(at) * 1_000, args, isOfScript: source === "lua" });
  });
  const asked = password === "" ? [] : [`AUTH ${username || "default"} ${password}`];
  for (const command of [...asked, "MONITOR"]) {
    socket.write(`${command}\r\n`);
    const [reply] = (await once(lines, "line")) as [string];
    if (reply !== "+OK") throw new Error(`Redis answered ${command.split(" ")[0]} with ${reply}`);
  }
}
