import { describe, expect, it } from "vitest";
import { fixedWindow } from "sluice";
import { realSluices } from "../support/real-sluice.ts";

const sluices = realSluices();

/** As a garbage collection or a cold start does. */
function block(ms: number): void {
  const startMs = performance.now();
  while (performance.now() - startMs < ms);
}

describe("a process that stands still while its slots come", () => {
  it("loses nothing of a daily quota", async () => {
    const bucket = sluices.open().bucket("daily", { limits: [fixedWindow(1_000, "1d")] });
    await bucket.draw();

    const calls = Array.from({ length: 700 }, () => bucket.draw());
    await new Promise((resolve) => setImmediate(resolve));
    block(300);
    await Promise.all(calls);

    expect((await bucket.peek()).limits[0]!.remaining).toBe(1_000 - 701);
  });
});

describe("a policy that another replica has put in force", () => {
  it("fails the calls of one that cannot hold to it, rather than let them go unlimited", async () => {
    const newer = sluices.open().bucket("b", { perKey: () => ({ rate: "1/s" }) });
    const older = sluices.open().bucket("b", { rate: "10/s" });
    await older.draw({ key: "x" });

    await newer.draw({ key: "x" });
    const draws = Array.from({ length: 50 }, () => older.draw({ key: "x" }));
    const outcomes = await Promise.allSettled(draws);

    const started = outcomes.filter(({ status }) => status === "fulfilled");
    expect(started.length).toBeLessThanOrEqual(2);
    expect(outcomes.at(-1)).toMatchObject({ reason: { code: "ERR_INVALID_OPTION" } });
  });
});

describe("a key whose tier changes while its calls wait", () => {
  it("lets its calls and those of other keys go on", async () => {
    let tier = "free";
    const bucket = sluices.open().bucket("b", {
      rate: "1000/s",
      perKey: {
        tiers: { free: { rate: "5/s" }, pro: { rate: "50/s", burst: 2 } },
        tierOf: (key) => (key === "acme" ? tier : "free"),
      },
    });

    const calls = ["acme", "acme", "other", "other"].map((key) => bucket.draw({ key }));
    await calls[0];
    tier = "pro";
    calls.push(bucket.draw({ key: "acme" }), bucket.draw({ key: "third" }));
    await bucket.pause();
    await bucket.resume();

    await expect(Promise.all(calls)).resolves.toHaveLength(6);
  });
});
