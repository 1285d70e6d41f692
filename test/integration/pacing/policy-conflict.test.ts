import { describe, expect, it } from "vitest";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();

function replicaWith(rate: string) {
  const warnings: string[] = [];
  const log = (_facts: object, message: string): void => {
    warnings.push(message);
  };
  const sluice = sluices.open({ logger: { warn: log, error: log } });
  return { bucket: sluice.bucket("downstream", { rate }), warnings };
}

describe("two replicas that give one bucket different rates", () => {
  it("both follow the newest, and the older one logs that once", async () => {
    const older = replicaWith("1000/s");
    const newer = replicaWith("100/s");
    await older.bucket.draw();
    await newer.bucket.draw();

    const slots = await Promise.all(
      [older, newer].flatMap(({ bucket }) => Array.from({ length: 15 }, () => bucket.draw())),
    );

    const generations = new Set(slots.map((slot) => slot.generation));
    const atMs = slots.map((slot) => slot.atMs).sort((a, b) => a - b);
    const gapsMs = atMs.slice(1).map((at, index) => at - atMs[index]!);
    expect(generations.size).toBe(1);
    expect(Math.min(...gapsMs)).toBeGreaterThanOrEqual(9.99);
    expect(older.warnings).toHaveLength(1);
    expect(older.warnings[0]).toMatch(
      /declared here with 1000\/s, and later elsewhere with 100\/s/,
    );
    expect(newer.warnings).toEqual([]);
  });
});
