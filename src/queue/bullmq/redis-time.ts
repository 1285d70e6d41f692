/**
 * BullMQ counts times by the clock of the process that asks: of a producer a job's delay, of a worker its retries and
 * when it ended. Here its scripts get the time of Redis instead, so that all processes agree. Upstream the clocks are to be
 * synchronised (OptimalBits/bull#1288); checked with bullmq 6.7.0. `test/integration/upstream/bullmq-times.test.ts` holds
 * the list below to the scripts.
 */
import type { createRedisBackend } from "bullmq";
import type { RedisClock } from "../../core/stores/queue/store.ts";

/** Where each script that Sluice runs has the present time, among its keys and arguments. */
export const TIME_AT: Readonly<Record<string, number>> = {
  moveStalledJobsToWait: 9 + 2,
  moveToDelayed: 11 + 1,
  moveToFinished: 14 + 1,
  retryJob: 11 + 1,
};

/** A backend whose scripts get the time of Redis. New jobs have theirs from `add-jobs.ts`. */
export function onRedisTime(create: typeof createRedisBackend, clock: RedisClock): typeof create {
  return (...settings) => {
    const backend = create(...settings);
    const execute = backend.execCommand.bind(backend);
    backend.execCommand = (client, name, args) => {
      const at = TIME_AT[name];
      if (at === undefined) return execute(client, name, args) as unknown;
      const send = (): unknown => {
        // No sooner than Redis has it: what waits for so many ms waits for as long at least.
        args[at] = clock.latestMs();
        return execute(client, name, args);
      };
      const ready = clock.ready();
      return ready === undefined ? send() : ready.then(send);
    };
    return backend;
  };
}
