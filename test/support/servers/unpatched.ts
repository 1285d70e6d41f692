import { setImmediate as nextTurn } from "node:timers/promises";
import { Redis, type Cluster, type RedisOptions } from "ioredis";
import { inject, onTestFinished } from "vitest";
import { portOf, startProxy } from "../redis/for-one-test.ts";
import type { TcpProxy } from "./tcp-proxy.ts";

/** A client of ioredis without our patches, on the Redis of all tests; it is closed after the test. */
export function openUnpatched(options: RedisOptions = {}): Redis {
  const port = portOf({ url: inject("redisUrl") });
  return closeAfterTest(new Redis({ host: "127.0.0.1", port, ...options }));
}

/** The same client; it is closed after the test, and may meet errors. */
export function closeAfterTest<Client extends Redis | Cluster>(client: Client): Client {
  client.on("error", () => undefined);
  onTestFinished(() => client.disconnect());
  return client;
}

/** A proxy before the Redis of all tests. */
export function startSharedProxy(): Promise<TcpProxy> {
  return startProxy({ url: inject("redisUrl") });
}

/** Resolves with the next event of this name; Node's `once` fails when an error comes first. */
export function nextEvent(client: Redis | Cluster, event: string): Promise<void> {
  return new Promise((resolve) => void client.once(event, () => resolve()));
}

/** Whether a promise is settled, once all that is due now has happened. */
export async function isSettled(promise: Promise<unknown>): Promise<boolean> {
  let isDone = false;
  const settle = (): void => void (isDone = true);
  promise.then(settle, settle);
  for (let turn = 0; turn < 5; turn += 1) await nextTurn();
  return isDone;
}
