import { describe, expect, inject, it } from "vitest";
import { children } from "../../support/children/child.ts";
import { openQueue } from "../../support/jobs/open-queue.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const RATE = "1/s";
const OTHERS = 40;

const processes = children();
const sluices = realSluices();

describe("a job that kills its worker each time", () => {
  it("becomes a dead letter after ten deaths, and no other waiting job does", async () => {
    const { queue } = openQueue<string>(sluices, { rate: RATE });
    const deadly = await queue.enqueue("deadly", { priority: "critical" });
    await queue.enqueueMany(Array.from({ length: OTHERS }, (_, index) => `job ${index}`));
    let deaths = 0;
    const restart = (): void => {
      const args = [inject("redisUrl"), sluices.prefix(), RATE];
      const worker = processes.start("workers/deadly-worker.ts", args);
      void worker.ended.then(() => {
        if (isOver) return;
        deaths += 1;
        restart();
      });
    };
    let isOver = false;

    restart();
    // Each death takes seconds on a busy machine, so each is awaited on its own.
    for (let death = 1; death <= 10; death++) {
      await waitUntil(() => deaths >= death, `its worker dies ${death} times`);
    }
    await waitUntil(async () => (await deadly.state()) === "failed", "it is given up");
    await waitUntil(async () => (await queue.counts()).waiting === 0, "the others are fetched");
    const failed = await queue.failed();
    isOver = true;

    expect(failed.map(({ id }) => id)).toEqual([deadly.id]);
    expect(failed[0]!.reason).toContain("10 times while it ran");
    expect(deaths).toBe(10);
  });
});
