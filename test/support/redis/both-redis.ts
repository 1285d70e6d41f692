import { Redis } from "ioredis";
import { afterAll, beforeAll, inject } from "vitest";
import {
  listenInMemory,
  type MemoryListener,
} from "../../../src/stores/memory/redis/server/listener.ts";

/** A client of a real Redis and one of a server in memory, until the tests of the file end. */
export function bothRedis(): { readonly real: () => Redis; readonly inMemory: () => Redis } {
  let listener: MemoryListener;
  let clients: { readonly real: Redis; readonly inMemory: Redis };
  beforeAll(async () => {
    listener = await listenInMemory();
    clients = { real: new Redis(inject("redisUrl")), inMemory: new Redis(listener.url) };
  });
  afterAll(async () => {
    clients.real.disconnect();
    clients.inMemory.disconnect();
    await listener.close();
  });
  return { real: () => clients.real, inMemory: () => clients.inMemory };
}
