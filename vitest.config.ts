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
  // To load the sources anew for each file takes more than a second.
  isolate: false,
  setupFiles: [withoutRedisUrl],
  globalSetup: [globalRedis, globalBuild],
  // These tests wait for a third of their time. With four workers, processes are late for too many of their slots.
  maxWorkers: 3,
  /** A busy machine may make real processes late. The output and `.ci/run` show which tests ran twice. */
  retry: 1,
  // One group, so that no worker is idle while the last file of a project runs.
  sequence: { groupOrder: 1 },
};

/** Tests of queues and webhooks that also run on the server in memory. */
const alsoInMemory = [
  "enqueue/debounced",
  "enqueue/deduplicated",
  "enqueue/enqueue-middleware",
  "enqueue/flows",
  "enqueue/groups-over-queues",
  "enqueue/job-facts",
  "enqueue/kept-waiting",
  "enqueue/max-backlog",
  "enqueue/newest-update",
  "enqueue/own-ids",
  "jobs/dead-letter-groups",
  "jobs/queue-dead-letters",
  "jobs/queue-events",
  "jobs/queue-expiry",
  "jobs/queue-handler",
  "jobs/queue-outcomes",
  "jobs/queue-replay",
  "jobs/queue-retention",
  "lanes/lane-commands",
  "lanes/lane-jobs",
  "lanes/lanes",
  "lanes/order/ordered-keys",
  "lanes/queue-weights",
  "outbox/outbox",
  "queue/queue-awaited",
  "queue/queue-enqueue",
  "queue/queue-enqueue-refusals",
  "queue/queue-finished",
  "rules/queues",
  "schedules/queue-recurring",
  "schedules/queue-redeclared",
  "service/take",
  "steering/bulk",
  "steering/jobs",
  "steering/pauses",
  "steering/steer",
  "webhooks/deliveries",
  "webhooks/sending",
  "workers/batches",
  "workers/drain",
  "workers/job-cancel",
  "workers/job-middleware",
  "workers/middlewares",
  "workers/named-handlers",
  "workers/queue-pause",
].map((name) => `test/integration/${name}.test.ts`);

/** Generous everywhere: what hangs is to be found, not what a busy machine does slowly. */
const patient = { poll: { timeout: 60_000 } };

export default defineConfig({
  test: {
    projects: [
      {
        ...source,
        test: {
          name: "unit",
          expect: patient,
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
          expect: patient,
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
          expect: patient,
          include: ["test/integration/**/*.test.ts"],
          testTimeout: 300_000,
          hookTimeout: 180_000,
          ...withProcesses,
        },
      },
      {
        ...source,
        test: {
          name: "memory",
          expect: patient,
          include: alsoInMemory,
          testTimeout: 300_000,
          hookTimeout: 180_000,
          ...withProcesses,
          globalSetup: ["test/support/setup/global-memory-redis.ts", globalBuild],
        },
      },
      {
        ...source,
        test: {
          name: "faults",
          expect: patient,
          include: ["test/faults/**/*.test.ts"],
          testTimeout: 300_000,
          hookTimeout: 180_000,
          ...withProcesses,
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
