import { setTimeout as pause } from "node:timers/promises";
import { createRedisBackend } from "bullmq";

/** When a worker asks again that was refused, or lost its connection: with 15 s, as BullMQ has it, locks end meanwhile. */
export const ASK_AGAIN_MS = 1_000;

/**
 * How a worker asks Redis. BullMQ asks for the next job again as soon as Redis has refused to give it one,
 * without end; and where it could not begin at all, without ever letting the process do anything else.
 */
export const createPatientBackend: typeof createRedisBackend = (...settings) => {
  const backend = createRedisBackend(...settings);
  const fetch = backend.moveToActive.bind(backend);
  backend.moveToActive = async (...asked) => {
    try {
      return await fetch(...asked);
    } catch (error) {
      await pause(ASK_AGAIN_MS, undefined, { ref: false });
      throw error;
    }
  };
  return backend;
};
