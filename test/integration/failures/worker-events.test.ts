import { Redis } from "ioredis";
import { describe, expect, inject, it, onTestFinished, vi } from "vitest";
import {
  InvalidOptionError,
  JobFailedError,
  type Logger,
  type Worker,
  type WorkerEvents,
} from "sluice";
import { deferred } from "../../support/async/deferred.ts";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { children } from "../../support/children/child.ts";
import { startHangingServer } from "../../support/servers/hanging-server.ts";
import { openQueue } from "../../support/jobs/open-queue.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const processes = children();
const SILENT: Logger = { warn: () => {}, error: () => {} };
const NAMES = ["active", "done", "failed", "dead", "error", "stalled", "closed"] as const;

type Notified = { [Name in keyof WorkerEvents]: { readonly event: Name } & WorkerEvents[Name] };

function hear(worker: Worker): Notified[keyof Notified][] {
  const told: Notified[keyof Notified][] = [];
  for (const event of NAMES) {
    worker.on(event, (facts) => void told.push({ event, ...facts } as Notified[keyof Notified]));
  }
  return told;
}

describe("the events of a worker", () => {
  it("report each attempt of its jobs, with the job and the thrown error", async () => {
    const { sluice, queue } = openQueue<string>(sluices, { logger: SILENT });
    const thrown = new TypeError("no");
    const worker = sluice.worker(queue, async ({ data }) => {
      if (data === "bad") throw thrown;
      return data;
    });
    const told = hear(worker as Worker);
    const options = { key: "acme", attempts: 2, backoff: { baseMs: 1 } };
    await (await queue.enqueue("good", { key: "acme" })).finished();
    await rejectionOf((await queue.enqueue("bad", options)).finished());
    await waitUntil(() => told.some(({ event }) => event === "dead"), "the end is told");
    await worker.close();

    const good = { job: { data: "good", key: "acme" }, attempt: 1 };
    const first = { job: { data: "bad", key: "acme" }, attempt: 1, attempts: 2 };
    const last = { ...first, attempt: 2 };
    expect(told).toMatchObject([
      { event: "active", ...good },
      { event: "done", ...good, result: "good" },
      { event: "active", ...first },
      { event: "failed", ...first, retryInMs: expect.any(Number) },
      { event: "active", ...last },
      { event: "failed", ...last, retryInMs: undefined },
      { event: "dead", ...last, reason: "no" },
      { event: "closed" },
    ]);
    const errors = told.flatMap((each) => (each.event === "failed" ? [each.error] : []));
    expect(errors).toEqual([thrown, thrown]);
    expect(errors[0]).toBe(thrown);
  });

  it("continue when a listener throws or rejects, and log that once each", async () => {
    const errors: string[] = [];
    const logger = { ...SILENT, error: (_facts: object, text: string) => void errors.push(text) };
    const { sluice, queue } = openQueue<number>(sluices, { logger });
    const worker = sluice.worker(queue, async ({ data }) => data);
    worker.on("active", () => {
      throw new Error("thrown");
    });
    worker.on("done", () => Promise.reject(new Error("rejected")));

    expect(await (await queue.enqueue(7)).finished()).toBe(7);

    await waitUntil(() => errors.length === 2, "both are told");
    expect(errors.join()).toMatch(/"active" of a worker of queue "jobs" failed: Error: thrown/);
    expect(errors.join()).toMatch(/"done" .* rejected/);
  });

  it("continue when the logger throws or rejects for them", async () => {
    const said: string[] = [];
    vi.spyOn(console, "error").mockImplementation((text: string) => void said.push(text));
    vi.spyOn(console, "warn").mockImplementation((text: string) => void said.push(text));
    onTestFinished(() => void vi.restoreAllMocks());
    const logger: Logger = {
      warn: () => Promise.reject(new Error("no disk")),
      error() {
        throw new Error("no disk");
      },
    };
    const { sluice, queue } = openQueue<number>(sluices, { logger });
    const fail = (): never => {
      throw new Error("thrown");
    };
    queue.on("done", fail);
    const worker = sluice.worker(queue, async ({ data }) => (data === 0 ? fail() : data));
    for (const event of NAMES) worker.on(event, fail);
    queue.on("failed", fail);

    const dead = await queue.enqueue(0, { attempts: 2, backoff: { baseMs: 1 } });
    expect(await rejectionOf(dead.finished())).toBeInstanceOf(JobFailedError);
    expect(await (await queue.enqueue(7)).finished()).toBe(7);

    const told =
      /The logger failed: Error: no disk. The lost message: A listener to "done" of queue/;
    await waitUntil(() => told.test(said.join("\n")), "what it did not log is on the console");
  });

  it.each(["worker", "sluice"] as const)(
    "report that it is closed after the job whose handler closed its %s without a wait",
    async (what) => {
      const { sluice, queue } = openQueue<number>(sluices);
      const other = openQueue<number>(sluices);
      const worker: Worker = sluice.worker(queue, async ({ data }) => {
        void (what === "worker" ? worker : sluice).close();
        return data;
      }) as Worker;
      const told = hear(worker);

      const { id } = await queue.enqueue(7);
      await waitUntil(() => told.some(({ event }) => event === "closed"), "it is closed");

      expect(told.map(({ event }) => event)).toEqual(["active", "done", "closed"]);
      expect(await (await other.queue.job(id))!.finished()).toBe(7);
    },
  );

  it("end with the listener, and unknown events are refused by name", () => {
    const { sluice, queue } = openQueue<number>(sluices);
    const worker = sluice.worker(queue, async () => {});

    expect(() => worker.on("complete" as never, () => {})).toThrow(InvalidOptionError);
    expect(() => worker.on("complete" as never, () => {})).toThrow("active, done, failed, dead");
    expect(() => worker.on("done", 5 as never)).toThrow(InvalidOptionError);
  });

  it("report a job of a worker that died, and failures that no handler caused", async () => {
    const { sluice, queue } = openQueue<string>(sluices, { logger: SILENT });
    const job = await queue.enqueue("one");
    const hanging = await startHangingServer();
    onTestFinished(() => hanging.close());
    const args = [inject("redisUrl"), sluices.prefix(), "1000/s", hanging.url];
    const dying = processes.start("workers/job-worker.ts", args);
    await waitUntil(() => hanging.came === 1, "it runs");
    dying.signal("SIGKILL");
    await dying.ended;
    const redis = new Redis(inject("redisUrl"));
    onTestFinished(async () => void (await redis.quit()));
    const worker = sluice.worker(
      queue,
      // Its end cannot be stored then.
      ({ id }) => redis.del(`${sluices.prefix()}:{jobs}:${id}`),
      { lockMs: 1_000 },
    );
    const told = hear(worker as Worker);
    await waitUntil(() => told.some(({ event }) => event === "error"), "the error is told");

    expect(told[0]).toEqual({ event: "stalled", jobId: job.id });
    expect(told.at(-1)).toMatchObject({ event: "error", error: expect.any(Error) });
  });
});

describe("the status of a worker", () => {
  it("counts running and queued jobs, and shows its state and since when", async () => {
    const beganMs = Date.now();
    const { sluice, bucket, queue } = openQueue<number>(sluices, { logger: SILENT });
    const hanging = deferred();
    const worker = sluice.worker(queue, () => hanging.promise, { concurrency: 3 });
    const fresh = worker.status();
    await queue.enqueueMany([1, 2, 3, 4]);
    await waitUntil(() => worker.status().running === 3, "three run");
    const busy = worker.status();

    await queue.pause();
    await waitUntil(() => worker.status().paused, "it hears of the pause");
    const closing = worker.close();
    const ending = worker.status();
    hanging.resolve();
    await closing;

    expect(fresh).toMatchObject({
      paused: false,
      state: "running",
      running: 0,
      waiting: 0,
      concurrency: 3,
    });
    expect(fresh.sinceMs).toBeGreaterThanOrEqual(beganMs);
    expect(busy).toMatchObject({ state: "running", running: 3, waiting: 0 });
    expect(ending).toMatchObject({ state: "closing", running: 3 });
    expect(worker.status()).toMatchObject({ state: "closed", running: 0, waiting: 0 });
    expect(bucket.waiting).toBe(0);
  });
});
