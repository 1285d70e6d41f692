import { Queue as StoredQueue } from "bullmq";
import { Redis } from "ioredis";
import { afterEach, describe, expect, inject, it } from "vitest";
import { parkFromProducer, type ParkParts } from "../../../src/queue/lanes/park.ts";
import type { Stored } from "../../../src/queue/bullmq/stored-job.ts";
import { PARK_MS } from "../../../src/queue/bullmq/stored-job.ts";
import { createRedisLanes } from "../../../src/stores/redis/queue/store.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const AN_HOUR_MS = 3_600_000;
const sluices = realSluices();
let endings: (() => Promise<unknown>)[] = [];

afterEach(async () => {
  for (const end of endings.toReversed()) await end();
  endings = [];
});

/** A queue of BullMQ's, and lanes that cannot be reached the first time. */
function openCutOff() {
  const prefix = sluices.prefix();
  const connection = new Redis(inject("redisUrl"), { maxRetriesPerRequest: null });
  const stored = new StoredQueue<number>("{jobs}", { prefix, connection });
  endings.push(
    () => connection.quit(),
    () => stored.close(),
  );
  const lanes = createRedisLanes(connection, prefix);
  const warnings: string[] = [];
  let tries = 0;
  const parts: ParkParts = {
    name: "jobs",
    logger: { warn: (_facts, text) => void warnings.push(text), error: () => {} },
    lanes: {
      ...lanes,
      async join(given) {
        tries += 1;
        if (tries === 1) throw new Error("the connection was lost");
        return lanes.join(given);
      },
    },
    weightsOf: () => undefined,
    open: async () => stored,
  };
  const joinLanes = (jobs: readonly Stored<unknown>[]): Promise<void> =>
    parkFromProducer(parts, jobs);
  const store = async (delay: number): Promise<Stored<unknown>> =>
    (await stored.add("key k", 1, { delay })) as Stored<unknown>;
  return { stored, lanes, warnings, joinLanes, store };
}

describe("jobs whose connection broke before they joined their lanes", () => {
  it("join them when Redis is back, and not only when they are due", async () => {
    const { lanes, warnings, joinLanes, store } = openCutOff();
    const job = await store(PARK_MS);

    await joinLanes([job]);

    await waitUntil(
      async () => (await lanes.counts({ queue: "jobs" })).waiting === 1,
      "the job is in its lane",
    );
    expect(warnings).toEqual([expect.stringContaining("the connection was lost")]);
  });

  it("are left alone if they had joined after all, and wait for a retry since", async () => {
    const { lanes, joinLanes, store } = openCutOff();
    const retried = await store(AN_HOUR_MS);
    const cutOff = await store(PARK_MS);

    await joinLanes([retried, cutOff]);

    await waitUntil(
      async () => (await lanes.counts({ queue: "jobs" })).waiting > 0,
      "a job is in its lane",
    );
    expect((await lanes.counts({ queue: "jobs" })).waiting).toBe(1);
  });
});
