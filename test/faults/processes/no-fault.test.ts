import { describe, expect, inject, it } from "vitest";
import { children } from "../../support/children/child.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { reportFigures } from "../../support/docs/report-figures.ts";
import { figuresOf, usedShare } from "../../support/draws/steady-draws.ts";
import { useDownstream } from "../../support/servers/use-downstream.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const RATE = 600;
const PROCESSES = 8;
/** Twenty seconds at the rate, all of which wait from the start. */
const CALLS_EACH = (20 * RATE) / PROCESSES;
const processes = children();
const sluices = realSluices();
const downstream = useDownstream();

describe("eight processes that offer more calls than the rate", () => {
  it("exceed the rate in no window, and lose no call", async () => {
    const args = [inject("redisUrl"), sluices.prefix(), `${RATE}/s`, downstream.url];
    const start = () => processes.start("replica.ts", [...args, String(CALLS_EACH)]);
    const replicas = Array.from({ length: PROCESSES }, start);
    const areReady = (): boolean => replicas.every(({ messages }) => messages.includes("ready"));
    await waitUntil(areReady, "all are ready");

    for (const replica of replicas) replica.send("go");
    await Promise.all(replicas.map((replica) => replica.success()));

    const { arrivals } = downstream;
    const slotsMs = arrivals.map(({ headers }) => Number(headers["x-slot-ms"]));
    const lateMs = arrivals.map(({ atMs }, index) => atMs - slotsMs[index]!);
    const jitterMs = Math.max(...lateMs) - Math.min(...lateMs);
    const figures = figuresOf(slotsMs, RATE);
    reportFigures("none: eight processes offer more than the rate", {
      ...figures,
      used: usedShare(slotsMs, RATE),
      "most that a call was later than another, ms": jitterMs,
    });
    expect(arrivals).toHaveLength(PROCESSES * CALLS_EACH);
    expect(figures.extra).toBe(0);
  });
});
