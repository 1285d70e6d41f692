import { concurrency, leakyBucket, slidingLog, type Bucket, type Queue, type Sluice } from "sluice";
import { waitUntil } from "../async/wait-until.ts";

/** Uses all that a sluice can do, each part once. */
export async function useAll(sluice: Sluice): Promise<void> {
  const bucket = sluice.bucket("b", {
    limits: [
      leakyBucket("1000/s"),
      slidingLog(1_000_000, "1min", { unit: "tokens" }),
      concurrency(5),
    ],
    perKey: { rate: "500/s", concurrency: 5 },
  });
  await useBucket(bucket);
  await useQueue(sluice, sluice.queue<number>("jobs", { bucket }));
  await operate(sluice, bucket);
}

async function operate(sluice: Sluice, bucket: Bucket): Promise<void> {
  await waitUntil(async () => (await sluice.overview()).buckets.length === 1, "it is told of");
  await bucket.pause({ forMs: 60_000 });
  await bucket.status();
  await bucket.undo();
  await bucket.configure("code", { generation: (await bucket.status()).generation });
  await bucket.history();
  await sluice.changes({ bucket: "b" });
  await sluice.find("b");
}

async function useBucket(bucket: Bucket): Promise<void> {
  await bucket.throttled(async () => "done", { key: "a", cost: { tokens: 10 } })();
  const slot = await bucket.draw({ key: "a", cost: { tokens: 100 } });
  await slot.settle({ tokens: 50 });
  slot.release();
  await bucket.tryDraw({ key: "b" });
  // More than can run at once, so that some wait for a lease, and hear of it.
  const calls = bucket.throttled(async () => "done", { key: "c" });
  await Promise.all(Array.from({ length: 20 }, () => calls()));
  await bucket.pause({ forMs: 1 });
  await bucket.resume();
  await bucket.configure({ rate: "900/s", perKey: { rate: "400/s", concurrency: 5 } });
  await bucket.configure("code");
  await bucket.peek({ key: "a" });
}

async function useQueue(sluice: Sluice, queue: Queue<number>): Promise<void> {
  const heard: string[] = [];
  queue.on("done", ({ jobId }) => void heard.push(jobId));
  await queue.enqueueMany([1, 2], { key: "a" });
  const job = await queue.enqueue(3, {
    dedupeId: "three",
    priority: "high",
    attempts: 2,
    backoff: { baseMs: 1 },
  });
  await queue.enqueue(4, { key: "b", delayMs: 1 });
  const gone = await queue.enqueue(5, { delayMs: 60_000 });
  await queue.enqueue(6, { dedupeId: "six", every: 60_000 });
  await queue.reprioritise(gone.id, "low");
  await gone.remove();
  await job.state();
  await job.eta();
  await queue.pause();
  await queue.resume();
  await queue.forecast({ key: "a" });
  await steer(queue);

  let isRefused = true;
  const worker = sluice.worker(queue, async ({ data }, { progress, log }) => {
    await progress(50);
    await log("half of it");
    if (data === 3 && isRefused) throw new Error("not yet");
  });
  await waitUntil(async () => (await queue.failed()).length === 1, "a job is a dead letter");
  isRefused = false;
  await queue.replay(job.id);
  await job.finished();
  await waitUntil(() => heard.includes(job.id), "the end of a job is heard of");
  await job.logs();
  await job.progress();
  await queue.purge({});
  await pageThrough(queue);
  await queue.removeJobs({ state: "done", limit: 1 });
  await queue.schedules();
  await queue.unschedule("six");
  await queue.drain();
  await queue.counts();
  await worker.close();
}

async function steer(queue: Queue<number>): Promise<void> {
  await queue.pause({ key: "c", forMs: 60_000 });
  const job = await queue.enqueue(7, { key: "c" });
  await queue.paused();
  await job.update(8);
  await job.reschedule({ delayMs: 60_000 });
  await job.runNow();
  await queue.rescheduleJobs({ key: "c" }, { delayMs: 60_000 });
  await queue.removeJobs({ key: "c", limit: 1 });
  await queue.counts({ key: "c" });
  await queue.drain({ key: "c" });
  await queue.resume({ key: "c" });
  await (await queue.enqueue(9, { key: "c" })).cancel();
}

async function pageThrough(queue: Queue<number>): Promise<void> {
  let cursor: string | undefined;
  do ({ cursor } = await queue.jobs({ limit: 1, cursor }));
  while (cursor !== undefined);
}
