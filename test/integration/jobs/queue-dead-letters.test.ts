import { describe, expect, it } from "vitest";
import type { FailedJob, Queue } from "sluice";
import { withFailed, type Order } from "../../support/jobs/failed-jobs.ts";
import { openQueue } from "../../support/jobs/open-queue.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const sluices = realSluices();

function namesOf(failed: readonly FailedJob<Order>[]): string[] {
  return failed.map(({ data }) => data.name);
}

describe("the dead letters of a queue", () => {
  it("show whose job failed, when, after how many attempts, why and where", async () => {
    const { sluice, queue } = openQueue<Order>(sluices);
    const job = await queue.enqueue(
      { name: "first" },
      { key: "acme", name: "charge", attempts: 2, backoff: { baseMs: 1 } },
    );
    sluice.worker(queue, async () => {
      throw new TypeError("downstream says no");
    });
    await rejectionOf(job.finished());

    const [failed, ...others] = await queue.failed();

    expect(others).toEqual([]);
    expect(failed).toMatchObject({
      id: job.id,
      name: "charge",
      key: "acme",
      data: { name: "first" },
      reason: "downstream says no",
      attempts: 2,
    });
    expect(failed!.failedAtMs).toBeGreaterThanOrEqual(job.enqueuedAtMs);
    expect(failed!.stack).toContain("TypeError: downstream says no\n    at ");
  });

  it("are found by key, reason and time, the newest first", async () => {
    const { queue } = await withFailed(sluices, [
      { name: "a", key: "acme" },
      { name: "b", key: "bolt", reason: "Expired: not started in time" },
      { name: "c", key: "acme", reason: "timeout" },
    ]);
    const [newest, middle] = await queue.failed();

    expect(namesOf(await queue.failed())).toEqual(["c", "b", "a"]);
    expect(namesOf(await queue.failed({ key: "acme" }))).toEqual(["c", "a"]);
    expect(namesOf(await queue.failed({ reason: "Expired:" }))).toEqual(["b"]);
    expect(namesOf(await queue.failed({ reason: /TIME/i }))).toEqual(["c", "b"]);
    expect(namesOf(await queue.failed({ key: "acme", reason: "says no" }))).toEqual(["a"]);
    expect(namesOf(await queue.failed({ limit: 1 }))).toEqual(["c"]);
    expect(namesOf(await queue.failed({ since: middle!.failedAtMs }))).toEqual(["c", "b"]);
    expect(await queue.failed({ since: new Date(newest!.failedAtMs + 1) })).toEqual([]);
  });

  it("include a job that did not start in time, with its reason, and it can be replayed", async () => {
    const { sluice, queue } = openQueue<Order>(sluices);
    const job = await queue.enqueue({ name: "late" }, { maxWaitMs: 50 });
    await waitUntil(() => Date.now() > job.startByMs!, "it is too late");
    const worker = sluice.worker(queue, async () => "in time");
    const expired = await rejectionOf(job.finished());

    const names = namesOf(await queue.failed({ reason: "Expired:" }));
    await worker.close();
    const replayed = await queue.replay({ reason: /^Expired:/ });

    expect(expired).toMatchObject({ reason: expect.stringMatching(/^Expired:/) });
    expect(names).toEqual(["late"]);
    expect(replayed).toBe(1);
  });

  it("are replayed or purged only within a filter and its limit", async () => {
    const { queue } = await withFailed(sluices, [
      { name: "a", key: "acme" },
      { name: "b", key: "bolt" },
      { name: "c", key: "acme" },
      { name: "d", key: "acme" },
    ]);

    const counts = [
      await queue.replay({ key: "acme", limit: 1 }),
      await queue.purge({ key: "acme", limit: 1 }),
    ];

    expect(counts).toEqual([1, 1]);
    expect(namesOf(await queue.failed())).toEqual(["b", "a"]);
    expect(await queue.counts()).toMatchObject({ failed: 2 });
  });

  it("are gone when they are purged, and purged only once", async () => {
    const { queue } = await withFailed(sluices, [{ name: "a" }, { name: "b" }]);
    const { id } = (await queue.failed())[0]!;

    const counts = await Promise.all([queue.purge(id), queue.purge(id), queue.purge({})]);

    expect(counts.reduce((sum, count) => sum + count, 0)).toBe(2);
    expect(await queue.job(id)).toBe(undefined);
    expect(await queue.purge(id)).toBe(0);
    expect(await queue.replay(id)).toBe(0);
  });

  it("do not include a waiting job, which purge leaves alone", async () => {
    const { queue } = openQueue<Order>(sluices);
    const job = await queue.enqueue({ name: "waits" });

    expect(await queue.purge(job.id)).toBe(0);
    expect(await job.state()).toBe("waiting");
  });

  it.each([
    ["replay", (queue: Queue<Order>) => queue.replay(undefined as never)],
    ["purge", (queue: Queue<Order>) => queue.purge("")],
    ["failed", (queue: Queue<Order>) => queue.failed({ keys: "a" } as never)],
  ])("refuse impossible options of %s()", async (name, call) => {
    const { queue } = openQueue<Order>(sluices);

    const reason = await rejectionOf(call(queue));

    expect(reason).toMatchObject({ code: "ERR_INVALID_OPTION" });
    expect((reason as Error).message).toContain(`${name}()`);
  });
});
