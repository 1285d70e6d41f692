import type {} from "vitest";
import type { TestProject } from "vitest/node";
import { startRedis } from "../redis/local-redis.ts";

declare module "vitest" {
  interface ProvidedContext {
    redisUrl: string;
  }
}

/** Gives a test project a Redis of its own; its tests get the address with `inject("redisUrl")`. */
export default async function globalRedis(project: TestProject): Promise<() => Promise<void>> {
  const redis = await startRedis();
  project.provide("redisUrl", redis.url);
  return () => redis.stop();
}
