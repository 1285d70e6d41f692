import { expect, it } from "vitest";
import { createMemoryStore } from "../../../src/stores/memory/memory-store.ts";
import { beginVirtualTime, type VirtualTime } from "../mixes/virtual-time.ts";
import {
  leaseMixOf,
  runLeases,
  type LeaseMix,
  type LeaseRun,
  type LeaseTenant,
} from "./lease-mix.ts";
import { seedsOf } from "./seeds.ts";

const COUNT = Number(process.env["LEASE_MIXES"] ?? 10);
const FIRST = Number(process.env["LEASE_MIXES_FROM"] ?? 1_000);
const FOR_MS = 8_000;
const DISTURBED_FOR_MS = 14_000;
const WINDOW_MS = 2_000;
const STEP_MS = 250;
const LEAST_USED = 0.95;
const STALL_MS = 2_000;
/** The requests that release a lease and draw it again. */
const PASS_ON_MS = 2;

/** The most leases that calls held at once. */
function mostAtOnce({ calls }: LeaseRun): number {
  const moments = calls.flatMap(({ startedMs, endedMs }) => [
    { ms: startedMs, by: 1 },
    { ms: endedMs, by: -1 },
  ]);
  let [now, most] = [0, 0];
  for (const { by } of moments.toSorted((a, b) => a.ms - b.ms || a.by - b.by)) {
    now += by;
    most = Math.max(most, now);
  }
  return most;
}

/** How many starts a second each tenant is due: by weight, up to what its own limit allows. */
function dueOf(mix: LeaseMix, active: readonly LeaseTenant[]): Map<string, number> {
  const most = (mix.mostPerTenant * 1_000) / mix.holdMs;
  const due = new Map<string, number>();
  let [open, left] = [active, mix.perSecond];
  for (;;) {
    const weights = open.reduce((sum, { weight }) => sum + weight, 0);
    const full = open.filter(({ weight }) => (left * weight) / weights > most);
    for (const { name, weight } of full.length === 0 ? open : full) {
      due.set(name, full.length === 0 ? (left * weight) / weights : most);
    }
    if (full.length === 0) return due;
    left -= full.length * most;
    open = open.filter((tenant) => !full.includes(tenant));
    if (open.length === 0) return due;
  }
}

const sumOf = (numbers: Iterable<number>): number =>
  [...numbers].reduce((sum, each) => sum + each, 0);

/** How much of what the limits allow was used. A lease counts as used while it is passed on to the next call. */
function usedOf(mix: LeaseMix, { calls, killed }: LeaseRun, fromMs: number, toMs: number): number {
  const started = calls.filter(({ startedMs }) => startedMs >= fromMs && startedMs < toMs);
  const active = mix.tenants.filter(
    (tenant) => tenant.startMs <= fromMs && !tenant.callers.every((replica) => killed.has(replica)),
  );
  const seconds = (toMs - fromMs) / 1_000;
  const ofRate = started.length / (seconds * sumOf(dueOf(mix, active).values()));
  const heldMs = sumOf(
    calls.map(({ startedMs, endedMs }) =>
      Math.max(0, Math.min(endedMs + PASS_ON_MS, toMs) - Math.max(startedMs, fromMs)),
    ),
  );
  const leases = Math.min(mix.limit, active.length * mix.mostPerTenant);
  return Math.max(ofRate, heldMs / ((toMs - fromMs) * leases));
}

/** Tenants that started fewer calls than their share in some two seconds. */
function shortfalls(mix: LeaseMix, { calls }: LeaseRun): string[] {
  const found: string[] = [];
  for (let fromMs = 500; fromMs + WINDOW_MS <= FOR_MS; fromMs += STEP_MS) {
    const toMs = fromMs + WINDOW_MS;
    if (mix.tenants.some(({ startMs }) => startMs > fromMs - 500 && startMs < toMs)) continue;
    const active = mix.tenants.filter(({ startMs }) => startMs < fromMs);
    const inWindow = calls.filter(({ startedMs }) => startedMs >= fromMs && startedMs < toMs);
    const due = dueOf(mix, active);
    const all = sumOf(due.values());
    // One call of each tenant, and what starts in one horizon.
    const slack = active.length + mix.perSecond * 0.1;
    for (const { name } of active) {
      const got = inWindow.filter(({ tenant }) => tenant === name).length;
      const share = (inWindow.length * due.get(name)!) / all;
      if (got < share - slack)
        found.push(`${name} got ${got} of ${share.toFixed(0)} from ${fromMs} ms`);
    }
  }
  return found.slice(0, 3);
}

/** The times in which a tenant started no call although its calls were pending and nothing held them back. */
function stalls(mix: LeaseMix, { calls, killed }: LeaseRun, forMs: number): string[] {
  const weights = sumOf(mix.tenants.map(({ weight }) => weight));
  return mix.tenants.flatMap(({ name, startMs, weight, callers }) => {
    if (callers.every((replica) => killed.has(replica))) return [];
    const starts = calls.filter(({ tenant }) => tenant === name).map(({ startedMs }) => startedMs);
    const turnMs = (2_000 * weights) / weight / mix.perSecond + 2 * mix.holdMs;
    let lastMs = startMs;
    return [...starts.filter((ms) => ms <= forMs), forMs].flatMap((ms) => {
      const [fromMs, toMs] = [lastMs, ms];
      lastMs = ms;
      const causes = mix.events.filter(({ atMs, untilMs }) => atMs < toMs && untilMs > fromMs);
      const causedMs = sumOf(causes.map((each) => each.untilMs - each.atMs));
      if (toMs - fromMs <= STALL_MS + turnMs + causedMs) return [];
      return [`${name} started no call from ${fromMs.toFixed(0)} to ${toMs.toFixed(0)} ms`];
    });
  });
}

async function faultsOf(seed: number, isDisturbed: boolean, time: VirtualTime): Promise<string[]> {
  const mix = leaseMixOf(seed, { isDisturbed });
  const forMs = isDisturbed ? DISTURBED_FOR_MS : FOR_MS;
  const store = createMemoryStore(() => Math.floor((performance.timeOrigin + time.now()) * 1_000));
  const run = await runLeases(mix, { store, time, seed, forMs });
  // All tenants have begun, and the last disturbance is over.
  const fromMs = isDisturbed ? forMs - 2_000 : 3_500;
  const used = usedOf(mix, run, fromMs, forMs);
  const most = mostAtOnce(run);
  return [
    ...(run.errors.length === 0 ? [] : [`errors: ${String(run.errors[0])}`]),
    ...(used >= LEAST_USED ? [] : [`used ${used.toFixed(3)}`]),
    ...(most <= mix.limit ? [] : [`${most} at once`]),
    ...(isDisturbed ? [] : shortfalls(mix, run)),
    ...stalls(mix, run, forMs),
  ].map((fault) => `${mix.name}: ${fault}`);
}

const KINDS = [
  {
    what: "tenants with pending calls start equally many by weight, and use the limit",
    isDisturbed: false,
  },
  {
    what: "no call stands still after kills, pauses, cancels and policy changes",
    isDisturbed: true,
  },
];

it.each(KINDS.flatMap((kind) => seedsOf(FIRST, COUNT, 5).map((seeds) => ({ ...kind, ...seeds }))))(
  "$what, in the mixes from $from to $to",
  async ({ isDisturbed, from, to }) => {
    const time = beginVirtualTime();
    const faults: string[] = [];
    try {
      for (let seed = from; seed < to; seed++) {
        faults.push(...(await faultsOf(seed, isDisturbed, time)));
      }
    } finally {
      time.end();
    }

    expect(faults).toEqual([]);
  },
);
