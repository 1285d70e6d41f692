import { createMemoryInsight } from "../../../src/stores/memory/memory-insight.ts";
import { createBuckets } from "../../../src/sluice/buckets.ts";
import { stepOf } from "../../../src/core/limits/registry.ts";
import { isLeased } from "../../../src/core/limits/registry.ts";
import { createArrivals } from "../../../src/throttle/waiting/waiting-call.ts";
import { RANKS } from "../../../src/core/input/options.ts";
import { keyLimitsOf } from "../../../src/core/policy/per-key.ts";
import { compilePolicy, type Policy } from "../../../src/core/policy/policy.ts";
import { textOfScopes } from "../../../src/core/key-path.ts";
import type { Store, SlotRequest } from "../../../src/core/store.ts";
import { slotsOf } from "../../support/draws/test-replica.ts";
import { keyOf, randomOf, type Mix, type MixCaller } from "./mix.ts";
import type { VirtualTime } from "./virtual-time.ts";

/** A call of a mix; times are ms since it began, and `wentMs` is Infinity if the call never went. */
export interface MixCall {
  readonly replica: number;
  readonly key: string | undefined;
  /** By the policy's limits, and then the key's. */
  readonly costs: readonly number[];
  readonly rank: number;
  readonly atMs: number;
  /** How much later it counts in line, since others of its process came together with it. */
  readonly apartMs: number;
  wentMs: number;
}

/** A slot that a call was granted. */
interface MixSlot extends Pick<MixCall, "key" | "costs"> {
  readonly slotUs: number;
}

export interface MixRun {
  readonly policy: Policy;
  readonly calls: readonly MixCall[];
  readonly slots: readonly MixSlot[];
  readonly forMs: number;
  /** How many requests for slots the store was sent. */
  readonly draws: number;
  readonly errors: readonly unknown[];
}

const NOBODY_LOGS = { warn: () => {}, error: () => {} };

/** Lets each replica of a mix call through buckets of its own, over one store that is a fraction of a ms away. */
export async function runMix(
  mix: Mix,
  { store, time, seed, forMs }: { store: Store; time: VirtualTime; seed: number; forMs: number },
): Promise<MixRun> {
  const random = randomOf(seed);
  let draws = 0;
  let slots: MixSlot[] = [];
  const far: Store = {
    ...store,
    async draw(request) {
      const sentAtMs = time.now();
      draws += 1;
      await time.sleep(0.15 + random() * 0.3);
      const drawn = await store.draw(request);
      for (const [index, slotRequest] of request.slotRequests.entries()) {
        const { costs } = slotRequest;
        const key = keyOfSlotRequest(slotRequest);
        for (const slotUs of slotsOf(drawn, index)) slots.push({ key, costs, slotUs });
      }
      await time.sleep(0.15 + random() * 0.3);
      return { ...drawn, sentAtMs };
    },
    async giveBack(request) {
      // Others may get them now.
      const returned = new Set(request.slotsUs);
      const isReturned = ({ key, slotUs }: MixSlot): boolean =>
        key === keyOfSlotRequest(request.slotRequest) && returned.has(slotUs);
      slots = slots.filter((slot) => !isReturned(slot));
      await store.giveBack(request);
    },
  };
  const policy = compilePolicy("mix", mix.policy);
  const bucket = `mix ${seed}`;
  const replicas = 1 + Math.max(...mix.callers.map(({ replica }) => replica));
  const buckets = Array.from({ length: replicas }, () =>
    createBuckets({
      store: far,
      insight: createMemoryInsight(),
      logger: NOBODY_LOGS,
      isRemote: false,
      isCluster: false,
    }).open("mix", bucket, mix.policy),
  );
  const startMs = time.now();
  const endMs = startMs + forMs;
  const calls: MixCall[] = [];
  const errors: unknown[] = [];
  const arrivals = buckets.map(() => createArrivals());

  async function callOn(caller: MixCaller): Promise<void> {
    const { replica, cost, priority, ...when } = caller;
    const keys = { key: caller.key, keys: caller.keys };
    const key = keyOf(caller);
    await time.sleep(when.startMs);
    const costs = costsOf(policy, key, cost);
    while (time.now() < endMs) {
      const atMs = time.now() - startMs;
      const rank = RANKS[priority];
      const apartMs = arrivals[replica]!(rank, atMs, sharedStepMs(policy, costs)) - atMs;
      const call: MixCall = { replica, key, costs, rank, atMs, apartMs, wentMs: Infinity };
      calls.push(call);
      try {
        await buckets[replica]!.draw({ ...keys, cost, priority });
      } catch (error) {
        if (time.now() < endMs) errors.push(error);
        return;
      }
      call.wentMs = time.now() - startMs;
      await time.sleep(when.thinkMs);
    }
  }

  const calling = Promise.all(mix.callers.map(callOn));
  await time.runUntil(endMs);
  const closing = Promise.all(buckets.map((each) => each.close()));
  await time.runUntil(endMs + 60_000);
  await Promise.all([calling, closing]);
  return { policy, calls, slots, forMs, draws, errors };
}

/** How long a call takes of the limits that all keys share. */
function sharedStepMs({ limits }: Policy, costs: readonly number[]): number {
  return stepOf(limits, costs) / 1_000;
}

/** The key of a slot request's calls, as far as it has limits. */
function keyOfSlotRequest({ scopes }: Pick<SlotRequest, "scopes">): string | undefined {
  return scopes.length === 0 ? undefined : textOfScopes(scopes.map(({ key }) => key));
}

function costsOf(policy: Policy, key: string | undefined, cost: MixCaller["cost"]): number[] {
  const byUnit: Readonly<Record<string, number>> =
    typeof cost === "number" ? { calls: cost } : cost;
  return [...policy.limits, ...keyLimitsOf(policy, key)].map((limit) =>
    isLeased(limit) ? 1 : (byUnit[limit.unit] ?? (limit.unit === "calls" ? 1 : 0)),
  );
}
