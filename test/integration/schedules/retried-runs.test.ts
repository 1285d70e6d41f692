import { describe, expect, it } from "vitest";
import { JobCancelledError, RetryAfter, type EnqueueOptions, type QueuedJob } from "sluice";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { openSchedule, type OpenedSchedule } from "../../support/jobs/open-schedule.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const LONG_MS = 600_000;

interface Retried extends OpenedSchedule {
  /** The run that failed; its next attempt is ten minutes away. */
  readonly run: QueuedJob<string>;
  /** The runs that began, with their attempts. */
  readonly begun: string[];
}

/** A schedule whose first run has failed and waits for its next attempt. All later attempts succeed. */
async function openRetried(options: Partial<EnqueueOptions> = {}): Promise<Retried> {
  const opened = await openSchedule(sluices);
  const begun: string[] = [];
  opened.sluice.worker(opened.queue, async ({ id }, { attempt }) => {
    begun.push(`${id} ${attempt}`);
    if (begun.length === 1) throw new RetryAfter(LONG_MS);
  });
  const first = await opened.declare(options);
  // Of cron, the first time may be a while away.
  await waitUntil(() => begun.length === 1, "a run has begun");
  const run = (await opened.queue.job(begun[0]!.split(" ")[0]!)) ?? first;
  await waitUntil(
    async () => (await opened.waiting()) === 1 && (await run.state()) === "delayed",
    "it is the one that waits",
  );
  const { missed } = await opened.schedule();
  await waitUntil(async () => (await opened.schedule()).missed > missed, "times pass meanwhile");
  return { ...opened, run, begun };
}

/** Every second; the shortest that cron knows. */
const CRON: Partial<EnqueueOptions> = { every: undefined, cron: "* * * * * *" };

describe("a run of a schedule that waits for its next attempt", () => {
  it.each([
    ["runNow", ({ run }: Retried) => run.runNow()],
    ["reschedule", ({ run }: Retried) => run.reschedule({ delayMs: 1 })],
    ["rescheduleJobs", ({ queue }: Retried) => queue.rescheduleJobs({}, { delayMs: 1 })],
  ])("begins it by %s, and the schedule goes on", async (_how, act) => {
    const retried = await openRetried();

    expect(Number(await act(retried))).toBe(1);
    await waitUntil(() => retried.begun.length >= 3, "the next run has begun");

    const { id } = retried.run;
    expect(retried.begun.slice(0, 2)).toEqual([`${id} 1`, `${id} 2`]);
    expect(retried.begun[2]).toMatch(/^repeat:sync:\d+ 1$/);
    expect(retried.begun[2]).not.toContain(id);
  });

  const REMOVALS: readonly [string, (retried: Retried) => Promise<boolean | number>][] = [
    ["job.cancel", ({ run }) => run.cancel()],
    ["queue.cancel", ({ queue, run }) => queue.cancel(run.id)],
    ["job.remove", ({ run }) => run.remove()],
    ["queue.remove", ({ queue, run }) => queue.remove(run.id)],
    ["removeJobs", ({ queue }) => queue.removeJobs({ state: "delayed" })],
    ["drain", ({ queue }) => queue.drain()],
  ];
  const SCHEDULES: readonly [string, Partial<EnqueueOptions>][] = [
    ["every", {}],
    ["cron", CRON],
    ["every, with a key", { key: "acme" }],
    ["every, with one that makes up for all", { missed: "once" }],
  ];
  const cases = SCHEDULES.flatMap(([of, options]) =>
    // All ways with one schedule, and two ways with each.
    REMOVALS.filter((_each, at) => of === "every" || at === 0 || at === 4).map(
      ([how, act]) => [how, of, act, options] as const,
    ),
  );
  it.each(cases)("ends by %s (%s), and the schedule goes on", async (_how, _of, act, options) => {
    const retried = await openRetried(options);
    const { id } = retried.run;

    expect(Number(await act(retried))).toBe(1);
    await waitUntil(() => retried.begun.length >= 3, "the next runs have begun");

    expect(await retried.queue.job(id)).toBeUndefined();
    expect(retried.begun.filter((each) => each.startsWith(`${id} `))).toEqual([`${id} 1`]);
    await waitUntil(async () => (await retried.schedule()).last?.outcome === "done", "it is done");
  });

  it("is reported as cancelled to callers that wait for its end", async () => {
    const { queue, run } = await openRetried();
    const outcome = rejectionOf(run.finished());

    await queue.cancel(run.id);

    expect(await outcome).toBeInstanceOf(JobCancelledError);
  });

  it("is when the schedule is said to run next; and is the last that ended when it was removed", async () => {
    const { schedule, run, queue } = await openRetried({ every: 1_000 });
    const eta = (await run.eta())!;
    const before = await schedule();

    await queue.remove(run.id);
    const { last, nextAtMs, missed } = await schedule();

    expect(before.nextAtMs).toBeGreaterThan(before.last!.startedAtMs + LONG_MS - 1);
    expect(eta.startsInMs).toBeGreaterThan(LONG_MS / 2);
    expect(nextAtMs).toBeLessThan(before.nextAtMs);
    expect(missed).toBeGreaterThanOrEqual(before.missed);
    const endedAtMs = last!.id === run.id ? last!.endedAtMs : 0;
    expect(endedAtMs).toEqual(expect.any(Number));
  });

  it("stays where it is, whatever is done with it, if it has not begun", async () => {
    const { queue, declare } = await openSchedule(sluices);
    const run = await declare({ every: 3_600_000 });

    expect([
      await run.runNow(),
      await run.reschedule({ delayMs: 1 }),
      await run.cancel(),
      await run.remove(),
      await queue.removeJobs({}),
      await queue.rescheduleJobs({}, { delayMs: 1 }),
      await queue.drain(),
    ]).toEqual([false, false, false, false, 0, 0, 0]);
    expect(await run.state()).toBe("waiting");
  });
});
