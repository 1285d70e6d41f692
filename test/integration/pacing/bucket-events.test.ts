import { describe, expect, it } from "vitest";
import { waitUntil } from "../../support/async/wait-until.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();

describe("the events of a bucket in Redis", () => {
  it("notify a process that draws nothing of another replica's change", async () => {
    const [here, there] = [1, 2].map(() => sluices.open().bucket("b", { rate: "100/s" }));
    const heard: unknown[] = [];
    const stop = there!.on("change", (event) => heard.push(event));

    // Until the first listener is subscribed, its process hears nothing.
    await waitUntil(async () => {
      await here!.pause();
      await here!.resume();
      return heard.length > 0;
    }, "a change is heard");
    stop();

    expect(heard[0]).toEqual({ key: undefined });
  });

  it("report which calls waited for which limit, over replicas", async () => {
    const replicas = [1, 2].map(() => sluices.open().bucket("b", { rate: "100/s" }));
    const waited: (string | undefined)[] = [];
    for (const bucket of replicas) bucket.on("slot", ({ limitedBy }) => waited.push(limitedBy));

    await Promise.all(replicas.flatMap((bucket) => [1, 2, 3].map(() => bucket.run(() => {}))));

    expect(waited).toHaveLength(6);
    expect(waited).toContain("100/s");
    expect(waited.filter((each) => each !== undefined && each !== "100/s")).toEqual([]);
  });

  it("report the cooldown at the replica that got the 429", async () => {
    const [here, there] = [1, 2].map(() => sluices.open().bucket("b", { rate: "100/s" }));
    const cooldowns: [string, number][] = [];
    here!.on("cooldown", ({ forMs }) => cooldowns.push(["here", forMs]));
    there!.on("cooldown", ({ forMs }) => cooldowns.push(["there", forMs]));

    await here!.run(() => new Response(null, { status: 429, headers: { "retry-after": "7" } }));

    await waitUntil(() => cooldowns.length > 0, "it is told");
    expect(cooldowns).toEqual([["here", 7_000]]);
  });
});
