import { describe, expect, it } from "vitest";
import type { QueueEmitter, QueueEventName, QueueEvents } from "sluice";
import { openQueue } from "../../support/jobs/open-queue.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const sluices = realSluices();

function hear<Name extends QueueEventName>(queue: QueueEmitter, name: Name): QueueEvents[Name][] {
  const heard: QueueEvents[Name][] = [];
  queue.on(name, (event) => void heard.push(event));
  return heard;
}

describe("the events of a queue", () => {
  it("report each step of a job, also of one that was enqueued right after the listener was added", async () => {
    const { queue } = openQueue<number>(sluices);
    const worker = openQueue<number>(sluices);
    const waiting = hear(queue, "waiting");
    const active = hear(queue, "active");
    const done = hear(queue, "done");

    const { id: jobId } = await queue.enqueue(7);
    worker.sluice.worker(worker.queue, async ({ data }) => data);
    await waitUntil(() => done.length > 0, "the job is done");

    expect(done).toEqual([{ jobId, result: 7 }]);
    expect(active).toContainEqual({ jobId });
    expect(waiting).toContainEqual({ jobId });
  });

  it("report each attempt that failed, and then the failure", async () => {
    const { sluice, queue } = openQueue<number>(sluices);
    const retrying = hear(queue, "retrying");
    const failed = hear(queue, "failed");

    const { id: jobId } = await queue.enqueue(1, { attempts: 3, backoff: { baseMs: 1 } });
    sluice.worker(queue, async (_job, { attempt }) => {
      throw new Error(`no ${attempt}`);
    });
    await waitUntil(() => failed.length > 0 && retrying.length === 2, "the job has failed");

    expect(failed).toEqual([{ jobId, reason: "no 3" }]);
    expect(retrying).toEqual([
      { jobId, attempt: 1, reason: "no 1" },
      { jobId, attempt: 2, reason: "no 2" },
    ]);
  });

  it("report when a delayed job is due, and which jobs were removed", async () => {
    const { queue } = openQueue<number>(sluices);
    const delayed = hear(queue, "delayed");
    const removed = hear(queue, "removed");

    const { id: jobId, enqueuedAtMs } = await queue.enqueue(1, { delayMs: 60_000 });
    await queue.remove(jobId);
    await waitUntil(() => removed.length > 0, "the job is removed");

    expect(delayed).toEqual([{ jobId, atMs: enqueuedAtMs + 60_000 }]);
    expect(removed).toEqual([{ jobId }]);
  });

  it("skip a removed listener, and reach other listeners although one throws", async () => {
    const errors: string[] = [];
    const logger = { warn: () => {}, error: (_facts: object, text: string) => errors.push(text) };
    const { sluice, queue } = openQueue<number>(sluices, { logger });
    let heardByFirst = 0;
    const first = (): void => void (heardByFirst += 1);
    queue.on("done", first);
    queue.on("done", () => {
      throw new Error("a mistake");
    });
    const done = hear(queue, "done");

    queue.off("done", first);
    await queue.enqueue(1);
    sluice.worker(queue, async () => {});
    await waitUntil(() => done.length > 0, "the job is done");

    expect(heardByFirst).toBe(0);
    expect(errors).toEqual([
      `A listener to "done" of queue "${queue.name}" failed: Error: a mistake`,
    ]);
  });

  it("refuse an unknown name, and an invalid listener", () => {
    const { queue } = openQueue<number>(sluices);

    expect(() => queue.on("finished" as "done", () => {})).toThrow(
      "the events are waiting, active",
    );
    expect(() => queue.on("done", "no" as never)).toThrow('option "listener"');
  });

  it("stop once the sluice is closed", async () => {
    const { sluice, queue } = openQueue<number>(sluices);
    queue.on("done", () => {});
    await queue.counts();

    await sluice.close();

    expect(() => queue.on("done", () => {})).toThrow("is closed");
  });
});
