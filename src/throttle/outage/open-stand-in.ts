import { isLeased } from "../../core/limits/registry.ts";
import { NO_PLACE, type DrawRequest, type Granted, type Wish } from "../../core/store.ts";
import { ownUs, type Known, type StandIn } from "./stand-in.ts";

/** Lets every call pass at once, without any limit. */
export function createOpenStandIn({ nowUs = ownUs }: Pick<Known, "nowUs">): StandIn {
  const generation = nowUs();

  function pass(wish: Wish, atUs: number, most: number, { terms }: DrawRequest): Granted {
    const free = { resetUs: atUs, nextUs: atUs };
    const all = [...terms.limits, ...wish.keyLimits];
    return {
      slotsUs: Array.from({ length: Math.min(wish.wanted, most) }, () => atUs),
      run: undefined,
      notBeforeUs: 0,
      place: NO_PLACE,
      bindsAt: 0,
      standings: all.map(({ capacity }) => ({ remaining: capacity, ...free })),
    };
  }

  return {
    nowUs,
    async draw(request) {
      const atUs = nowUs();
      let leases = request.leases;
      const granted = request.wishes.map((wish) => {
        const all = [...request.terms.limits, ...wish.keyLimits];
        // A call that runs has a number of its own, and only so many were set aside.
        if (!all.some(isLeased)) return pass(wish, atUs, Infinity, request);
        const passed = pass(wish, atUs, leases, request);
        leases -= passed.slotsUs.length;
        return passed;
      });
      return {
        nowUs: atUs,
        generation,
        version: request.terms.version,
        newText: undefined,
        isOverride: false,
        alive: 1,
        granted,
        place: NO_PLACE,
        sentAtMs: performance.now(),
      };
    },
    giveBack: async () => undefined,
    settle: async () => undefined,
    renew: async () => [],
    release: async () => undefined,
    steer: async () => undefined,
  };
}
