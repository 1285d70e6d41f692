import { describe, expect, inject, it } from "vitest";
import { children } from "../../support/children/child.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { jainIndex } from "../../support/draws/simulate.ts";
import { extraSlots } from "../../support/draws/steady-draws.ts";
import { useDownstream } from "../../support/servers/use-downstream.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const processes = children();
const sluices = realSluices();
const downstream = useDownstream();

function callsByProcess({ arrivals }: typeof downstream): number[] {
  const counts = new Map<unknown, number>();
  for (const { headers } of arrivals) {
    counts.set(headers["x-pid"], (counts.get(headers["x-pid"]) ?? 0) + 1);
  }
  return [...counts.values()];
}

describe("four processes that call one downstream", () => {
  it("have slots at one fixed rate in every window, and share it evenly", async () => {
    const perSecond = 200;
    const args = [inject("redisUrl"), sluices.prefix(), `${perSecond}/s`, downstream.url, "200"];
    const replicas = Array.from({ length: 4 }, () => processes.start("replica.ts", args));
    await waitUntil(() => replicas.every(({ messages }) => messages.length === 1), "all are ready");

    for (const replica of replicas) replica.send("go");
    await Promise.all(replicas.map((replica) => replica.success()));

    expect(downstream.arrivals).toHaveLength(800);
    expect(jainIndex(callsByProcess(downstream))).toBe(1);
    const slots = downstream.arrivals.map(({ headers }) => Number(headers["x-slot-ms"]));
    expect(extraSlots(slots, { perSecond })).toBe(0);
    const sorted = slots.toSorted((a, b) => a - b);
    const gapsMs = sorted.slice(1).map((slot, index) => slot - sorted[index]!);
    expect(Math.min(...gapsMs)).toBeGreaterThanOrEqual(4.999);
  });
});

describe("a process that stood still", () => {
  it("draws its stale slots again instead of firing them in a clump", async () => {
    const args = [inject("redisUrl"), sluices.prefix(), "1000/s", downstream.url, "1200"];
    const frozen = processes.start("replica.ts", args);
    const bucket = sluices.open().bucket("downstream", { rate: "1000/s" });
    await waitUntil(() => frozen.messages.length === 1, "it is ready");
    frozen.send("go");
    await waitUntil(() => downstream.arrivals.length > 200, "calls arrive");

    frozen.signal("SIGSTOP");
    // Another replica goes on for three horizons.
    await Promise.all(Array.from({ length: 300 }, () => bucket.draw()));
    const before = downstream.arrivals.length;
    const thawedAtMs = Date.now();
    frozen.signal("SIGCONT");
    await frozen.ended;

    const stale = downstream.arrivals
      .slice(before)
      .filter(({ headers }) => Number(headers["x-slot-ms"]) < thawedAtMs - 100);
    expect(downstream.arrivals).toHaveLength(1_200);
    // Calls that were under way when it stopped; of the slots that it held there were seventy or more.
    expect(stale.length).toBeLessThanOrEqual(20);
  });
});
