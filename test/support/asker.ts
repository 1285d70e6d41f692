import { HORIZON_US } from "../../src/core/policy.ts";
import type { LeakyBucket } from "../../src/core/limits/leaky-bucket.ts";
import { drainUs } from "../../src/core/limits/leaky-bucket.ts";
import type { DrawReply, Store } from "../../src/core/store.ts";

/** Draws from a store as a pacer does: it remembers what it was told last. */
export interface Asker {
  readonly last: DrawReply | undefined;
  draw(wanted: number, cost?: number): Promise<DrawReply>;
  giveBack(slotsUs: readonly number[], cost?: number): Promise<void>;
}

export function createAsker(
  store: Store,
  { bucket, name, policy }: { bucket: string; name: string; policy: LeakyBucket },
): Asker {
  let known = { policy, generation: 0 };
  let last: DrawReply | undefined;

  return {
    get last() {
      return last;
    },
    async draw(wanted, cost = 1) {
      const { sentAtMs: _sentAtMs, ...reply } = await store.draw({
        bucket,
        asker: name,
        wanted,
        cost,
        horizonUs: HORIZON_US,
        ...known,
        drewUs: last?.nowUs ?? 0,
        turnUs: last?.turnUs ?? 0,
      });
      last = reply;
      known = { policy: reply.policy, generation: reply.generation };
      return reply;
    },
    giveBack: (slotsUs, cost = 1) =>
      store.giveBack({ bucket, asker: name, cost, generation: known.generation, slotsUs }),
  };
}

/** All slots of a reply, in µs on the bucket's clock. */
export function slotsOf(reply: DrawReply, cost = 1): number[] {
  const { nowUs, policy, recycledUs, granted, excess } = reply;
  const step = cost * policy.periodUs;
  const run = Array.from({ length: granted }, (_, i) => nowUs + drainUs(policy, excess + i * step));
  return [...recycledUs, ...run];
}
