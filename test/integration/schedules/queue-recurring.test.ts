import { Redis } from "ioredis";
import { describe, expect, inject, it } from "vitest";
import type { Key, Queue } from "sluice";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const sluices = realSluices();

function openQueue() {
  const sluice = sluices.open();
  const bucket = sluice.bucket("downstream", { rate: "500/s" });
  return { sluice, queue: sluice.queue<string>("jobs", { bucket }) };
}

/** As a worker leaves a run whose end it could still tell, and whose successor it could not plan any more. */
async function endRun({ name, prefix }: Queue<string>["stored"], id: string): Promise<void> {
  const redis = new Redis(inject("redisUrl"));
  const key = `${prefix}:${name}:`;
  await redis
    .multi()
    .zrem(`${key}delayed`, id)
    .zadd(`${key}completed`, Date.now(), id)
    .hset(`${key}${id}`, { finishedOn: Date.now() })
    .exec();
  redis.disconnect();
}

describe("a recurring job", () => {
  it("runs again and again, at once for the first time", async () => {
    const { sluice, queue } = openQueue();
    const seen: { data: string; key: Key | undefined; cost: unknown }[] = [];
    sluice.worker(queue, async ({ data, key, cost }) => void seen.push({ data, key, cost }));

    await queue.enqueue("sync", { every: 100, dedupeId: "sync", cost: 1 });
    await waitUntil(() => seen.length >= 3, "it has run three times");

    expect(seen.slice(0, 3)).toEqual(Array(3).fill({ data: "sync", key: undefined, cost: 1 }));
  });

  it("runs in the lane of its key, each time", async () => {
    const { sluice, queue } = openQueue();
    const keys: (Key | undefined)[] = [];
    sluice.worker(queue, async ({ key }) => void keys.push(key));

    await queue.enqueue("sync", { every: 100, dedupeId: "sync", key: "acme" });
    await waitUntil(() => keys.length >= 3, "it has run three times");

    expect(new Set(keys)).toEqual(new Set(["acme"]));
  });

  it("is not doubled by a second deployment that declares it again", async () => {
    const [one, other] = [openQueue(), openQueue()];

    await one.queue.enqueue("first", { every: 3_600_000, dedupeId: "sync" });
    await other.queue.enqueue("second", { every: 3_600_000, dedupeId: "sync" });
    const { waiting, delayed } = await one.queue.counts();

    expect(waiting + delayed).toBe(1);
    expect(await one.queue.schedules()).toHaveLength(1);
  });

  it("follows a cron expression in a time zone", async () => {
    const { queue } = openQueue();

    const job = await queue.enqueue("report", {
      cron: "0 9 * * *",
      timeZone: "Asia/Tokyo",
      dedupeId: "report",
      maxWaitMs: 60_000,
    });
    const [schedule] = await queue.schedules();

    // Nine in the morning there is midnight in UTC.
    expect(schedule!.nextAtMs % 86_400_000).toBe(0);
    expect(schedule).toMatchObject({ cron: "0 9 * * *", timeZone: "Asia/Tokyo", every: undefined });
    expect(Math.abs(job.startByMs! - schedule!.nextAtMs - 60_000)).toBeLessThanOrEqual(1);
  });

  it("shows its next five runs, with H as one time of the day", async () => {
    const [one, other] = [openQueue(), openQueue()];
    const options = { cron: "H H * * *", timeZone: "Asia/Tokyo", dedupeId: "report" };

    await one.queue.enqueue("report", options);
    const schedule = (await one.queue.schedule("report"))!;
    await other.queue.enqueue("report", options);
    const again = (await other.queue.schedule("report"))!;

    const { nextRunsAtMs } = schedule;
    expect(nextRunsAtMs).toHaveLength(5);
    expect(nextRunsAtMs[0]).toBe(schedule.nextAtMs);
    const days = nextRunsAtMs.slice(1).map((ms, index) => (ms - nextRunsAtMs[index]!) / 86_400_000);
    expect(days).toEqual([1, 1, 1, 1]);
    expect(schedule.cron).toBe("H H * * *");
    expect(again.nextRunsAtMs).toEqual(nextRunsAtMs);
    expect(await one.queue.schedules()).toEqual([schedule]);
    expect(await one.queue.schedule("other")).toBeUndefined();
  });

  it("shows the next five runs of one that recurs every so often", async () => {
    const { queue } = openQueue();

    await queue.enqueue("sync", { every: 3_600_000, dedupeId: "sync" });
    const { nextAtMs, nextRunsAtMs, cron } = (await queue.schedule("sync"))!;

    expect(nextRunsAtMs).toEqual([0, 1, 2, 3, 4].map((run) => nextAtMs + run * 3_600_000));
    expect(cron).toBeUndefined();
  });

  it.each([
    ["0 9 * *", "it has 4 fields"],
    ["*/90 * * * *", "larger than 0 to 59"],
  ])("is refused with %j, and nothing is stored", async (cron, why) => {
    const { queue } = openQueue();

    const reason = await rejectionOf(queue.enqueue("report", { cron, dedupeId: "report" }));

    expect(reason).toMatchObject({ code: "ERR_INVALID_OPTION", option: "cron", value: cron });
    expect((reason as Error).message).toContain(why);
    expect(await queue.schedules()).toEqual([]);
  });

  it("runs at midnight as @midnight, and its text is no older one's after a change", async () => {
    const { queue } = openQueue();

    await queue.enqueue("report", { cron: "H 9 * * *", dedupeId: "report" });
    await queue.enqueue("report", { cron: "@midnight", dedupeId: "report" });
    const { cron, nextAtMs } = (await queue.schedule("report"))!;

    expect(cron).toBe("@midnight");
    expect(nextAtMs % 86_400_000).toBe(0);
  });

  it("has the newest data and options from the run on that is due as it is declared", async () => {
    const { sluice, queue } = openQueue();
    const cron = "* * * * * *";
    await queue.enqueue("old", { cron, dedupeId: "report", maxWaitMs: 60_000 });
    const { nextAtMs } = (await queue.schedules())[0]!;
    await waitUntil(() => Date.now() > nextAtMs, "it is due");

    const again = await queue.enqueue("new", { cron, dedupeId: "report", cost: 1 });
    const seen: { data: string; cost: unknown; startByMs: unknown }[] = [];
    sluice.worker(
      queue,
      async ({ data, cost, startByMs }) => void seen.push({ data, cost, startByMs }),
    );
    await waitUntil(() => seen.length >= 3, "it has run three times");

    expect(again.data).toBe("new");
    expect(seen.slice(0, 3)).toEqual(Array(3).fill({ data: "new", cost: 1, startByMs: undefined }));
  });

  it("goes on when it is declared again, though the worker of its last run planned no other", async () => {
    const { sluice, queue } = openQueue();
    const cron = "* * * * * *";
    await queue.enqueue("old", { cron, dedupeId: "report" });
    const { nextAtMs } = (await queue.schedules())[0]!;
    await waitUntil(() => Date.now() > nextAtMs, "it is due");
    await endRun(queue.stored, `repeat:report:${nextAtMs}`);

    await queue.enqueue("new", { cron, dedupeId: "report" });
    const seen: string[] = [];
    sluice.worker(queue, async ({ data }) => void seen.push(data));
    await waitUntil(() => seen.length >= 2, "it runs again");

    expect(seen.slice(0, 2)).toEqual(["new", "new"]);
  });

  it("ends by its dedupeId, and its next run with it", async () => {
    const { queue } = openQueue();
    await queue.enqueue("report", { cron: "0 9 * * *", dedupeId: "report" });

    const [first, second] = [await queue.unschedule("report"), await queue.unschedule("report")];

    expect([first, second]).toEqual([true, false]);
    expect(await queue.schedules()).toEqual([]);
    expect(await queue.counts()).toMatchObject({ waiting: 0, delayed: 0 });
  });

  it.each([
    ["without a key", {}],
    ["with a key", { key: "acme" }],
  ])("removes a run %s that is due and waits", async (_name, options) => {
    const { queue } = openQueue();
    const run = await queue.enqueue("now", { ...options, every: 60_000, dedupeId: "report" });

    await queue.unschedule("report");

    expect(await run.state()).toBeUndefined();
    expect(await queue.counts()).toMatchObject({ waiting: 0, delayed: 0 });
  });

  it("is asked for by a name", async () => {
    const { queue } = openQueue();

    const reason = await rejectionOf(queue.unschedule(""));

    expect(reason).toMatchObject({ code: "ERR_INVALID_OPTION", option: "dedupeId" });
  });
});
