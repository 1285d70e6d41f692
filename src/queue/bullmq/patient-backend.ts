import { setTimeout as pause } from "node:timers/promises";
import type { createRedisBackend } from "bullmq";
import { loadBullmq } from "./load-bullmq.cjs";

/** How long a worker waits before it asks Redis again that refused it, or that it lost. */
export const ASK_AGAIN_MS = 1_000;

/** A time at which any delayed job has been due for long, in ms since 1970. */
const LONG_PAST_MS = 1;

/**
 * How a worker fetches jobs: `moveToActive` of BullMQ's backend, patched in two ways.
 *
 * - After a refusal it pauses. BullMQ asks again at once and without end when Redis refuses to give a job (memory
 *   full, no right, a replica), and in a loop of microtasks if the call throws at once, so that the process does nothing
 *   else. Known of the older Bull (OptimalBits/bull#1304) and of early BullMQ (taskforcesh/bullmq#389); no open issue
 *   known; checked with bullmq 6.7.0 (`retryIfFailed` in worker.js pauses after errors of the connection only).
 * - With each job it says that a delayed one is due. BullMQ fetches as many jobs as it has places, one after another,
 *   before it starts the first (taskforcesh/bullmq#2157, #2242): far from Redis, locks would end meanwhile. The loop is
 *   left early if `blockUntil` is set, which the fourth part of the reply does. No upstream issue known; checked with
 *   bullmq 6.7.0 (`mainLoop` in worker.js).
 */
export const createPatientBackend: typeof createRedisBackend = (...settings) => {
  const backend = loadBullmq().createRedisBackend(...settings);
  const fetch = backend.moveToActive.bind(backend);
  backend.moveToActive = async (...asked) => {
    try {
      const [job, id, limitedForMs, nextDueMs] = await fetch(...asked);
      return [job, id, limitedForMs, job ? LONG_PAST_MS : nextDueMs];
    } catch (error) {
      await pause(ASK_AGAIN_MS, undefined, { ref: false });
      throw error;
    }
  };
  return backend;
};
