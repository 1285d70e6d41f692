import { setTimeout as pause } from "node:timers/promises";
import Bottleneck from "bottleneck";
import { Redis } from "ioredis";
import type { Contender } from "./contender.ts";
import { keepCalling } from "./keep-calling.ts";

/** From this cap on, the cap is meant to be out of reach, so `minTime` is left out. */
const UNLIMITED = 1_000_000;

/**
 * Bottleneck in a cluster, with a shared `minTime`. Its documentation advises against reservoirs for an even rate. In
 * a cluster, reservoirs also refill at most every 5 s.
 */
export const bottleneck: Contender = contender("Bottleneck");
/** The same with 200 concurrent calls, each of which takes 20 ms. */
export const bottleneckAtOnce: Contender = contender("Bottleneck, calls at once", {
  options: { maxConcurrent: 200 },
  callMs: 20,
});
/** A group of limiters of 50/s, for 100 keys in turn. Each is chained to the shared limiter. */
export const bottleneckWithKeys: Contender = contender("Bottleneck, 100 keys", { keys: 100 });

interface Kind {
  readonly options?: Bottleneck.ConstructorOptions;
  readonly callMs?: number;
  readonly keys?: number;
}

function contender(title: string, { options, callMs = 0, keys = 0 }: Kind = {}): Contender {
  return {
    title,
    async connect({ redisUrl, cap, callers }) {
      const { hostname: host, port } = new URL(redisUrl);
      const clustered = {
        id: "bench",
        datastore: "ioredis",
        Redis,
        clientOptions: { host, port: Number(port) },
      } as const;
      const limiter = new Bottleneck({
        ...clustered,
        ...options,
        ...(cap < UNLIMITED && { minTime: 1_000 / cap }),
      });
      await limiter.ready();
      await limiter.schedule(async () => {});
      const ofKeys = { ...clustered, id: "bench-keys", minTime: 20 };
      const group = keys === 0 ? undefined : new Bottleneck.Group(ofKeys);
      group?.on("created", (ofKey) => ofKey.chain(limiter));

      let calls = 0;
      const nextLimiter = (): Bottleneck =>
        group === undefined ? limiter : group.key(`k${calls++ % keys}`);
      let enter = async (): Promise<void> => {};
      // The call occupies its place for a while, but its caller continues immediately.
      const call = (): Promise<void> =>
        new Promise((resolve, reject) => {
          const run = async (): Promise<void> => {
            await enter();
            if (callMs === 0) return;
            resolve();
            await pause(callMs);
          };
          nextLimiter().schedule(run).then(resolve, reject);
        });
      const calling = keepCalling({ callers, call });
      return {
        stop: calling.stop,
        start(onArrival) {
          // The call itself reports its arrival, because schedule() resolves one round trip after the call has
          // started.
          enter = async () => onArrival();
          calling.start(() => {});
        },
        async close() {
          await group?.disconnect(false);
          await limiter.disconnect(false);
        },
      };
    },
  };
}
