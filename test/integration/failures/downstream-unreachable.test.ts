import { describe, expect, inject, it, onTestFinished } from "vitest";
import type { BucketOptions, EnqueueOptions, WorkerOptions } from "sluice";
import { waitUntil } from "../../support/async/wait-until.ts";
import { children, type Child } from "../../support/children/child.ts";
import type { CallingWorkerSettings } from "../../support/processes/workers/calling-worker.ts";
import { closedUrl } from "../../support/servers/closed-url.ts";
import {
  startOutageServer,
  type Outage,
  type OutageServer,
} from "../../support/servers/outage-server.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const processes = children();
const SHORT = { failures: 5, coolMs: 50, maxCoolMs: 400 };
/** So few that an outage of a few seconds would use them up. */
const FEW: EnqueueOptions = { attempts: 3, backoff: { baseMs: 20, maxMs: 100 } };

async function openDownstream(): Promise<OutageServer> {
  const server = await startOutageServer();
  onTestFinished(() => server.close());
  return server;
}

function openQueue(policy: BucketOptions) {
  const sluice = sluices.open({ logger: { warn: () => {}, error: () => {} } });
  return sluice.queue<string>("jobs", { bucket: sluice.bucket("downstream", policy) });
}

function startWorkers(count: number, policy: BucketOptions, options?: WorkerOptions): Child[] {
  const where = { redis: inject("redisUrl"), prefix: sluices.prefix() };
  const settings: CallingWorkerSettings = { ...where, policy, ...(options && { options }) };
  return Array.from({ length: count }, () =>
    processes.start("workers/calling-worker.ts", [JSON.stringify(settings)]),
  );
}

function heard(workers: readonly Child[], text: RegExp): number {
  return workers.flatMap(({ messages }) => messages).filter((line) => text.test(String(line)))
    .length;
}

async function close(workers: readonly Child[]): Promise<void> {
  for (const worker of workers) worker.send("close");
  for (const worker of workers) expect(await worker.ended).toBe(0);
}

const OUTAGES: Outage[] = ["refused", "reset", "hanging", 502, 503, 504];

describe("a downstream that is unreachable", () => {
  it.each(OUTAGES)("makes no dead letters of 200 jobs, however it fails: %s", async (outage) => {
    const downstream = await openDownstream();
    const policy = { rate: "1000/s", breaker: SHORT };
    const queue = openQueue(policy);
    await downstream.leave(outage);
    const { url } = downstream;
    await queue.enqueueMany(
      Array.from({ length: 200 }, () => url),
      FEW,
    );
    const workers = startWorkers(2, policy, { concurrency: 20, timeoutMs: 1_000 });
    // They try so often that the attempts would be used up.
    await waitUntil(() => heard(workers, /is unreachable after 5 failures/) >= 1, "one is open");
    await waitUntil(() => heard(workers, /not counted/) >= 12, "they try again");
    const { done, failed } = await queue.counts();

    await downstream.comeBack();
    await waitUntil(async () => (await queue.counts()).done === 200, "all are done");

    expect({ done, failed }).toEqual({ done: 0, failed: 0 });
    expect(downstream.served.size).toBe(200);
    expect((await queue.counts()).failed).toBe(0);
    await waitUntil(() => heard(workers, /answers again/) >= 1, "the end is heard");
    await close(workers);
  });

  it("gets few calls while unreachable, one at a time from each process", async () => {
    const downstream = await openDownstream();
    const policy = { rate: "1000/s", breaker: SHORT };
    const queue = openQueue(policy);
    await downstream.leave(502);
    await queue.enqueueMany(Array.from({ length: 200 }, () => downstream.url));
    const workers = startWorkers(1, policy, { concurrency: 20 });
    await waitUntil(() => heard(workers, /not counted/) >= 3, "it is open");
    const before = downstream.missed;
    await waitUntil(() => downstream.missed > before + 4, "it goes on to try");

    // Those that ran when it opened, and four tries.
    expect(before).toBeLessThanOrEqual(20 + 10);
    const [waited] = [await queue.counts()];
    expect(waited).toMatchObject({ done: 0, failed: 0 });
    await downstream.comeBack();
    await waitUntil(async () => (await queue.counts()).done === 200, "all are done");
    await close(workers);
  });

  it("stops only the jobs of its own key, where each key has a separate downstream", async () => {
    const [good, bad] = [await openDownstream(), await openDownstream()];
    const policy = { rate: "500/s", breaker: SHORT };
    const queue = openQueue(policy);
    await bad.leave("refused");
    const urls = Array.from({ length: 60 }, (_, at) => (at % 3 === 0 ? bad.url : good.url));
    await queue.enqueueMany(urls, (url) => ({
      // Some time apart: five of its jobs have to fail before one has used up its attempts.
      attempts: 4,
      backoff: { baseMs: 1_000 },
      key: url === bad.url ? "bad" : `good ${urls.length % 2}`,
    }));
    const workers = startWorkers(2, policy, { concurrency: 20 });
    await waitUntil(async () => (await queue.counts()).done === 40, "the others are done");
    await waitUntil(
      () =>
        heard(
          workers,
          /^Key "bad" of bucket .* is unreachable.*ECONNREFUSED.*Other keys continue/,
        ) >= 1,
      "its key is open",
    );
    const { failed } = await queue.counts();

    await bad.comeBack();
    await waitUntil(async () => (await queue.counts()).done === 60, "all are done");

    expect(failed).toBe(0);
    expect((await queue.counts()).failed).toBe(0);
    expect(bad.served.size).toBe(20);
    await close(workers);
  });

  it("is not assumed for a few jobs with bad URLs, which end as dead letters", async () => {
    const downstream = await openDownstream();
    const policy = { rate: "200/s", breaker: SHORT };
    const queue = openQueue(policy);
    const nowhere = await closedUrl();
    const urls = Array.from({ length: 200 }, (_, at) => (at % 40 === 0 ? nowhere : downstream.url));
    await queue.enqueueMany(urls, FEW);
    const workers = startWorkers(1, policy, { concurrency: 4 });
    await waitUntil(async () => {
      const { done, failed } = await queue.counts();
      return done + failed === 200;
    }, "all have ended");

    const letters = await queue.failed({ code: "ECONNREFUSED" });
    expect(letters.map(({ data, attempts }) => ({ data, attempts }))).toEqual(
      Array.from({ length: 5 }, () => ({ data: nowhere, attempts: 3 })),
    );
    expect(heard(workers, /is unreachable/)).toBe(0);
    await close(workers);
  });

  it("is not assumed for the last job, alone in its queue, which ends after its attempts", async () => {
    const policy = { rate: "200/s", breaker: SHORT };
    const queue = openQueue(policy);
    const job = await queue.enqueue(await closedUrl(), { ...FEW, attempts: 8 });
    const workers = startWorkers(1, policy);
    await waitUntil(async () => (await job.state()) === "failed", "it has ended");

    expect(await queue.failed()).toMatchObject([{ attempts: 8 }]);
    await close(workers);
  });

  it("uses up attempts where the breaker is off", async () => {
    const policy = { rate: "1000/s", breaker: false } as const;
    const queue = openQueue(policy);
    const url = await closedUrl();
    await queue.enqueueMany(
      Array.from({ length: 20 }, () => url),
      FEW,
    );
    const workers = startWorkers(1, policy);
    await waitUntil(async () => (await queue.counts()).failed === 20, "all have failed");

    expect(heard(workers, /is unreachable/)).toBe(0);
    await close(workers);
  });
});
