import { randomInt } from "node:crypto";
import { describe, expect, it } from "vitest";
import { children } from "../../support/children/child.ts";
import { jobCalls, startLaneWorkers, type JobCall } from "../../support/jobs/lane-workers.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { reportFigures } from "../../support/docs/report-figures.ts";
import { useDownstream } from "../../support/servers/use-downstream.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

/** A process that stands still for half of it loses its locks, as one does that is killed. */
const LOCK_MS = 5_000;
const RATE = 250;
const JOBS = 4_000;
/** About two seconds of work at the rate. */
const CALLS_PER_DEATH = 2 * RATE;
const CONCURRENCY = 20;

const processes = children();
const sluices = realSluices();
const downstream = useDownstream();

function callsByJob(): ReadonlyMap<string, readonly JobCall[]> {
  const byJob = new Map<string, JobCall[]>();
  for (const call of jobCalls(downstream.arrivals)) {
    byJob.set(call.job, [...(byJob.get(call.job) ?? []), call]);
  }
  return byJob;
}

describe("workers of which one is killed every two seconds", () => {
  it("do each job, and repeat only the jobs whose worker died and whose lock expired", async () => {
    const policy = { rate: `${RATE}/s`, perKey: { rate: "75/s" } };
    const { queue } = openQueue(policy);
    const names = Array.from({ length: JOBS }, (_, index) => `job ${index}`);
    const keyOf = (index: number): string | undefined =>
      index % 2 === 0 ? undefined : `tenant ${index % 7}`;
    await queue.enqueueMany(names, (_name, index) => ({ key: keyOf(index) }));
    const settings = { prefix: sluices.prefix(), policy, url: downstream.url, handlerMs: 20 };
    const start = (count: number) =>
      startLaneWorkers(processes, count, {
        ...settings,
        concurrency: CONCURRENCY,
        lockMs: LOCK_MS,
      });
    const living = start(4);
    const killed: number[] = [];

    for (let reached = CALLS_PER_DEATH; reached < JOBS; reached += CALLS_PER_DEATH) {
      await waitUntil(() => downstream.arrivals.length >= reached, "they go on");
      const [doomed] = living.splice(randomInt(living.length), 1);
      doomed!.signal("SIGKILL");
      killed.push(doomed!.pid);
      living.push(...start(1));
    }
    await waitUntil(() => callsByJob().size === JOBS, "each job has reached the downstream");
    await waitUntil(async () => {
      const { active, waiting, delayed } = await queue.counts();
      return active + waiting + delayed === 0;
    }, "the queue is empty");

    const repeated = [...callsByJob().values()].filter((calls) => calls.length > 1);
    reportFigures("a worker is killed every 2 s", {
      again: jobCalls(downstream.arrivals).length - JOBS,
      jobs: JOBS,
      "workers killed": killed.length,
    });
    expect((await queue.counts()).failed).toBe(0);
    expect(repeated.length).toBeLessThanOrEqual(killed.length * CONCURRENCY);
    for (const calls of repeated) {
      for (const [index, call] of calls.slice(1).entries()) {
        const before = calls[index]!;
        expect(killed).toContain(before.pid);
        // A lock is renewed when half of it is over.
        expect(call.atMs - before.atMs).toBeGreaterThanOrEqual(LOCK_MS / 2);
      }
    }
  });
});

function openQueue(policy: { rate: string; perKey: { rate: string } }) {
  const sluice = sluices.open();
  return { queue: sluice.queue<string>("jobs", { bucket: sluice.bucket("downstream", policy) }) };
}
