import type {} from "vitest";
import type { TestProject } from "vitest/node";
import { listenInMemory } from "../../../src/stores/memory/redis/server/listener.ts";

/** Gives a test project the server in memory instead of a real Redis. Its tests do not know the difference. */
export default async function globalMemoryRedis(
  project: TestProject,
): Promise<() => Promise<void>> {
  const redis = await listenInMemory();
  project.provide("redisUrl", redis.url);
  return () => redis.close();
}
