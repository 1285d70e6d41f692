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
