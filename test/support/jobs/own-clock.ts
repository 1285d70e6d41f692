import type { RedisClock } from "../../../src/stores/redis/queue/clock.ts";

/** In place of Redis' clock, that of this process. */
export const ownClock: RedisClock = {
  ready: () => undefined,
  earliestMs: () => Date.now(),
  latestMs: () => Date.now(),
};
