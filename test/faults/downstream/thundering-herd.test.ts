import { describe, expect, inject, it } from "vitest";
import { children } from "../../support/children/child.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { reportFigures } from "../../support/docs/report-figures.ts";
import { figuresOf } from "../../support/draws/steady-draws.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { worstWindow } from "sluice/testing";

const RATE = 300;
const PROCESSES = 4;
const LINES = 250;
const sluices = realSluices();
const processes = children();

describe("1,000 replicas that start at the same instant on an empty bucket", () => {
  it("never start more calls than the rate, not even in the first second", async () => {
    const args = [inject("redisUrl"), sluices.prefix(), `${RATE}/s`, String(LINES)];
    const herd = Array.from({ length: PROCESSES }, () => processes.start("many-lines.ts", args));
    await waitUntil(
      () => herd.every(({ messages }) => messages.includes("ready")),
      "all are ready",
    );

    for (const child of herd) child.send("go");
    await Promise.all(herd.map((child) => child.success()));

    const atMs = herd.flatMap(({ messages }) => messages.filter(Array.isArray).flat() as number[]);
    const first = Math.min(...atMs);
    const firstSecond = atMs.filter((at) => at < first + 1_000).length;
    const figures = figuresOf(atMs, RATE);
    reportFigures(`${PROCESSES * LINES} replicas begin at one instant`, {
      ...figures,
      [`calls in the first second, of ${RATE}`]: firstSecond,
    });
    expect(atMs).toHaveLength(PROCESSES * LINES);
    expect(worstWindow(atMs, 999.999)).toBeLessThanOrEqual(RATE);
    expect(figures.extra).toBe(0);
  });
});
