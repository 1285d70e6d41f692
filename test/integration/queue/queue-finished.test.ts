import { describe, expect, it } from "vitest";
import { ClosedError, JobFailedError, JobMissingError, JobUnfinishedError } from "sluice";
import { openQueue } from "../../support/jobs/open-queue.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const sluices = realSluices();

describe("the end of a job", () => {
  it("returns the handler's result, whichever process ran the job", async () => {
    const { queue } = openQueue<number>(sluices);
    const worker = openQueue<number>(sluices);
    const job = await queue.enqueue(20);
    const ended = job.finished<{ doubled: number }>();

    worker.sluice.worker(worker.queue, async ({ data }) => ({ doubled: data * 2 }));

    expect(await ended).toEqual({ doubled: 40 });
  });

  it("is not missed when the job was done before", async () => {
    const { sluice, queue } = openQueue<number>(sluices);
    const job = await queue.enqueue(1);
    sluice.worker(queue, async () => "receipt");
    await waitUntil(async () => (await queue.counts()).done === 1, "the job is done");

    expect(await job.finished()).toBe("receipt");
    expect(await (await queue.job(job.id))!.finished({ timeoutMs: 0 })).toBe("receipt");
  });

  it("is noticed for each of 500 jobs that end while the waits begin", async () => {
    const { sluice, queue } = openQueue<number>(sluices, { rate: "100000/s" });
    sluice.worker(queue, async ({ data }) => data);
    const numbers = Array.from({ length: 500 }, (_, index) => index);

    const results = await Promise.all(
      numbers.map(async (number) => (await queue.enqueue(number)).finished()),
    );

    expect(results).toEqual(numbers);
  });

  it("is null for a handler that returns nothing", async () => {
    const { sluice, queue } = openQueue<number>(sluices);
    const job = await queue.enqueue(1);
    sluice.worker(queue, async () => {});

    expect(await job.finished()).toBe(null);
    expect(await job.finished()).toBe(null);
  });

  it("is a JobFailedError with the reason when the job has failed for good", async () => {
    const { sluice, queue } = openQueue<number>(sluices);
    const job = await queue.enqueue(1, { attempts: 2, backoff: { baseMs: 1 } });
    const heard = rejectionOf(job.finished());
    sluice.worker(queue, async () => {
      throw new Error("downstream says no");
    });

    const facts = { code: "ERR_JOB_FAILED", jobId: job.id, reason: "downstream says no" };
    expect(await heard).toBeInstanceOf(JobFailedError);
    expect(await heard).toMatchObject(facts);
    expect(await rejectionOf(job.finished())).toMatchObject(facts);
  });

  it("is a JobUnfinishedError after timeoutMs, and the job continues", async () => {
    const { sluice, queue } = openQueue<number>(sluices);
    const job = await queue.enqueue(1);

    const reason = await rejectionOf(job.finished({ timeoutMs: 20 }));
    sluice.worker(queue, async () => "done all the same");

    expect(reason).toBeInstanceOf(JobUnfinishedError);
    expect(reason).toMatchObject({ code: "ERR_JOB_UNFINISHED", jobId: job.id });
    expect(await job.finished()).toBe("done all the same");
  });

  it.each([
    ["removed", (queue: ReturnType<typeof openQueue>["queue"], id: string) => queue.remove(id)],
    ["drained", (queue: ReturnType<typeof openQueue>["queue"]) => queue.drain()],
  ])("is a JobMissingError when the job is %s", async (_name, remove) => {
    const { queue } = openQueue<unknown>(sluices);
    const job = await queue.enqueue(1);
    const heard = rejectionOf(job.finished());
    await rejectionOf(job.finished({ timeoutMs: 0 }));

    await remove(queue, job.id);

    expect(await heard).toBeInstanceOf(JobMissingError);
    expect(await rejectionOf(job.finished())).toMatchObject({ jobId: job.id });
  });

  it("is a JobMissingError when another process drains the queue, although no event reports it", async () => {
    const { queue } = openQueue<number>(sluices);
    const other = openQueue<number>(sluices);
    const job = await queue.enqueue(1);
    const heard = rejectionOf(job.finished());
    await rejectionOf(job.finished({ timeoutMs: 0 }));

    await other.queue.drain();

    expect(await heard).toBeInstanceOf(JobMissingError);
  });

  it("is a ClosedError for waiting callers when the sluice is closed", async () => {
    const { sluice, queue } = openQueue<number>(sluices);
    const job = await queue.enqueue(1);
    const heard = rejectionOf(job.finished());
    await rejectionOf(job.finished({ timeoutMs: 0 }));

    await sluice.close();

    expect(await heard).toBeInstanceOf(ClosedError);
    expect(await rejectionOf(job.finished())).toBeInstanceOf(ClosedError);
  });

  it("refuses an option that can never work", async () => {
    const { queue } = openQueue<number>(sluices);
    const job = await queue.enqueue(1);

    const reason = await rejectionOf(job.finished({ timeoutMs: -1 }));

    expect(reason).toMatchObject({ code: "ERR_INVALID_OPTION", option: "timeoutMs", value: -1 });
    const timeout = await rejectionOf(job.finished({ timeout: 5 } as never));
    expect((timeout as Error).message).toContain("did you mean timeoutMs?");
  });
});
