import { describe, expect, it } from "vitest";
import type { EnqueueOptions } from "sluice";
import { openQueue, type OpenedQueue } from "../../support/jobs/open-queue.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const sluices = realSluices();
const NAME = { dedupeId: "report" };
const CRON = "* * * * * *";
const HOUR_MS = 3_600_000;

/** How a job recurs, under a name that all here share. */
type Recurring = Pick<EnqueueOptions, "priority"> &
  ({ readonly every: number } | { readonly cron: string; readonly timeZone?: string });

const CHANGES: readonly [string, Recurring, Recurring][] = [
  ["the same cron", { cron: CRON }, { cron: CRON }],
  ["another cron", { cron: CRON }, { cron: "0 0 1 1 *" }],
  ["another time zone", { cron: CRON }, { cron: CRON, timeZone: "Asia/Tokyo" }],
  ["every instead of cron", { cron: CRON }, { every: HOUR_MS }],
  ["the same every", { every: HOUR_MS }, { every: HOUR_MS }],
  ["another every", { every: HOUR_MS }, { every: 2 * HOUR_MS }],
  ["cron instead of every", { every: HOUR_MS }, { cron: "0 0 1 1 *" }],
];

/** A schedule whose run is due, and waits for a worker. */
async function withDueRun(
  before: Recurring,
  more: Pick<EnqueueOptions, "maxWaitMs"> = { maxWaitMs: 60_000 },
) {
  const opened = openQueue<string>(sluices);
  const { id } = await opened.queue.enqueue("old", { ...before, ...NAME, ...more });
  const { nextAtMs } = (await opened.queue.schedules())[0]!;
  await waitUntil(() => Date.now() > nextAtMs, "it is due");
  return { ...opened, due: (await opened.queue.job(id))!, dueAtMs: nextAtMs };
}

/** All jobs that run until the due one has ended: their ids and data. */
async function runUntilDone({ sluice, queue }: OpenedQueue<string>, id: string) {
  const ran: { id: string; data: string }[] = [];
  sluice.worker(queue, async (job) => void ran.push({ id: job.id, data: job.data }));
  await (await queue.job(id))!.finished();
  return ran.filter((run) => run.id === id);
}

describe("a run that is due as its schedule is declared again", () => {
  it.each(CHANGES)("stays, with its deadline and the newest data: %s", async (_name, one, two) => {
    const { due, ...opened } = await withDueRun(one);

    const again = await opened.queue.enqueue("new", { ...two, ...NAME, maxWaitMs: 60_000 });
    const ran = await runUntilDone(opened, due.id);

    expect(again).toMatchObject({ id: due.id, data: "new", startByMs: due.startByMs });
    expect(ran).toEqual([{ id: due.id, data: "new" }]);
  });

  it.each(CHANGES)("goes with its schedule when that is ended: %s", async (_name, one, two) => {
    const { due, queue } = await withDueRun(one);

    await queue.enqueue("new", { ...two, ...NAME });
    const isEnded = await queue.unschedule("report");

    expect(isEnded).toBe(true);
    expect(await due.state()).toBeUndefined();
    expect(await queue.counts()).toMatchObject({ waiting: 0, delayed: 0 });
  });

  it("goes by its newest priority, also before those that came since", async () => {
    const { due, ...opened } = await withDueRun({ every: HOUR_MS, priority: "low" });
    await opened.queue.enqueueMany(["other", "other"]);

    const again = await opened.queue.enqueue("new", {
      every: HOUR_MS,
      priority: "critical",
      ...NAME,
    });
    const started: string[] = [];
    const work = async ({ data }: { data: string }): Promise<void> => void started.push(data);
    opened.sluice.worker(opened.queue, work, { concurrency: 1 });
    await waitUntil(() => started.length === 3, "all have started");

    expect(again).toMatchObject({ id: due.id, priority: "critical" });
    expect((await opened.queue.job(due.id))!.priority).toBe("critical");
    expect(started[0]).toBe("new");
  });

  it("is declared whole by each of many who do so at once", async () => {
    const { due, queue } = await withDueRun({ every: HOUR_MS });
    const ways: Recurring[] = [{ every: 2 * HOUR_MS }, { cron: "0 9 * * *" }];

    await Promise.all(
      Array.from({ length: 40 }, (_, number) =>
        queue.enqueue(`way ${number % 2}`, { ...ways[number % 2], ...NAME }),
      ),
    );
    const [schedule] = await queue.schedules();
    const run = await queue.job(due.id);

    const way = schedule!.cron === undefined ? 0 : 1;
    expect(schedule).toMatchObject({ every: undefined, cron: undefined, ...ways[way] });
    expect(run!.data).toBe(`way ${way}`);
  });

  it("is followed by one at the newest time of cron", async () => {
    const { due, dueAtMs, ...opened } = await withDueRun({ every: HOUR_MS });

    await opened.queue.enqueue("new", { cron: "0 0 1 1 *", ...NAME });
    await runUntilDone(opened, due.id);
    const [schedule, ...others] = await opened.queue.schedules();

    const newYear = Date.UTC(new Date(dueAtMs).getUTCFullYear() + 1, 0, 1);
    expect(others).toEqual([]);
    expect(schedule).toMatchObject({ cron: "0 0 1 1 *", every: undefined, nextAtMs: newYear });
  });

  it.each<[string, Recurring]>([
    ["cron", { cron: CRON }],
    ["another every", { every: HOUR_MS }],
  ])("is followed by one as long after it as the newest every says: %s before", async (_, one) => {
    const { due, dueAtMs, ...opened } = await withDueRun(one);

    await opened.queue.enqueue("new", { every: 2 * HOUR_MS, ...NAME });
    await runUntilDone(opened, due.id);
    const [schedule, ...others] = await opened.queue.schedules();

    const nextAtMs = dueAtMs + 2 * HOUR_MS;
    expect(others).toEqual([]);
    expect(schedule).toMatchObject({ cron: undefined, every: 2 * HOUR_MS, nextAtMs });
  });

  it("goes on as it was when a worker has just fetched it, and the next is as declared now", async () => {
    // A pause without end would make a run with a deadline expire.
    const { due, dueAtMs, queue, sluice, bucket } = await withDueRun({ every: HOUR_MS }, {});
    await bucket.pause();
    const ran: string[] = [];
    sluice.worker(queue, async ({ data }) => void ran.push(data));
    await waitUntil(async () => (await due.state()) === "active", "a worker holds it");

    const again = await queue.enqueue("new", { every: 2 * HOUR_MS, ...NAME });
    const [schedule] = await queue.schedules();
    await bucket.resume();
    await due.finished();
    const [next] = await queue.schedules();

    expect(again).toMatchObject({ id: due.id, data: "old" });
    expect(schedule).toMatchObject({ every: 2 * HOUR_MS, nextAtMs: dueAtMs });
    expect(ran).toEqual(["old"]);
    expect(next).toMatchObject({ every: 2 * HOUR_MS, nextAtMs: dueAtMs + 2 * HOUR_MS });
    expect(await queue.job(`repeat:report:${next!.nextAtMs}`)).toMatchObject({ data: "new" });
  });
});
