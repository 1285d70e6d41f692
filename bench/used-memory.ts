import type { Redis } from "ioredis";

/** Bytes that the server uses for its data. */
export async function usedMemory(redis: Redis): Promise<number> {
  return Number(/^used_memory:(\d+)/m.exec(await redis.info("memory"))![1]);
}
