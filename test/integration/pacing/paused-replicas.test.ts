import { expect, it } from "vitest";
import { waitUntil } from "../../support/async/wait-until.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const REPLICAS = 4;
const HORIZON_MS = 100;

it.each([
  { rate: "100/s" },
  { rate: "1000/s" },
  { rate: "100/s", perKey: { rate: "60/s" } },
] as const)(
  "lets no replica start a call more than a horizon after pause() has resolved: %o",
  async (limits) => {
    const buckets = Array.from({ length: REPLICAS }, () => sluices.open().bucket("paused", limits));
    const clock = sluices.open().bucket("clock", { rate: "100/s" });
    const startedMs: number[] = [];
    let isOver = false;
    const calling = buckets.flatMap((bucket) =>
      Array.from({ length: 20 }, async (_, caller) => {
        while (!isOver) {
          await bucket.draw({ key: `key ${caller % 3}` });
          startedMs.push(performance.now());
        }
      }),
    );
    await waitUntil(() => startedMs.length > 100, "the replicas call");

    await buckets[0]!.pause();
    const pausedMs = performance.now();
    // Half a second, as another bucket paces it.
    for (let calls = 0; calls < 50; calls++) await clock.draw();

    expect(startedMs.filter((ms) => ms > pausedMs + HORIZON_MS)).toEqual([]);
    const before = startedMs.length;
    isOver = true;
    await buckets[1]!.resume();
    await Promise.all(calling);
    expect(startedMs.length - before).toBe(calling.length);
  },
);
