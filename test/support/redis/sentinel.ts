import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Redis, type RedisOptions } from "ioredis";
import { PatientConnector } from "../../../src/stores/redis/ioredis/sentinel.ts";
import { startRedis } from "./local-redis.ts";
import { REPLICATE_AT_ONCE, type LocalRedis } from "./private-redis.ts";
import { freePort } from "./redis-port.ts";
import { findRedisServer } from "./redis-server.ts";
import { waitUntil } from "../async/wait-until.ts";
import { isRunning, startWatchedServer, stopWatchedServer } from "../servers/watched-server.ts";

const HOST = "127.0.0.1";
const NAME = "sluice";
const SENTINELS = 3;
/** Two of them have to agree that the primary is gone. */
const QUORUM = 2;

export interface SentinelGroup {
  /** What a user gives to `createSluice`. */
  readonly redis: RedisOptions;
  /** The server that was the primary at first. */
  readonly first: LocalRedis;
  /** The process of the sentinel that clients ask first. */
  readonly firstSentinelPid: number;
  /** The port of the primary, as the second sentinel has it now. */
  primaryPort(): Promise<number>;
  /** A client of the primary as it is now; it is closed with the group. */
  connect(): Redis;
  stop(): Promise<void>;
}

export interface SentinelOptions {
  /** How long a server may be silent before a sentinel takes it for gone. Defaults to 1,000 ms. */
  readonly downAfterMs?: number;
  /** More arguments for the three servers. Defaults to none. */
  readonly args?: readonly string[];
}

/** A primary, two replicas of it, and three sentinels who know of each other. */
export async function startSentinels(options: SentinelOptions = {}): Promise<SentinelGroup> {
  const { downAfterMs = 1_000, args = [] } = options;
  const stops: (() => Promise<void> | void)[] = [];
  async function stop(): Promise<void> {
    for (const each of stops.toReversed()) await each();
  }

  try {
    const given = [...REPLICATE_AT_ONCE, ...args];
    const first = await startRedis({ fresh: true, args: given });
    stops.push(() => first.stop());
    const port = new URL(first.url).port;
    for (let replica = 0; replica < 2; replica++) {
      const replicating = ["--replicaof", HOST, port, ...given];
      const started = await startRedis({ fresh: true, args: replicating });
      stops.push(() => started.stop());
    }
    const ports: number[] = [];
    const pids: number[] = [];
    for (let sentinel = 0; sentinel < SENTINELS; sentinel++) {
      const started = await startSentinel(Number(port), downAfterMs);
      stops.push(() => started.stop());
      ports.push(started.port);
      pids.push(started.pid);
    }
    const asked = new Redis({ host: HOST, port: ports[1]! });
    stops.push(() => asked.disconnect());
    for (const each of ports) await untilComplete(each);

    const redis = { sentinels: ports.map((each) => ({ host: HOST, port: each })), name: NAME };
    return {
      redis,
      first,
      firstSentinelPid: pids[0]!,
      async primaryPort() {
        const found = await asked.call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME);
        return Number((found as string[])[1]);
      },
      connect() {
        const client = new Redis({
          ...redis,
          failoverDetector: true,
          Connector: PatientConnector,
        });
        client.on("error", () => undefined);
        stops.push(() => client.disconnect());
        return client;
      },
      stop,
    };
  } catch (error) {
    await stop();
    throw error;
  }
}

async function startSentinel(
  primary: number,
  downAfterMs: number,
): Promise<{ port: number; pid: number; stop(): Promise<void> }> {
  const binary = await findRedisServer();
  if (binary === undefined) throw new Error("sentinels need redis-server on the PATH");
  const dir = await mkdtemp(join(tmpdir(), "sluice-sentinel-"));
  const port = await freePort(HOST);
  const config = join(dir, "sentinel.conf");
  const lines = [
    `port ${port}`,
    `bind ${HOST}`,
    `dir ${dir}`,
    `sentinel monitor ${NAME} ${HOST} ${primary} ${QUORUM}`,
    `sentinel down-after-milliseconds ${NAME} ${downAfterMs}`,
    `sentinel failover-timeout ${NAME} 5000`,
    `sentinel parallel-syncs ${NAME} 2`,
  ];
  await writeFile(config, lines.join("\n"));
  const logFile = join(dir, "sentinel.log");
  const command = [binary, config, "--sentinel"];
  const server = startWatchedServer({ command, logFile, dirToRemove: dir });
  const stop = async (): Promise<void> => {
    await stopWatchedServer(server);
    await rm(dir, { recursive: true, force: true });
  };
  await waitUntil(async () => {
    if (!isRunning(server)) throw new Error(await readFile(logFile, "utf8"));
    return sentinelAnswers(port, server.pid!);
  }, "a sentinel answers");
  return { port, pid: server.pid!, stop };
}

/** A sentinel knows no QUIT, by which servers are asked. */
async function sentinelAnswers(port: number, pid: number): Promise<boolean> {
  const client = new Redis({ host: HOST, port, lazyConnect: true, retryStrategy: () => null });
  client.on("error", () => undefined);
  try {
    return (await client.info("server")).includes(`process_id:${pid}\r`);
  } catch {
    return false;
  } finally {
    client.disconnect();
  }
}

/** Until a sentinel knows all the others, and both replicas. */
async function untilComplete(port: number): Promise<void> {
  const client = new Redis({ host: HOST, port });
  await waitUntil(async () => {
    const info = await client.info("sentinel");
    return info.includes(`slaves=2,sentinels=${SENTINELS}`) && info.includes("status=ok");
  }, "the sentinels know each other");
  client.disconnect();
}
