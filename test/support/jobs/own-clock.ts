import type { RedisClock } from "../../../src/core/stores/queue/store.ts";

/** In place of Redis' clock, that of this process. */
export const ownClock: RedisClock = {
  ready: () => undefined,
  earliestMs: () => Date.now(),
  latestMs: () => Date.now(),
};
