import { describe, expect, it } from "vitest";
import type { EnqueueOptions, QueueOptions, WorkerOptions } from "sluice";
import { waitUntil } from "../../support/async/wait-until.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
/** The next try comes at once, before any other job of its key. */
const AT_ONCE = { baseMs: 1, maxMs: 1 };

/** A worker that meets a downstream that refuses connections for jobs whose data `refused` has. */
function start(
  refused: ReadonlySet<string>,
  { options, ordered }: { options?: WorkerOptions; ordered?: QueueOptions["ordered"] } = {},
) {
  const sluice = sluices.open({ logger: { warn: () => {}, error: () => {} } });
  const breaker = { failures: 5, coolMs: 20, maxCoolMs: 50 };
  const bucket = sluice.bucket("downstream", { rate: "50/s", breaker });
  const queue = sluice.queue<string>("jobs", { bucket, ordered });
  let opened = 0;
  let handled = 0;
  bucket.on("unreachable", () => (opened += 1));
  const handler = ({ data }: { readonly data: string }): void => {
    handled += 1;
    if (!refused.has(data)) return;
    throw Object.assign(new Error("refused"), { code: "ECONNREFUSED" });
  };
  const worker = sluice.worker(queue, handler, options);
  return { queue, worker, opened: () => opened, handled: () => handled };
}

describe("jobs that fail before the breaker has opened", () => {
  it.each<[string, EnqueueOptions, WorkerOptions]>([
    ["of one key, tried again before others", { key: "bad", attempts: 3 }, {}],
    ["of one key, one at a time", { key: "bad", attempts: 3 }, { concurrency: 1 }],
    ["of one key, tried once", { key: "bad", attempts: 1 }, { concurrency: 1 }],
    ["without a key, tried once", { attempts: 1 }, {}],
  ])("are no dead letters, once it does: %s", async (_which, job, options) => {
    const refused = new Set(["x"]);
    const { queue, opened } = start(refused, { options });
    await queue.enqueueMany(
      Array.from({ length: 20 }, () => "x"),
      { ...job, backoff: AT_ONCE },
    );
    await waitUntil(() => opened() >= 3, "it is open, and was tried");
    const { failed } = await queue.counts();

    refused.clear();
    await waitUntil(async () => (await queue.counts()).done === 20, "all are done");

    expect(failed).toBe(0);
  });

  it("are no dead letters in batches either, of which each call counts once", async () => {
    const sluice = sluices.open({ logger: { warn: () => {}, error: () => {} } });
    const breaker = { failures: 5, coolMs: 20, maxCoolMs: 50 };
    const bucket = sluice.bucket("downstream", { rate: "50/s", breaker });
    const queue = sluice.queue<string>("jobs", { bucket });
    let isBack = false;
    let opened = 0;
    bucket.on("unreachable", () => (opened += 1));
    const handler = (): void => {
      if (isBack) return;
      throw Object.assign(new Error("refused"), { code: "ECONNREFUSED" });
    };
    await queue.enqueueMany(
      Array.from({ length: 20 }, () => "x"),
      { attempts: 1 },
    );
    sluice.worker(queue, handler, { concurrency: 1, batch: { size: 2, waitMs: 1 } });
    await waitUntil(() => opened >= 3, "it is open, and was tried");
    const { failed } = await queue.counts();

    isBack = true;
    await waitUntil(async () => (await queue.counts()).done === 20, "all are done");

    expect(failed).toBe(0);
  });

  it("go back uncounted when their worker closes before it opens", async () => {
    const refused = new Set(["x"]);
    const { queue, worker, handled } = start(refused);
    await queue.pause({ key: "later" });
    await queue.enqueue("x", { key: "now", attempts: 1 });
    await queue.enqueue("x", { key: "later", attempts: 1 });
    await waitUntil(() => handled() === 1, "the first has failed");
    await worker.close();
    expect((await queue.counts()).failed).toBe(0);

    await queue.resume({ key: "later" });
    start(new Set());
    await waitUntil(async () => (await queue.counts()).done === 2, "both are done");
  });
});

describe("a job that alone is refused", () => {
  it("ends as a dead letter after its attempts, with none of others left", async () => {
    const { queue, handled } = start(new Set(["x"]));
    await queue.enqueue("x", { key: "bad", attempts: 3, backoff: AT_ONCE });
    await waitUntil(async () => (await queue.counts()).failed === 1, "it has ended");

    expect(handled()).toBe(3);
  });

  it("ends as a dead letter beside others of its key, once one of those goes well", async () => {
    const { queue, opened } = start(new Set(["x"]), { options: { concurrency: 1 } });
    await queue.enqueueMany(["x", ...Array.from({ length: 20 }, () => "good")], {
      key: "acme",
      attempts: 1,
    });
    await waitUntil(async () => (await queue.counts()).done === 20, "the others are done");
    await waitUntil(async () => (await queue.counts()).failed === 1, "it has ended");

    expect(opened()).toBe(0);
  });

  it("does not hold up an ordered key: no other of it could begin", async () => {
    const { queue } = start(new Set(["x"]), { ordered: true });
    await queue.enqueueMany(["x", "good"], { key: "acme", attempts: 1 });

    await waitUntil(async () => (await queue.counts()).done === 1, "the next one is done");

    expect((await queue.counts()).failed).toBe(1);
  });
});
