import { describe, expect, it } from "vitest";
import type { BucketOptions, Queue, QueueOptions, Sluice } from "sluice";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const sluices = realSluices();
const JOBS = Array.from({ length: 80 }, (_, number) => number);

interface Opened {
  readonly sluice: Sluice;
  readonly queue: Queue<number>;
}

function open(weights?: QueueOptions["weights"], fair?: BucketOptions["fair"]): Opened {
  const sluice = sluices.open();
  const bucket = sluice.bucket("downstream", { rate: "500/s", fair });
  return { sluice, queue: sluice.queue<number>("jobs", { bucket, weights }) };
}

/** How many of gold's are among the first 60 that start, beside as many of another key. */
async function goldAmongFirst({ sluice, queue }: Opened): Promise<number> {
  const started: string[] = [];
  sluice.worker(queue, async ({ key }) => void started.push(key as string), { concurrency: 1 });
  await waitUntil(() => started.length >= 60, "sixty have started");
  return started.slice(0, 60).filter((key) => key === "gold").length;
}

/** A backlog of two keys, of which gold has weight 5. */
async function openWithBacklog(): Promise<Opened> {
  const opened = open({ gold: 5 });
  await opened.queue.enqueueMany(JOBS, { key: "gold" });
  await opened.queue.enqueueMany(JOBS, { key: "plain" });
  return opened;
}

describe("the weight of a lane that has jobs", () => {
  it.each<[string, QueueOptions["weights"]]>([
    ["a table says 1", { gold: 1 }],
    ["a table no longer names its key", { silver: 2 }],
    ["a function says 1", () => 1],
    ["the queue has no weights any more", undefined],
  ])("returns to 1 with the next job that joins it when %s", async (_when, weights) => {
    await openWithBacklog();
    const later = open(weights);
    await later.queue.enqueue(80, { key: "gold" });

    const gold = await goldAmongFirst(later);

    expect(Math.abs(gold - 30)).toBeLessThanOrEqual(6);
  });

  it("is that of calls of its key, if the queue has no weights", async () => {
    const opened = open(undefined, { weights: { gold: 5 } });
    await opened.queue.enqueueMany(JOBS, { key: "gold" });
    await opened.queue.enqueueMany(JOBS, { key: "plain" });

    const gold = await goldAmongFirst(opened);

    expect(Math.abs(gold - 50)).toBeLessThanOrEqual(6);
  });

  it("stays the same when one of its jobs gets another priority", async () => {
    const opened = await openWithBacklog();
    const last = await opened.queue.enqueue(80, { key: "gold" });
    await opened.queue.reprioritise(last.id, "high");

    const gold = await goldAmongFirst(opened);

    expect(Math.abs(gold - 50)).toBeLessThanOrEqual(6);
  });
});
