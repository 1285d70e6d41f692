import { defineConfig } from "vitest/config";

const source = {
  resolve: { conditions: ["@sluice/source"] },
  ssr: { resolve: { conditions: ["@sluice/source"] } },
};
const withoutRedisUrl = "test/support/setup/without-redis-url.ts";
const setupFiles = ["test/support/setup/seed.ts", withoutRedisUrl];
const globalRedis = "test/support/setup/global-redis.ts";
const globalBuild = "test/support/setup/global-build.ts";
/** By default, Vitest uses one worker for two cores. */
const maxWorkers = 2;
const withProcesses = {
  setupFiles: [withoutRedisUrl],
  globalSetup: [globalRedis, globalBuild],
  maxWorkers,
  sequence: { groupOrder: 1 },
};

/** Tests of queues and webhooks that also run on the server in memory: some of each area. */
const alsoInMemory = [
  "enqueue/deduplicated",
  "enqueue/flows",
  "enqueue/job-facts",
  "enqueue/kept-waiting",
  "jobs/queue-dead-letters",
  "jobs/queue-events",
  "jobs/queue-outcomes",
  "lanes/lane-commands",
  "lanes/order/ordered-keys",
  "outbox/outbox",
  "queue/queue-enqueue-refusals",
  "schedules/queue-recurring",
  "schedules/queue-redeclared",
  "steering/bulk",
  "steering/jobs",
  "steering/pauses",
  "webhooks/deliveries",
  "webhooks/sending",
  "workers/batches",
  "workers/drain",
  "workers/job-cancel",
  "workers/job-middleware",
].map((name) => `test/integration/${name}.test.ts`);

export default defineConfig({
  test: {
    projects: [
      // Generous everywhere: what hangs is to be found, not what a busy machine does slowly.
      {
        ...source,
        test: {
          name: "unit",
          include: ["test/unit/**/*.test.ts"],
          testTimeout: 60_000,
          // To load the sources anew for each file takes two fifths of the time of all.
          isolate: false,
          maxWorkers,
          setupFiles,
        },
      },
      {
        ...source,
        test: {
          name: "conformance",
          include: ["test/conformance/**/*.test.ts", "test/fuzz/**/*.test.ts"],
          testTimeout: 120_000,
          isolate: false,
          maxWorkers,
          setupFiles,
          globalSetup: [globalRedis],
        },
      },
      {
        ...source,
        test: {
          name: "integration",
          include: ["test/integration/**/*.test.ts"],
          testTimeout: 120_000,
          hookTimeout: 60_000,
          ...withProcesses,
        },
      },
      {
        ...source,
        test: {
          name: "memory",
          include: alsoInMemory,
          testTimeout: 120_000,
          hookTimeout: 60_000,
          ...withProcesses,
          globalSetup: ["test/support/setup/global-memory-redis.ts", globalBuild],
        },
      },
      {
        ...source,
        test: {
          name: "faults",
          include: ["test/faults/**/*.test.ts"],
          testTimeout: 180_000,
          hookTimeout: 60_000,
          ...withProcesses,
          // These tests wait for half of their time.
          maxWorkers: 3,
          sequence: { groupOrder: 2 },
        },
      },
      {
        ...source,
        test: {
          name: "types",
          include: [],
          typecheck: {
            enabled: true,
            only: true,
            include: ["test/types/**/*.test-d.ts"],
            tsconfig: "tsconfig.check.json",
          },
        },
      },
    ],
  },
});
