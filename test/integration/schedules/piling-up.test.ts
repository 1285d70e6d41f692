import { describe, expect, it } from "vitest";
import { deferred } from "../../support/async/deferred.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { EVERY_MS, openSchedule } from "../../support/jobs/open-schedule.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const noop = async (): Promise<void> => {};

describe("the runs of a schedule whose key has no room", () => {
  it("do not pile up: one waits, and the times that pass are counted", async () => {
    const { sluice, queue, declare, mostWaitingUntilMissed } = await openSchedule(sluices, {
      isKeyFull: true,
    });
    for (let workers = 0; workers < 3; workers += 1) sluice.worker(queue, noop);

    const run = await declare({ key: "acme", priority: "high" });
    const most = await mostWaitingUntilMissed(20);

    expect(most).toBe(1);
    expect(await run.state()).toMatch(/waiting|active/);
    expect((await queue.counts()).failed).toBe(0);
  });

  it("do not pile up when a cron schedule is declared again and again", async () => {
    const { sluice, queue, declare, mostWaitingUntilMissed } = await openSchedule(sluices, {
      isKeyFull: true,
    });
    sluice.worker(queue, noop);
    const cron = { key: "acme", every: undefined, cron: "* * * * * *" };
    await declare(cron);

    const declaring = setInterval(() => void declare(cron).catch(() => {}), 50);
    const most = await mostWaitingUntilMissed(2);
    clearInterval(declaring);

    expect(most).toBe(1);
  });

  it("are missed when they come too late for maxWaitMs, and are no dead letters", async () => {
    const { sluice, queue, declare, schedule, mostWaitingUntilMissed } = await openSchedule(
      sluices,
      { isKeyFull: true },
    );
    for (let workers = 0; workers < 2; workers += 1) sluice.worker(queue, noop);

    await declare({ key: "acme", maxWaitMs: 150 });
    const most = await mostWaitingUntilMissed(20);

    expect(most).toBe(1);
    expect((await queue.counts()).failed).toBe(0);
    expect((await schedule()).last).toBeUndefined();
  });

  it("begin no more after unschedule() has resolved, also when there is room again", async () => {
    const { sluice, queue, declare, waiting } = await openSchedule(sluices, { rate: "2/s" });
    const started: string[] = [];
    let isEnded = false;
    const work = async ({ data }: { data: string }): Promise<void> => {
      if (isEnded) started.push(data);
    };
    sluice.worker(queue, work);
    sluice.worker(queue, work);
    const run = await declare();
    await waitUntil(async () => (await queue.schedules())[0]!.missed > 3, "runs wait for slots");

    await queue.unschedule("sync");
    isEnded = true;
    const other = await queue.enqueue("other");
    await other.finished();

    expect(started).toEqual(["other"]);
    expect(await waiting()).toBe(0);
    expect((await run.state()) ?? "done").toBe("done");
  });

  it("go from the hands of a worker that waits for a slot, with their schedule", async () => {
    const { sluice, queue, declare, waiting } = await openSchedule(sluices);
    const bucket = sluice.bucket("downstream", { rate: "500/s" });
    await bucket.pause();
    const started: string[] = [];
    sluice.worker(queue, async ({ data }) => void started.push(data), { patienceMs: 60_000 });
    const run = await declare({ key: "acme" });
    await waitUntil(async () => (await run.state()) === "active", "a worker holds the run");

    await queue.unschedule("sync");
    const state = await run.state();
    const count = await waiting();
    await bucket.resume();
    await (await queue.enqueue("other", { key: "acme" })).finished();

    expect([state, count]).toEqual([undefined, 0]);
    expect(started).toEqual(["other"]);
  });
});

describe("the runs of a schedule without workers", () => {
  it("do not pile up: the one that is due goes first, and what passed was counted", async () => {
    const { sluice, queue, declare, schedule, mostWaitingUntilMissed } =
      await openSchedule(sluices);
    const run = await declare();

    const most = await mostWaitingUntilMissed(5);
    const ran: string[] = [];
    sluice.worker(queue, async ({ id }) => void ran.push(id));
    await waitUntil(() => ran.length >= 3, "it runs");

    expect(most).toBe(1);
    expect(ran[0]).toBe(run.id);
    const times = ran.map((id) => Number(id.split(":")[2]));
    expect(times[1]! - times[0]!).toBeGreaterThanOrEqual(6 * EVERY_MS);
    expect(times.map((ms) => (ms - times[0]!) % EVERY_MS)).toEqual(times.map(() => 0));
    expect((await schedule()).missed).toBeGreaterThanOrEqual(5);
  });

  it("are made up for by one when missed is once", async () => {
    const { sluice, queue, declare, mostWaitingUntilMissed } = await openSchedule(sluices);
    const every = 400;
    await declare({ every, missed: "once" });
    await mostWaitingUntilMissed(3);

    const ran: string[] = [];
    sluice.worker(queue, async ({ id }) => void ran.push(id));
    await waitUntil(() => ran.length >= 4, "it runs");

    const times = ran.map((id) => Number(id.split(":")[2]));
    const isOnTime = times.map((ms) => (ms - times[0]!) % every === 0);
    expect(isOnTime.slice(0, 2)).toEqual([true, false]);
    expect(times[1]! - times[0]!).toBeGreaterThanOrEqual(3 * every);
  });
});

describe("a schedule with slow handlers", () => {
  it("has several runs at once by default, and one that waits", async () => {
    const { sluice, queue, declare, waiting } = await openSchedule(sluices);
    const end = deferred();
    let running = 0;
    sluice.worker(queue, async () => {
      running += 1;
      await end.promise;
    });
    await declare();

    await waitUntil(() => running >= 4, "four run at once");
    const others = (await waiting()) - running;
    end.resolve();

    expect(others).toBeLessThanOrEqual(2);
  });

  it.each([
    ["one worker", 1, {}],
    ["three workers", 3, {}],
    ["a key", 2, { key: "acme" }],
  ])("skips what would overlap when overlap is false: %s", async (_name, workers, options) => {
    const { sluice, queue, declare, schedule, mostWaitingUntilMissed } =
      await openSchedule(sluices);
    let [running, mostRunning, runs] = [0, 0, 0];
    let end = deferred();
    for (let each = 0; each < workers; each += 1) {
      sluice.worker(queue, async () => {
        runs += 1;
        running += 1;
        mostRunning = Math.max(mostRunning, running);
        await end.promise;
        running -= 1;
      });
    }

    await declare({ ...options, overlap: false });
    await waitUntil(() => runs === 1, "it runs");
    const most = await mostWaitingUntilMissed(5);
    const { last } = await schedule();
    end.resolve();
    end = deferred();
    await waitUntil(() => runs === 2, "it runs again");
    end.resolve();

    // The one that runs, and the next one.
    expect(most).toBe(2);
    expect(mostRunning).toBe(1);
    expect(last).toMatchObject({ endedAtMs: undefined, outcome: undefined });
  });

  it("makes up at once for what it has skipped when missed is once", async () => {
    const { sluice, queue, declare, mostWaitingUntilMissed } = await openSchedule(sluices);
    const end = deferred();
    const ran: string[] = [];
    sluice.worker(queue, async ({ id }) => {
      ran.push(id);
      if (ran.length === 1) await end.promise;
    });
    await declare({ every: 500, overlap: false, missed: "once" });
    await mostWaitingUntilMissed(2);

    end.resolve();
    await waitUntil(() => ran.length >= 2, "it runs again");

    const times = ran.map((id) => Number(id.split(":")[2]));
    expect((times[1]! - times[0]!) % 500).not.toBe(0);
  });
});
