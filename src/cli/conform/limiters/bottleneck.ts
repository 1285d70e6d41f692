import { Redis } from "ioredis";
import { callerOf, lacksPool, type Limiter } from "./contract.ts";
import { importPeer } from "./import-peer.ts";

const PACKAGE = "bottleneck";

/**
 * Bottleneck in a cluster, with a shared `minTime`. Its documentation advises against reservoirs for an even rate.
 */
export const bottleneck: Limiter = {
  title: "Bottleneck",
  package: PACKAGE,
  missingFeature: lacksPool,
  async open(setup) {
    const { default: Bottleneck } = await importPeer<typeof import("bottleneck")>(PACKAGE);
    const client = new Redis(setup.redisUrl);
    const connection = new Bottleneck.IORedisConnection({ client });
    // An error of Redis reaches the caller whose call fails. Without a listener it would end the process.
    connection.on("error", () => undefined);
    return {
      doesCoolDown: false,
      call: callerOf(setup, (name, { calls, seconds }) => {
        const minTime = (seconds * 1_000) / calls;
        const limiter = new Bottleneck({ id: `${setup.prefix}-${name}`, connection, minTime });
        limiter.on("error", () => undefined);
        return (run) => limiter.schedule(run);
      }),
    };
  },
};
