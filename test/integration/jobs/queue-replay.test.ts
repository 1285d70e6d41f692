import { describe, expect, it } from "vitest";
import { startFailing, withFailed, type Order } from "../../support/jobs/failed-jobs.ts";
import { openQueue } from "../../support/jobs/open-queue.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const sluices = realSluices();

describe("dead letters that are replayed", () => {
  it("run again from attempt 1 when they are replayed, through the limiter", async () => {
    const { sluice, bucket, queue } = await withFailed(sluices, [{ name: "a" }, { name: "b" }]);
    const ran: [string, number][] = [];
    const before = await bucket.draw();

    const count = await queue.replay({});
    sluice.worker(queue, async ({ data }, { attempt }) => void ran.push([data.name, attempt]));
    await waitUntil(() => ran.length === 2, "both have run");
    const after = await bucket.draw();

    expect(count).toBe(2);
    expect(new Map(ran)).toEqual(
      new Map([
        ["a", 1],
        ["b", 1],
      ]),
    );
    // At 1,000/s two jobs between two draws put the second three slots behind the first.
    expect(after.atMs - before.atMs).toBeGreaterThanOrEqual(3);
    expect(await queue.failed()).toEqual([]);
  });

  it("run once when two processes replay them at once, and a second replay does nothing", async () => {
    const orders = Array.from({ length: 20 }, (_, index) => ({ name: `order ${index}` }));
    const { queue, sluice } = openQueue<Order>(sluices);
    const jobs = await queue.enqueueMany(orders, ({ name }) => ({ attempts: 1, dedupeId: name }));
    const failing = startFailing(openQueue<Order>(sluices));
    await Promise.all(jobs.map((job) => rejectionOf(job.finished())));
    await failing.close();
    const others = [openQueue<Order>(sluices), openQueue<Order>(sluices)];

    const counts = await Promise.all([
      ...others.map((other) => other.queue.replay({})),
      ...jobs.map(({ id }) => queue.replay(id)),
    ]);
    const again = await queue.enqueueMany(orders, ({ name }) => ({ dedupeId: name }));
    const ran: string[] = [];
    sluice.worker(queue, async ({ data }) => void ran.push(data.name));
    await Promise.all(jobs.map((job) => job.finished()));

    expect(counts.reduce((sum, count) => sum + count, 0)).toBe(20);
    expect(again.map(({ id }) => id)).toEqual(jobs.map(({ id }) => id));
    expect(ran.toSorted()).toEqual(orders.map(({ name }) => name).toSorted());
    expect(await queue.replay({})).toBe(0);
    expect(await queue.replay(jobs[0]!.id)).toBe(0);
    expect(await queue.replay("no such id")).toBe(0);
  });

  it("are replayed once each when they fail again during the replay", async () => {
    const { sluice, queue } = openQueue<Order>(sluices);
    const jobs = await queue.enqueueMany(
      Array.from({ length: 450 }, (_, index) => ({ name: `${index}` })),
      { attempts: 1 },
    );
    let runs = 0;
    sluice.worker(queue, async () => {
      runs += 1;
      throw new Error("no");
    });
    await Promise.all(jobs.map((job) => rejectionOf(job.finished())));

    const count = await queue.replay({});
    await waitUntil(async () => (await queue.counts()).failed === 450, "all have failed again");

    expect(count).toBe(450);
    expect(runs).toBe(900);
  });

  it("hold their dedupeId again, until they are done", async () => {
    const { sluice, queue } = openQueue<Order>(sluices);
    const job = await queue.enqueue({ name: "a" }, { attempts: 1, dedupeId: "o7" });
    const worker = startFailing(openQueue<Order>(sluices));
    await rejectionOf(job.finished());
    await worker.close();

    await queue.replay(job.id);
    const again = await queue.enqueue({ name: "a" }, { dedupeId: "o7" });
    const { waiting } = await queue.counts();
    sluice.worker(queue, async () => {});
    await job.finished();
    const later = await queue.enqueue({ name: "a" }, { dedupeId: "o7" });

    expect(again.id).toBe(job.id);
    expect(waiting).toBe(1);
    expect(later.id).not.toBe(job.id);
  });

  it("free their dedupeId when they are no longer dead letters", async () => {
    const { sluice, queue } = openQueue<Order>(sluices);
    const job = await queue.enqueue({ name: "a" }, { dedupeId: "o7" });
    sluice.worker(queue, async () => {});
    await job.finished();

    const count = await queue.replay(job.id);
    const later = await queue.enqueue({ name: "a" }, { dedupeId: "o7" });

    expect(count).toBe(0);
    expect(later.id).not.toBe(job.id);
  });

  it("run beside a job that has their dedupeId now, which keeps it", async () => {
    const { queue } = openQueue<Order>(sluices);
    const job = await queue.enqueue({ name: "a" }, { attempts: 1, dedupeId: "o7" });
    const worker = startFailing(openQueue<Order>(sluices));
    await rejectionOf(job.finished());
    await worker.close();
    const other = await queue.enqueue({ name: "a" }, { dedupeId: "o7" });

    const count = await queue.replay(job.id);
    const again = await queue.enqueue({ name: "a" }, { dedupeId: "o7" });

    expect(count).toBe(1);
    expect(again.id).toBe(other.id);
    expect(await queue.counts()).toMatchObject({ waiting: 2 });
  });

  it("have a new start deadline", async () => {
    const { sluice, queue } = openQueue<Order>(sluices);
    const job = await queue.enqueue({ name: "late" }, { attempts: 1, maxWaitMs: 60_000 });
    const { startByMs } = (await queue.job(job.id))!;
    const worker = startFailing(openQueue<Order>(sluices));
    await rejectionOf(job.finished());
    await worker.close();

    const replayedAtMs = Date.now();
    await queue.replay(job.id);
    const replayed = (await queue.job(job.id))!;
    sluice.worker(queue, async () => {});
    await replayed.finished();

    expect(startByMs).toBeGreaterThanOrEqual(job.enqueuedAtMs + 60_000);
    expect(startByMs).toBeLessThanOrEqual(replayedAtMs + 60_000);
    expect(replayed.startByMs).toBeGreaterThanOrEqual(replayedAtMs + 60_000);
  });
});
