import { describe, expect, it } from "vitest";
import { createRunning } from "../../../../src/queue/worker/context.ts";
import { createJobLocks } from "../../../../src/queue/worker/held/held-jobs.ts";
import { fakeTimers } from "../../../support/async/fake-timers.ts";

const LOCK_MS = 1_000;
const pass = fakeTimers();

function setUp() {
  const running = createRunning();
  const setup = {
    running,
    /** What was asked for: job and token. */
    asked: [] as string[][],
    errors: [] as string[],
    /** How long Redis takes to answer, or the process to read it. */
    answerMs: 0,
    /** The jobs whose locks Redis does not renew. */
    refused: [] as string[],
    fetch: (jobId: string, token: string) => running.add({ jobId, token, attempt: 1 }),
  };
  const locks = createJobLocks({
    running,
    lockMs: LOCK_MS,
    async extend(ids, tokens) {
      setup.asked.push(ids.map((id, index) => `${id} ${tokens[index]}`));
      if (setup.answerMs > 0) await new Promise((resolve) => setTimeout(resolve, setup.answerMs));
      return setup.refused.filter((id) => ids.includes(id));
    },
    onError: ({ message }) => void setup.errors.push(message),
  });
  return Object.assign(setup, { locks });
}

describe("the locks of a worker's jobs", () => {
  it("are renewed before half of each is over, and no longer once its job has ended", async () => {
    const { asked, fetch, locks, running } = setUp();
    const job = fetch("1", "t0");

    await pass(LOCK_MS / 2);
    const before = asked.length;
    running.end(job);
    await pass(LOCK_MS);

    expect(before).toBeGreaterThan(0);
    expect(asked.length).toBe(before);
    expect(new Set(asked.flat())).toEqual(new Set(["1 t0"]));
    locks.close();
  });

  it("are not renewed while their jobs go back", async () => {
    const { asked, fetch, locks } = setUp();
    fetch("1", "t0").isGoingBack = true;

    await pass(LOCK_MS);

    expect(asked).toEqual([]);
    locks.close();
  });

  it("end the waits of jobs that have lost theirs, and log that once", async () => {
    const { asked, errors, fetch, locks, refused } = setUp();
    const jobs = [fetch("1", "t0"), fetch("2", "t1"), fetch("3", "t2")];
    const left: string[] = [];
    for (const job of jobs) job.add({ cancel: () => void left.push(job.jobId) });
    refused.push("1", "2");

    await pass(LOCK_MS * 2);

    expect(left).toEqual(["1", "2"]);
    expect(jobs.map(({ isLost }) => isLost)).toEqual([true, true, false]);
    expect(errors).toEqual([expect.stringContaining("lost their locks: 2")]);
    expect(asked.slice(1).every((each) => each.join() === "3 t2")).toBe(true);
    locks.close();
  });

  it("are distinguished by their tokens when a job was fetched again", async () => {
    const { asked, fetch, locks, running } = setUp();
    const before = fetch("1", "t0");
    const again = fetch("1", "t1");

    await pass(LOCK_MS / 2);
    running.end(before);
    await pass(LOCK_MS / 2);

    expect([before.isLost, again.isLost]).toEqual([true, false]);
    expect(asked.length).toBeGreaterThan(1);
    expect(new Set(asked.flat())).toEqual(new Set(["1 t1"]));
    locks.close();
  });

  it("count as held while they last, and are checked after that", async () => {
    const { fetch, locks, refused } = setUp();
    const [lost, kept] = [fetch("1", "t0"), fetch("2", "t1")];
    expect(locks.isHeld(lost)).toBe(true);
    for (const job of [lost, kept]) job.lockedAtMs -= LOCK_MS;

    expect([locks.isHeld(lost), locks.isHeld(kept)]).toEqual([false, false]);
    refused.push("1");
    expect(await locks.confirm(lost)).toBe(false);
    expect(await locks.confirm(kept)).toBe(true);
    locks.close();
  });

  it("last from the time of the request, and not of the reply", async () => {
    const setup = setUp();
    const { fetch, locks } = setup;
    const job = fetch("1", "t0");
    setup.answerMs = 2 * LOCK_MS;

    const confirming = locks.confirm(job);
    await pass(2 * LOCK_MS);

    expect(await confirming).toBe(false);
    locks.close();
  });
});
