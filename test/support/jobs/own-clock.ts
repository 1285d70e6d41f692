import type { RedisClock } from "../../../src/core/queue/store.ts";

/** In place of Redis' clock, that of this process. */
export const ownClock: RedisClock = {
  ready: () => undefined,
  earliestMs: () => Date.now(),
  latestMs: () => Date.now(),
};
