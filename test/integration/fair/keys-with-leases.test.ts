import { describe, expect, it } from "vitest";
import type { Bucket } from "sluice";
import { waitUntil } from "../../support/async/wait-until.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();

/** A call that runs until `end` is called. */
async function hold(bucket: Bucket, key: string | readonly string[]) {
  let isRunning = false;
  let end = (): void => {};
  const ended = new Promise<void>((resolve) => {
    end = resolve;
  });
  const running = bucket.run(
    async () => {
      isRunning = true;
      await ended;
    },
    { key },
  );
  await waitUntil(() => isRunning, "the call runs");
  return { end, running };
}

describe("keys that may make one call at a time", () => {
  it("delay no call of other keys, and get all their calls, whatever these cost", async () => {
    const policy = { rate: "1000/s", burst: 20, perKey: { concurrency: 1 } } as const;
    const bucket = sluices.open().bucket("api", policy);
    const first = await hold(bucket, "a");

    const own = [1, 2, 3].map((cost) => bucket.run(async () => cost, { key: "a", cost }));
    const others = ["b", "c", "d"].map((key) => bucket.run(async () => key, { key }));

    expect(await Promise.all(others)).toEqual(["b", "c", "d"]);
    first.end();
    await first.running;
    expect(await Promise.all(own)).toEqual([1, 2, 3]);
  });

  it("have no lease once their calls have ended", async () => {
    const perKey = [{ concurrency: 50 }, { concurrency: 1 }] as const;
    const bucket = sluices.open().bucket("api", { rate: "1000/s", burst: 50, perKey });
    const first = await hold(bucket, ["a", "x"]);
    const keys = [
      ["a", "x"],
      ["a", "y"],
      ["a", "z"],
      ["b", "q"],
      ["c", "q"],
    ];

    const calls = keys.map((key) => bucket.run(async () => "done", { key }));
    await Promise.all(calls.slice(1));
    first.end();
    await Promise.all([first.running, ...calls]);

    const again = keys.map((key) => bucket.run(async () => "done", { key, maxWaitMs: 10_000 }));
    expect(await Promise.all(again)).toEqual(keys.map(() => "done"));
  });
});
