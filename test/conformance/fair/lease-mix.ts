import type { Key } from "../../../src/core/key-path.ts";
import { concurrency } from "../../../src/core/policy/limit-makers.ts";
import type { PolicyOptions } from "../../../src/core/policy/policy.ts";
import type { Store } from "../../../src/core/store.ts";
import { createBuckets } from "../../../src/sluice/buckets.ts";
import { createMemoryInsight } from "../../../src/stores/memory/memory-insight.ts";
import { diceOf, randomOf } from "../mixes/mix.ts";
import type { VirtualTime } from "../mixes/virtual-time.ts";

/** Tenants whose calls hold leases of one concurrency limit. */
export interface LeaseMix {
  readonly name: string;
  readonly policy: PolicyOptions;
  /** The number of leases of the shared limit. */
  readonly limit: number;
  /** The number of leases that one tenant can hold at most. */
  readonly mostPerTenant: number;
  /** How many calls a second the shared limits allow. */
  readonly perSecond: number;
  /** How long the calls of a tenant hold their leases on average. */
  readonly holdMs: number;
  readonly replicas: number;
  readonly tenants: readonly LeaseTenant[];
  readonly events: readonly LeaseEvent[];
}

export interface LeaseTenant {
  readonly name: string;
  readonly weight: number;
  readonly startMs: number;
  /** The replica of each of its callers. */
  readonly callers: readonly number[];
  readonly areKeysPaths: boolean;
}

/** A disturbance, and until when it may delay calls. */
interface LeaseEvent {
  readonly atMs: number;
  readonly untilMs: number;
  readonly what: "kill" | "pause" | "cancel" | "raise";
  readonly replica: number;
}

/** A call that held a lease. Times are ms since the mix began; a call of a killed replica ended with it. */
interface LeaseCall {
  readonly tenant: string;
  readonly replica: number;
  readonly atMs: number;
  readonly startedMs: number;
  endedMs: number;
}

const LEASE_MS = 1_000;
/** A replica without a draw for this long no longer waits for a lease. */
const WAITER_GONE_MS = 1_500;
/** A killed replica frees its leases, and then its position in the line. */
const DEATH_MS: number = LEASE_MS + WAITER_GONE_MS + 500;

/** Tenants that always have pending calls in 1 to 4 replicas, with and without a rate, all by one seed. */
export function leaseMixOf(seed: number, { isDisturbed }: { isDisturbed: boolean }): LeaseMix {
  const random = randomOf(seed * 15_485_863 + 11);
  const { whole, pick } = diceOf(random);
  const replicas = whole(1, 4);
  const limit = pick([1, 2, 5, 10]);
  const holdMs = pick([50, 100, 200]);
  const byLeases = (limit * 1_000) / holdMs;
  // Either the leases decide when calls start, or the rate.
  const rate = pick([undefined, undefined, 0.5, 3]);
  const perSecond = Math.max(2, Math.round(byLeases * (rate ?? 1)));
  const hasWeights = random() < 0.4;
  const areKeysPaths = random() < 0.3;
  const count = whole(2, 6);
  const mostPerTenant =
    random() < 0.3 ? pick([1, Math.max(1, Math.ceil((2 * limit) / count))]) : limit;
  const isForKeysOnly = rate === 3 && mostPerTenant < limit && random() < 0.5;
  const tenants = Array.from({ length: count }, (_, index): LeaseTenant => {
    const places = Array.from({ length: whole(1, replicas) }, () => whole(0, replicas - 1));
    const each = limit + Math.ceil((perSecond * 0.2) / places.length) + 5;
    return {
      name: `tenant ${index}`,
      weight: hasWeights ? pick([1, 1, 2, 3]) : 1,
      startMs: index > 0 && random() < 0.3 ? whole(1, 3) * 1_000 : 0,
      callers: places.flatMap((replica) => Array.from({ length: each }, () => replica)),
      areKeysPaths,
    };
  });
  const events = isDisturbed
    ? Array.from({ length: whole(1, 3) }, (_, index): LeaseEvent => {
        const atMs = 2_500 * (index + 1) + whole(0, 500);
        const what = pick(["kill", "pause", "cancel", "raise"] as const);
        const lastsMs = what === "kill" ? DEATH_MS : what === "pause" ? whole(1, 8) * 100 : 0;
        return { atMs, untilMs: atMs + lastsMs, what, replica: whole(0, replicas - 1) };
      })
    : [];
  const policy: PolicyOptions = {
    ...(rate !== undefined && { rate: `${perSecond}/s` }),
    ...(!isForKeysOnly && { limits: [concurrency(limit, { leaseMs: LEASE_MS })] }),
    ...(mostPerTenant < limit && {
      perKey: { limits: [concurrency(mostPerTenant, { leaseMs: LEASE_MS })] },
    }),
    fair: { weights: Object.fromEntries(tenants.map(({ name, weight }) => [name, weight])) },
  };
  const own = mostPerTenant < limit ? `, ${mostPerTenant} each` : "";
  const paced = rate === undefined ? "" : `, ${perSecond}/s`;
  return {
    name: `${seed}: ${isForKeysOnly ? "no" : limit} leases of ${holdMs} ms${own}${paced}, ${replicas} replicas, ${count} tenants${events.map(({ what, atMs }) => `, ${what} at ${atMs}`).join("")}`,
    policy,
    limit: isForKeysOnly ? Infinity : limit,
    mostPerTenant,
    perSecond: isForKeysOnly ? perSecond : Math.min(perSecond, byLeases),
    holdMs,
    replicas,
    tenants,
    events,
  };
}

export interface LeaseRun {
  readonly calls: readonly LeaseCall[];
  readonly killed: ReadonlySet<number>;
  readonly errors: readonly unknown[];
}

const SILENT = { warn: () => {}, error: () => {} };

/** Lets the callers of a mix call in a loop, each through the bucket of its replica. */
export async function runLeases(
  mix: LeaseMix,
  { store, time, seed, forMs }: { store: Store; time: VirtualTime; seed: number; forMs: number },
): Promise<LeaseRun> {
  const random = randomOf(seed);
  const insight = createMemoryInsight();
  const startMs = time.now();
  const endMs = startMs + forMs;
  const calls: LeaseCall[] = [];
  const errors: unknown[] = [];
  const killed = new Set<number>();
  const pending = new Set<{ readonly replica: number; readonly controller: AbortController }>();
  const never = new Promise<never>(() => {});

  /** The store as one replica sees it; a killed replica neither sends requests nor gets replies. */
  function storeOf(replica: number): Store {
    const far = { ...store };
    for (const name of ["draw", "giveBack", "release", "renew"] as const) {
      const send = store[name] as (request: unknown) => Promise<unknown>;
      far[name] = (async (request: unknown) => {
        const sentAtMs = time.now();
        await time.sleep(0.15 + random() * 0.3);
        if (killed.has(replica)) return never;
        const reply = await send(request);
        await time.sleep(0.15 + random() * 0.3);
        if (killed.has(replica)) return never;
        return name === "draw" ? { ...(reply as object), sentAtMs } : reply;
      }) as never;
    }
    far.listen = (asker, wake) =>
      store.listen(asker, (...news) => {
        if (!killed.has(replica)) wake(...news);
      });
    return far;
  }

  const buckets = Array.from({ length: mix.replicas }, (_, replica) =>
    createBuckets({
      store: storeOf(replica),
      insight,
      logger: SILENT,
      isRemote: false,
      isCluster: false,
    }).open("mix", `leases ${seed}`, mix.policy),
  );

  async function callOn(tenant: LeaseTenant, replica: number, index: number): Promise<void> {
    const { name } = tenant;
    const key: Key = tenant.areKeysPaths ? [name, `part ${index % 3}`] : name;
    await time.sleep(tenant.startMs + index * 0.01);
    while (time.now() < endMs && !killed.has(replica)) {
      const controller = new AbortController();
      const entry = { replica, controller };
      const atMs = time.now() - startMs;
      pending.add(entry);
      try {
        const slot = await buckets[replica]!.draw({ key, signal: controller.signal });
        if (killed.has(replica)) return;
        const startedMs = time.now() - startMs;
        const call = { tenant: name, replica, atMs, startedMs, endedMs: Infinity };
        calls.push(call);
        await time.sleep(mix.holdMs * (0.5 + random()));
        if (killed.has(replica)) return;
        call.endedMs = time.now() - startMs;
        slot.release();
      } catch (error) {
        if (time.now() < endMs && !controller.signal.aborted) errors.push(error);
        if (!controller.signal.aborted) return;
      } finally {
        pending.delete(entry);
      }
    }
  }

  async function disturb({ what, atMs, untilMs, replica }: LeaseEvent): Promise<void> {
    await time.sleep(atMs);
    const living = buckets.findIndex((_, each) => !killed.has(each));
    if (what === "kill" && killed.size < mix.replicas - 1) {
      killed.add(replica);
      for (const call of calls) {
        if (call.replica === replica) call.endedMs = Math.min(call.endedMs, time.now() - startMs);
      }
    }
    if (what === "pause") await buckets[living]!.pause({ forMs: untilMs - atMs });
    if (what === "cancel") {
      for (const each of pending) if (random() < 0.9) each.controller.abort(new Error("cancelled"));
    }
    if (what === "raise") await buckets[living]!.configure({ ...mix.policy, fair: true });
  }

  const calling = Promise.all([
    ...mix.tenants.flatMap((tenant) =>
      tenant.callers.map((replica, index) => callOn(tenant, replica, index)),
    ),
    ...mix.events.map(disturb),
  ]);
  calling.catch((error: unknown) => errors.push(error));
  await time.runUntil(endMs);
  const closing = Promise.all(
    buckets.filter((_, replica) => !killed.has(replica)).map((each) => each.close()),
  );
  await time.runUntil(endMs + 10_000);
  await closing;
  return { calls, killed, errors };
}
