import type { PolicyOptions, Queue, Sluice } from "sluice";
import { importBuild } from "../compare/import-build.ts";
import type { Contender } from "./contender.ts";
import { storeJobs } from "./store-jobs.ts";

const KEYS = 100;
const OF_KEY: PolicyOptions["perKey"] = { rate: "50/s" };

/** Sluice's queue and worker. A job counts as arrived when its handler starts. */
export const sluiceJobs: Contender = jobs("Sluice jobs", { isKeyed: false });
/** The same with a key for each job, and a limit per key. */
export const sluiceKeyedJobs: Contender = jobs("Sluice jobs with keys", { isKeyed: true });

function jobs(title: string, { isKeyed }: { readonly isKeyed: boolean }): Contender {
  function openQueue(sluice: Sluice, cap: number): Queue<number> {
    const policy = { rate: `${cap}/s`, ...(isKeyed && { perKey: OF_KEY }) } as const;
    return sluice.queue<number>("bench", { bucket: sluice.bucket("bench", policy) });
  }

  return {
    title,
    async preload({ redisUrl, build }, count) {
      const { createSluice } = await importBuild(build);
      await using sluice = createSluice({ redis: redisUrl });
      // The rate does not matter, because this only stores jobs and draws no slots.
      const queue = openQueue(sluice, 1);
      await storeJobs(count, (data) =>
        isKeyed
          ? queue.enqueueMany(data, (number) => ({ key: `k${number % KEYS}` }))
          : queue.enqueueMany(data),
      );
    },
    async connect({ redisUrl, cap, callers, build }) {
      const { createSluice } = await importBuild(build);
      const sluice = createSluice({ redis: redisUrl });
      const queue = openQueue(sluice, cap);
      return {
        start(onArrival) {
          const options = { concurrency: callers, closeDeadlineMs: 0 };
          sluice.worker(queue, async () => onArrival(), options);
        },
        stop() {},
        close: () => sluice.close(),
      };
    },
  };
}
