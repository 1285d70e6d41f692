import { callerOf, lacksPool, type Limiter } from "./contract.ts";
import { importPeer } from "./import-peer.ts";

const PACKAGE = "p-throttle";

/** It limits the calls of one process, and does not use Redis. */
export const pThrottle: Limiter = {
  title: "p-throttle",
  package: PACKAGE,
  missingFeature: lacksPool,
  async open(setup) {
    const { default: throttleBy } = await importPeer<typeof import("p-throttle")>(PACKAGE);
    return {
      doesCoolDown: false,
      call: callerOf(setup, (_name, { calls, seconds }) => {
        const throttle = throttleBy({ limit: calls, interval: seconds * 1_000 });
        const limited = throttle((run: () => Promise<unknown>) => run());
        return <Result>(run: () => Promise<Result>) => limited(run) as Promise<Result>;
      }),
    };
  },
};
