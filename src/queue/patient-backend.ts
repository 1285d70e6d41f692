import { setTimeout as pause } from "node:timers/promises";
import type { createRedisBackend } from "bullmq";
import { loadBullmq } from "./load-bullmq.cjs";

/** When a worker asks again that was refused, or lost its connection: with 15 s, as BullMQ has it, locks end meanwhile. */
export const ASK_AGAIN_MS = 1_000;

/** A time at which a delayed job has long been due. */
const LONG_PAST_MS = 1;

/**
 * How a worker asks Redis. BullMQ asks for the next job again as soon as Redis has refused to give it one,
 * without end; and where it could not begin at all, without ever letting the process do anything else. And it
 * asks for as many jobs as it has places, one after another, before it starts the first, unless it takes a delayed
 * job to be due: far from Redis, locks would end meanwhile.
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
