import { createSluice, type Queue, type Sluice } from "sluice";
import type { Contender } from "./contender.ts";
import { storeJobs } from "./store-jobs.ts";

/** Sluice's queue and worker; a job arrives when its handler starts. */
export const sluiceJobs: Contender = {
  title: "Sluice jobs",
  async preload(redisUrl, jobs) {
    await using sluice = createSluice({ redis: redisUrl });
    // The bucket's rate does not matter: nothing is drawn here.
    const queue = openQueue(sluice, 1);
    await storeJobs(jobs, (data) => queue.enqueueMany(data));
  },
  async connect({ redisUrl, cap, callers }) {
    const sluice = createSluice({ redis: redisUrl });
    const queue = openQueue(sluice, cap);
    return {
      start(onArrival) {
        sluice.worker(queue, async () => onArrival(), { concurrency: callers, closeDeadlineMs: 0 });
      },
      stop() {},
      close: () => sluice.close(),
    };
  },
};

function openQueue(sluice: Sluice, cap: number): Queue<number> {
  return sluice.queue<number>("bench", { bucket: sluice.bucket("bench", { rate: `${cap}/s` }) });
}
