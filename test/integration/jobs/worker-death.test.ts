import { describe, expect, inject, it } from "vitest";
import { children } from "../../support/children/child.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { useDownstream } from "../../support/servers/use-downstream.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const LOCK_MS = 1_000;
const processes = children();
const sluices = realSluices();
const downstream = useDownstream();

describe("a worker process that is killed", () => {
  it("loses no job, and none runs twice unless its lock had expired", async () => {
    const sluice = sluices.open();
    const bucket = sluice.bucket("downstream", { rate: "100/s" });
    const queue = sluice.queue<string>("jobs", { bucket });
    const names = Array.from({ length: 300 }, (_, index) => `job ${index}`);
    await queue.enqueueMany(names);
    const args = [inject("redisUrl"), sluices.prefix(), "100/s", downstream.url, "20"];
    const workers = Array.from({ length: 3 }, () => processes.start("workers/job-worker.ts", args));
    const reached = (): Set<unknown> =>
      new Set(downstream.arrivals.map(({ headers }) => headers["x-job"]));
    await waitUntil(() => reached().size > 50, "the workers are at work");

    workers[0]!.signal("SIGKILL");
    await waitUntil(() => reached().size > 150, "the others go on");
    workers[1]!.signal("SIGKILL");
    await waitUntil(() => reached().size === 300, "each job has reached the downstream");
    await waitUntil(async () => {
      const { active, waiting, delayed } = await queue.counts();
      return active + waiting + delayed === 0;
    }, "the queue is empty");

    const timesMs = new Map<unknown, number[]>();
    for (const { headers, atMs } of downstream.arrivals) {
      timesMs.set(headers["x-job"], [...(timesMs.get(headers["x-job"]) ?? []), atMs]);
    }
    const twice = [...timesMs.values()].filter((times) => times.length > 1);
    expect((await queue.counts()).failed).toBe(0);
    // Only what the two dead workers held at once can be done again: and not before its lock had ended.
    expect(twice.length).toBeLessThanOrEqual(2 * 20);
    for (const [first, second] of twice) {
      expect(second! - first!).toBeGreaterThanOrEqual(LOCK_MS / 2);
    }

    workers[2]!.send("close");
    expect(await workers[2]!.ended).toBe(0);
  });
});
