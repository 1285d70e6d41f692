import { describe, expect, inject, it } from "vitest";
import type { Job } from "sluice";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { children } from "../../support/children/child.ts";
import { openTokenQueue } from "../../support/jobs/open-queue.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const processes = children();
const id = "order 17/é {a} %3A 💶";

describe("an id that the caller chooses", () => {
  it.each([
    ["without a key", {}],
    ["in a lane", { key: "acme" }],
    ["that is delayed", { delayMs: 20 }],
  ])(
    "becomes the job's id, and no second job of the id is stored while it is kept: %s",
    async (_, where) => {
      const { sluice, queue } = openTokenQueue<string>(sluices);
      const seen: Job<string>[] = [];

      const first = await queue.enqueue("first", { id, ...where });
      const second = await queue.enqueue("second", { id });
      sluice.worker(queue, async (job, { log }) => {
        seen.push(job);
        await log("here");
        return "done";
      });
      const result = await second.finished();
      const third = await queue.enqueue("third", { id });

      expect([first, second, third].map(({ isNew }) => isNew)).toEqual([true, false, false]);
      for (const job of [first, second, third]) expect(job).toMatchObject({ id, data: "first" });
      expect(third).toMatchObject({ attemptsMade: 1, key: first.key });
      expect([result, await third.state(), await third.logs()]).toEqual(["done", "done", ["here"]]);
      expect(seen.map((job) => [job.id, job.data])).toEqual([[id, "first"]]);
      expect(await queue.job(id)).toMatchObject({ id, data: "first" });
    },
  );

  it("returns large stored jobs, many at once, with all of their facts", async () => {
    const { queue } = openTokenQueue<string>(sluices);
    const ids = Array.from({ length: 12 }, (_, index) => `large-${index}`);
    const large = (index: number): string => `${index} ${"x".repeat(900_000)}`;
    const byId = (data: string): { id: string } => ({ id: ids[Number(data.split(" ")[0])]! });
    await queue.enqueueMany(
      ids.map((_id, index) => large(index)),
      byId,
    );

    const again = await queue.enqueueMany([...ids.keys()].map(String), byId);

    expect(again.map((job) => job.isNew)).toEqual(ids.map(() => false));
    expect(again.map((job) => job.id)).toEqual(ids);
    for (const [index, { data }] of again.entries()) expect(data).toBe(large(index));
  });

  it("is free again once the job is removed", async () => {
    const { queue } = openTokenQueue<string>(sluices);

    const first = await queue.enqueue("first", { id, key: "acme" });
    const isRemoved = await queue.remove(id);
    const second = await queue.enqueue("second", { id, key: "bolt" });

    expect([first.isNew, isRemoved, second.isNew]).toEqual([true, true, true]);
    expect(second).toMatchObject({ data: "second", key: "bolt" });
    expect(await queue.counts()).toMatchObject({ waiting: 1 });
  });

  it("belongs to a dead letter, which is replayed by its id, until it is removed", async () => {
    const { sluice, queue } = openTokenQueue<string>(sluices);
    let isUp = false;
    sluice.worker(queue, async () => {
      if (!isUp) throw new Error("down");
    });
    const first = await queue.enqueue("first", { id, attempts: 1 });
    await rejectionOf(first.finished());

    const second = await queue.enqueue("second", { id });
    isUp = true;
    const replayed = await queue.replay(id);
    await waitUntil(async () => (await first.state()) === "done", "it is done");

    expect(second).toMatchObject({ isNew: false, attemptsMade: 1, data: "first" });
    expect(replayed).toBe(1);
  });

  it("stores one job if many are stored at once, in one call and in two processes", async () => {
    const { queue } = openTokenQueue<number>(sluices);
    const at = [inject("redisUrl"), sluices.prefix(), "40", JSON.stringify({ id, key: "acme" })];
    const producers = [1, 2].map(() => processes.start("workers/update-producer.ts", at));

    const jobs = await queue.enqueueMany([1, 2, 3], () => ({ id }));
    expect(await Promise.all(producers.map(({ ended }) => ended))).toEqual([0, 0]);

    const told = producers.flatMap(({ messages }) => messages as readonly { isNew: boolean }[]);
    expect([...told, ...jobs].filter(({ isNew }) => isNew)).toHaveLength(1);
    expect(await queue.counts()).toMatchObject({ waiting: 1, delayed: 0 });
  });

  it.each(["x".repeat(256), "a", "a-1", "1e5", "-1", "job", "../..", "order?id=1#2", "wait "])(
    "may be %j",
    async (own) => {
      const { sluice, queue } = openTokenQueue<string>(sluices);
      sluice.worker(queue, async () => {});

      const job = await queue.enqueue("a", { id: own });
      await job.finished();

      expect(await queue.job(own)).toMatchObject({ id: own });
    },
  );

  it.each(["", "17", "a:b", "meta", "wait", "id", "a\n", "x".repeat(257), 5, "\uD800"])(
    "is refused with a remedy if it is %j",
    async (own) => {
      const { queue } = openTokenQueue<string>(sluices);

      const reason = await rejectionOf(queue.enqueue("a", { id: own as string }));

      expect(reason).toMatchObject({ code: "ERR_INVALID_OPTION", option: "id" });
      expect(await queue.counts()).toMatchObject({ waiting: 0, delayed: 0 });
    },
  );

  it("is refused if it is shared by all jobs of one call, and for a recurring job", async () => {
    const { queue } = openTokenQueue<string>(sluices);

    const many = await rejectionOf(queue.enqueueMany(["a", "b"], { id }));
    const recurring = await rejectionOf(
      queue.enqueue("a", { id, every: 60_000, dedupeId: "daily" }),
    );

    for (const reason of [many, recurring]) expect(reason).toMatchObject({ option: "id" });
  });
});
