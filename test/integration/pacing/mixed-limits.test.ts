import { describe, expect, inject, it } from "vitest";
import { concurrency } from "sluice";
import { worstWindow, type Arrival } from "sluice/testing";
import { children } from "../../support/children/child.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { useDownstream } from "../../support/servers/use-downstream.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const LATENCY_MS = 30;
const processes = children();
const sluices = realSluices();
const downstream = useDownstream({ latencyMs: LATENCY_MS });

const slotMs = ({ headers }: Arrival): number => Number(headers["x-slot-ms"]);
const tokensOf = ({ headers }: Arrival): number => Number(headers["x-tokens"]);

/** The most of something in any window, by the slots that calls left on. */
function worstSum(
  arrivals: readonly Arrival[],
  windowMs: number,
  amount: (arrival: Arrival) => number,
): number {
  const sorted = arrivals.toSorted((a, b) => slotMs(a) - slotMs(b));
  let first = 0;
  let sum = 0;
  let worst = 0;
  for (const arrival of sorted) {
    sum += amount(arrival);
    while (slotMs(arrival) - slotMs(sorted[first]!) >= windowMs) {
      sum -= amount(sorted[first]!);
      first += 1;
    }
    worst = Math.max(worst, sum);
  }
  return worst;
}

/** The most calls that the downstream worked on at once. */
function mostAtOnce(arrivals: readonly Arrival[]): number {
  const edges = arrivals.flatMap(({ atMs }) => [
    { atMs, by: 1 },
    { atMs: atMs + LATENCY_MS, by: -1 },
  ]);
  let running = 0;
  let most = 0;
  for (const { by } of edges.toSorted((a, b) => a.atMs - b.atMs || a.by - b.by)) {
    running += by;
    most = Math.max(most, running);
  }
  return most;
}

describe("four processes that share a bucket of several limits", () => {
  it("break none of them in any window, and make every call once", async () => {
    const calls = 150;
    const replicas = [0, 1, 2, 3].map((index) => {
      const args = [inject("redisUrl"), sluices.prefix(), downstream.url, `${calls}`];
      return processes.start("mixed-replica.ts", [...args, `${index * calls}`]);
    });
    await waitUntil(() => replicas.every(({ messages }) => messages.length === 1), "all are ready");

    for (const replica of replicas) replica.send("go");
    await Promise.all(replicas.map((replica) => replica.success()));

    const { arrivals } = downstream;
    expect(arrivals).toHaveLength(4 * calls);
    for (const windowMs of [100, 1_000, 2_000]) {
      const most = Math.ceil(0.15 * windowMs);
      expect(worstSum(arrivals, windowMs, () => 1)).toBeLessThanOrEqual(most);
      const tokens = 400 - 1 + Math.ceil(9 * windowMs);
      expect(worstSum(arrivals, windowMs, tokensOf)).toBeLessThanOrEqual(tokens);
    }
    expect(worstSum(arrivals, 1_000, () => 1)).toBeLessThanOrEqual(120);
    expect(mostAtOnce(arrivals)).toBeLessThanOrEqual(8);
    for (const key of new Set(arrivals.map(({ headers }) => headers["x-key"]))) {
      const own = arrivals.filter(({ headers }) => headers["x-key"] === key);
      expect(worstWindow(own.map(slotMs), 1_000)).toBeLessThanOrEqual(20);
    }
  });
});

describe("a process that dies while its calls hold leases", () => {
  it("frees them for the others when they expire, and never lets one call too many run", async () => {
    const options = { limits: [concurrency(2, { leaseMs: 1_000 })] };
    const bucket = sluices.open().bucket("leased", options);
    const dying = processes.start("lease-holder.ts", [inject("redisUrl"), sluices.prefix()]);
    await waitUntil(() => dying.messages.length === 2, "it holds both leases");

    dying.signal("SIGKILL");
    await dying.ended;
    const { remaining } = (await bucket.peek()).limits[0]!;
    const slots = await Promise.all([bucket.draw(), bucket.draw()]);

    expect(remaining).toBe(0);
    expect((await bucket.tryDraw()).allowed).toBe(false);
    for (const slot of slots) slot.release();
  });

  it("keeps them as long as it lives, however long its calls take", async () => {
    const options = { limits: [concurrency(2, { leaseMs: 1_000 })] };
    const bucket = sluices.open().bucket("leased", options);
    const holder = processes.start("lease-holder.ts", [inject("redisUrl"), sluices.prefix()]);
    await waitUntil(() => holder.messages.length === 2, "it holds both leases");

    await expect(bucket.draw({ maxWaitMs: 2_500 })).rejects.toMatchObject({
      limitedBy: "2 at once",
    });

    holder.signal("SIGKILL");
    await holder.ended;
  });
});

it.each([
  [false, 4],
  [true, 9],
])("shows an adaptive limit before its first call, in shadow: %s", async (shadow, atOnce) => {
  const bucket = sluices.open().bucket("llm", {
    limits: [concurrency("auto", { initial: 4, max: 9, shadow })],
  });

  const { limits } = await bucket.peek();

  const adaptive = { atOnce, value: 4, min: 1, max: 9, shadow, reason: "calibrating" };
  expect(limits).toMatchObject([{ capacity: atOnce, level: 0, remaining: atOnce, adaptive }]);
});
