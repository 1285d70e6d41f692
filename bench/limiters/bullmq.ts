import { Queue, Worker, type RedisOptions } from "bullmq";
import type { Contender } from "./contender.ts";
import { storeJobs } from "./store-jobs.ts";

const NAME = "bench";
/** Keeps as many finished jobs as Sluice's workers do, so that both do the same work. */
const KEEP_DONE = { count: 1_000, age: 86_400 };

/** BullMQ with its own `limiter`. A job counts as arrived when its processor starts. */
export const bullmq: Contender = contender({ title: "BullMQ limiter", isLimited: true });

/** BullMQ without a limiter. */
export const bullmqWithoutLimiter: Contender = contender({ title: "BullMQ", isLimited: false });

/** BullMQ without a limiter, whose jobs are added while it works: see `addSteadily`. */
export const bullmqOnDemand: Contender = {
  title: bullmqWithoutLimiter.title,
  connect: (setup) => bullmqWithoutLimiter.connect(setup),
};

/** Adds single jobs at a steady rate, until it is stopped. */
export function addSteadily(redisUrl: string, perSecond: number): { stop(): Promise<void> } {
  const queue = new Queue(NAME, { connection: connectionTo(redisUrl) });
  const fromMs = performance.now();
  let added = 0;
  let adding: Promise<unknown> = Promise.resolve();
  const timer = setInterval(() => {
    const due = Math.floor(((performance.now() - fromMs) * perSecond) / 1_000) - added;
    const jobs = Array.from({ length: due }, () => ({ name: "job", data: (added += 1) }));
    if (jobs.length > 0) adding = queue.addBulk(jobs);
  }, 1);
  return {
    async stop() {
      clearInterval(timer);
      await adding;
      await queue.close();
    },
  };
}

function contender({ title, isLimited }: { title: string; isLimited: boolean }): Contender {
  return {
    title,
    async preload({ redisUrl }, jobs) {
      const queue = new Queue(NAME, { connection: connectionTo(redisUrl) });
      await storeJobs(jobs, (data) =>
        queue.addBulk(data.map((each) => ({ name: "job", data: each }))),
      );
      await queue.close();
    },
    async connect({ redisUrl, cap, callers }) {
      let arrive = (): void => {};
      const worker = new Worker(NAME, async () => arrive(), {
        connection: { ...connectionTo(redisUrl), maxRetriesPerRequest: null },
        autorun: false,
        concurrency: callers,
        removeOnComplete: KEEP_DONE,
        ...(isLimited && { limiter: { max: cap, duration: 1_000 } }),
      });
      worker.on("error", () => {}); // closing while jobs run causes some
      await worker.waitUntilReady();
      return {
        start(onArrival) {
          arrive = onArrival;
          void worker.run();
        },
        stop() {},
        close: () => worker.close(true),
      };
    },
  };
}

export function connectionTo(redisUrl: string): RedisOptions {
  const { hostname: host, port } = new URL(redisUrl);
  return { host, port: Number(port) };
}
