import { beforeEach, describe, expect, it } from "vitest";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { reportFigures } from "../../support/docs/report-figures.ts";
import { useDownstream } from "../../support/servers/use-downstream.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const RATE = 200;
/** What may be on its way when the first refusal is heard: a horizon. */
const ON_THE_WAY = RATE / 10;
/** What the downstream asks for with each refusal. */
const STORM_MS = 1_000;
const sluices = realSluices();
let stormFromMs = Infinity;
beforeEach(() => {
  stormFromMs = Infinity;
});
const downstream = useDownstream({
  answer: ({ atMs }): number => {
    if (downstream.arrivals.length === 100) stormFromMs = atMs;
    return atMs >= stormFromMs && atMs < stormFromMs + STORM_MS ? 429 : 200;
  },
});

describe("a downstream that refuses all calls for a second, and states that time", () => {
  it("gets no new call in that time, and the rate is cut once", async () => {
    const adaptive = { floor: 0.1, recoverMs: 600_000 };
    const buckets = [1, 2, 3].map(() =>
      sluices.open().bucket("b", { rate: `${RATE}/s`, adaptive }),
    );
    let isStopped = false;
    const callers = buckets.flatMap((bucket) => {
      const call = bucket.throttled(() => fetch(downstream.url, { method: "POST" }));
      return Array.from({ length: 20 }, async () => {
        while (!isStopped) await call();
      });
    });
    await waitUntil(() => downstream.refused > 0, "a call is refused");
    await waitUntil(
      () => downstream.arrivals.at(-1)!.atMs > stormFromMs + STORM_MS,
      "calls leave again",
    );
    const { rateFactor } = await buckets[0]!.peek();
    isStopped = true;
    await Promise.all(callers);

    const { arrivals, refused } = downstream;
    const later = arrivals.filter(
      ({ atMs }) => atMs > stormFromMs && atMs < stormFromMs + STORM_MS,
    );
    const heardAfterMs = Math.max(0, ...later.map(({ atMs }) => atMs - stormFromMs));
    reportFigures("the downstream answers 429 to all for a second", {
      "calls refused": refused,
      "ms until nothing is sent": heardAfterMs,
      "part of the rate that is left": rateFactor,
    });
    expect(refused).toBeLessThanOrEqual(1 + ON_THE_WAY);
    expect(rateFactor).toBeLessThan(1);
    expect(rateFactor).toBeGreaterThan(0.4);
  });
});
