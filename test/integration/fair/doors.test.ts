import { describe, expect, inject, it } from "vitest";
import { concurrency, type BucketOptions } from "sluice";
import { waitUntil } from "../../support/async/wait-until.ts";
import { children } from "../../support/children/child.ts";
import {
  DOORS,
  fairCalls,
  startFairCallers,
  unitsBefore,
  unitsOf,
  windowsOf,
  type Door,
  type FairCall,
  type FairCallers,
} from "../../support/draws/fair-callers.ts";
import { sharesOf } from "../../support/draws/shares.ts";
import { useDownstream } from "../../support/servers/use-downstream.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const RATE = 100;
/** What the rate allows in 100 ms. */
const HORIZON = RATE / 10;
const LARGEST = 4;
const WINDOW_MS = 2_000;
const LEAST_USED = 0.98;
/** A process on a busy machine makes its calls up to this many ms late, so arrivals move to another window. */
const LATE_MS = 150;
const LATE = (RATE * LATE_MS) / 1_000;
/** How many calls a tenant makes at once through each way, in a loop. */
const LOOPS = 20;

const processes = children();
const sluices = realSluices();

function start(url: string, policy: BucketOptions): Promise<FairCallers> {
  const redis = inject("redisUrl");
  return startFairCallers(processes, { redis, prefix: sluices.prefix(), url, policy });
}

/** Lets a tenant make calls in a loop. */
function keepCalling(callers: FairCallers, key: string, ...doors: readonly Door[]): void {
  for (const door of doors) callers.order(door, { key, cost: 1, count: LOOPS, isLoop: true });
}

interface Tenant {
  readonly name: string;
  readonly weight: number;
  readonly floor: number;
}

const equal = (...names: readonly string[]): Tenant[] =>
  names.map((name) => ({ name, weight: 1, floor: 0 }));

interface Span {
  readonly fromMs: number;
  readonly toMs: number;
}

/** Each tenant that got less than its share of what all used in some two seconds. */
function shortfalls(calls: readonly FairCall[], span: Span, tenants: readonly Tenant[]): string[] {
  const slack = tenants.length * LARGEST + HORIZON + LATE;
  return windowsOf(calls, { ...span, windowMs: WINDOW_MS, stepMs: 250 }).flatMap(
    (window, index) => {
      const used = tenants.reduce((sum, { name }) => sum + unitsOf(window, name), 0);
      const shares = sharesOf((used * 1_000) / WINDOW_MS, tenants);
      return tenants.flatMap(({ name }) => {
        const [got, due] = [unitsOf(window, name), (shares.get(name)! * WINDOW_MS) / 1_000];
        const isEnough = got >= due - slack;
        return isEnough ? [] : [`${name} got ${got} of ${due.toFixed(0)} in window ${index}`];
      });
    },
  );
}

/**
 * The part of the rate that calls used in the best second. While the machine runs other tests, processes come too
 * late for some slots, so tests wait for such a second. The conformance suite proves the same without a clock.
 */
function mostUsed(calls: readonly FairCall[], span: Span): number {
  const windows = windowsOf(calls, { ...span, windowMs: 1_000, stepMs: 50 });
  return Math.max(...windows.map((window) => unitsOf(window))) / RATE;
}

describe("tenants whose calls come through a function, a queue, HTTP and a proxy", () => {
  const downstream = useDownstream();
  const calls = (): FairCall[] => fairCalls(downstream.arrivals);
  const callsOf = (tenant: string): FairCall[] => calls().filter((call) => call.tenant === tenant);

  async function untilAllAreServed(...names: readonly string[]): Promise<number> {
    const areServed = () => names.every((name) => callsOf(name).length >= 10);
    await waitUntil(areServed, `${names.join(", ")} are served`);
    return Date.now();
  }

  async function untilUsed(units: number): Promise<number> {
    const before = unitsOf(calls());
    await waitUntil(() => unitsOf(calls()) >= before + units, `${units} units are used`);
    return Date.now();
  }

  /** Waits for a second in which calls use the rate in full. */
  async function untilFull(): Promise<void> {
    const latest = () => ({ fromMs: Date.now() - 2_000, toMs: Date.now() });
    await waitUntil(() => mostUsed(calls(), latest()) >= LEAST_USED, "the rate is used in full");
  }

  it("share the rate evenly, and a light tenant passes a backlog of 5,000 calls", async () => {
    const callers = await start(downstream.url, {
      rate: `${RATE}/s`,
      burst: LARGEST,
      fair: true,
    });
    callers.order("inline", { key: "flood", cost: 1, count: 4_600 });
    callers.order("http", { key: "flood", cost: 1, count: 200 });
    callers.order("forward", { key: "flood", cost: 1, count: 200 });
    callers.order("jobs", { key: "bolt", cost: LARGEST, count: 500 });
    keepCalling(callers, "acme", "inline", "http", "forward");
    const fromMs = await untilAllAreServed("flood", "acme", "bolt");

    for (const [index, door] of [...DOORS, ...DOORS].entries()) {
      callers.order(door, { key: `light ${index}`, cost: 1, count: 1 });
      await waitUntil(
        () => callsOf(`light ${index}`).length === 1,
        `a call through ${door} arrives`,
      );
      await untilUsed(RATE / 2);
    }
    const idleUntilMs = Date.now();
    keepCalling(callers, "idle", "inline", "http");
    await untilAllAreServed("idle");
    const toMs = await untilUsed(3 * RATE);

    const all = calls();
    const tenants = ["flood", "acme", "bolt"];
    const alone = { fromMs, toMs: idleUntilMs };
    const waits = all
      .filter(({ tenant }) => tenant.startsWith("light"))
      .map((call) => unitsBefore(all, call));
    const first = windowsOf(callsOf("idle"), {
      fromMs: idleUntilMs,
      toMs,
      windowMs: WINDOW_MS,
      stepMs: toMs,
    })[0]!;
    expect(callers.failures).toEqual([]);
    expect(shortfalls(all, alone, equal(...tenants))).toEqual([]);
    expect(shortfalls(all, { fromMs: idleUntilMs + 300, toMs }, equal(...tenants, "idle"))).toEqual(
      [],
    );
    expect(waits).toHaveLength(2 * DOORS.length);
    expect(Math.max(...waits)).toBeLessThanOrEqual(tenants.length * LARGEST + 2 * HORIZON + LATE);
    expect(unitsOf(first)).toBeLessThanOrEqual((RATE * 2) / 4 + 4 * LARGEST + HORIZON + LATE);
    await untilFull();
  });

  it("share the rate by their weights, and one gets its floor", async () => {
    const fair = { weights: { gold: 3 }, floors: { small: "20/s" } } as const;
    const callers = await start(downstream.url, { rate: `${RATE}/s`, burst: LARGEST, fair });
    keepCalling(callers, "gold", "inline", "http", "forward");
    callers.order("inline", { key: "plain", cost: 1, count: 2_000 });
    callers.order("jobs", { key: "bulk", cost: LARGEST, count: 300 });
    keepCalling(callers, "small", "http", "forward");
    const fromMs = await untilAllAreServed("gold", "plain", "bulk", "small");
    const toMs = await untilUsed(6 * RATE);

    const tenants: Tenant[] = [
      { name: "gold", weight: 3, floor: 0 },
      { name: "small", weight: 1, floor: 20 },
      ...equal("plain", "bulk"),
    ];
    const all = calls();
    expect(callers.failures).toEqual([]);
    expect(shortfalls(all, { fromMs: fromMs + 300, toMs }, tenants)).toEqual([]);
    await untilFull();
  });
});

describe("tenants that share a concurrency limit", () => {
  const LEASES = 5;
  const LATENCY_MS = 50;
  const downstream = useDownstream({ latencyMs: LATENCY_MS });

  it("start equally many calls, and never more at once than the limit", async () => {
    const callers = await start(downstream.url, { limits: [concurrency(LEASES)], fair: true });
    callers.order("inline", { key: "flood", cost: 1, count: 2_000 });
    callers.order("jobs", { key: "bulk", cost: 1, count: 500 });
    keepCalling(callers, "acme", "http");
    keepCalling(callers, "bolt", "forward");
    const tenants = ["flood", "bulk", "acme", "bolt"];
    const hasAll = () => {
      const seen = fairCalls(downstream.arrivals);
      return tenants.every((name) => unitsOf(seen, name) >= 10);
    };
    await waitUntil(hasAll, "all are served");
    const [fromMs, before] = [Date.now(), downstream.arrivals.length];
    await waitUntil(() => downstream.arrivals.length >= before + 400, "400 more calls have come");
    const toMs = Date.now();

    const windows = windowsOf(fairCalls(downstream.arrivals), {
      fromMs,
      toMs,
      windowMs: WINDOW_MS,
      stepMs: 250,
    });
    const counts = windows.map((window) => tenants.map((name) => unitsOf(window, name)));
    expect(callers.failures).toEqual([]);
    expect(windows.length).toBeGreaterThan(0);
    for (const each of counts) {
      const share = each.reduce((sum, count) => sum + count, 0) / tenants.length;
      expect(Math.min(...each)).toBeGreaterThanOrEqual(share - tenants.length - LEASES);
    }
    expect(downstream.worst(LATENCY_MS - 5)).toBeLessThanOrEqual(LEASES);
  });
});
