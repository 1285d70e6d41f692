import Bottleneck from "bottleneck";
import { Redis } from "ioredis";
import type { Contender } from "./contender.ts";
import { keepCalling } from "./keep-calling.ts";

/** A cap of at least this is meant to be out of reach, so `minTime` is left out. */
const UNLIMITED = 1_000_000;

/**
 * Clustered, with a shared `minTime`: its documentation advises against reservoirs
 * for an even rate, and in a cluster they refill every 5 s at most.
 */
export const bottleneck: Contender = {
  title: "Bottleneck",
  async connect({ redisUrl, cap, callers }) {
    const { hostname: host, port } = new URL(redisUrl);
    const limiter = new Bottleneck({
      id: "bench",
      datastore: "ioredis",
      Redis,
      clientOptions: { host, port: Number(port) },
      ...(cap < UNLIMITED && { minTime: 1_000 / cap }),
    });
    await limiter.ready();
    await limiter.schedule(async () => {});

    let enter = async (): Promise<void> => {};
    const calling = keepCalling({ callers, call: () => limiter.schedule(enter) });
    return {
      stop: calling.stop,
      start(onArrival) {
        // schedule() resolves one round trip after the call has started, so the call itself reports its arrival.
        enter = async () => onArrival();
        calling.start(() => {});
      },
      close: async () => limiter.disconnect(false),
    };
  },
};
