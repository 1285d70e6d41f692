import type { Store } from "../../../src/core/store.ts";
import { createMemoryStore } from "../../../src/stores/memory/memory-store.ts";
import { simulateLatency } from "../servers/simulate-latency.ts";

/** What a question and its reply take on their ways, in ms of fake time; it may change. */
export interface Way {
  thereMs: number;
  backMs: number;
}

/** A store in memory whose draws take their time on the way. */
export function createFarStore(way: Way): Store {
  const memory = createMemoryStore();
  return {
    ...memory,
    async draw(request) {
      const sentAtMs = performance.now();
      await simulateLatency(way.thereMs);
      const drawn = await memory.draw(request);
      await simulateLatency(way.backMs);
      return { ...drawn, sentAtMs };
    },
  };
}
