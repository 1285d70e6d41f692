import { expect, it } from "vitest";
import { createBuckets } from "../../../src/sluice/buckets.ts";
import { createMemoryInsight } from "../../../src/stores/memory/memory-insight.ts";
import { createMemoryStore } from "../../../src/stores/memory/memory-store.ts";
import { beginVirtualTime } from "../mixes/virtual-time.ts";

const RATE = 100;
const TENANTS = 400;
const LOOPS = 100;
const TRIP_MS = 1;
/** The time in which a worker ends a job and fetches the next one. */
const FETCH_MS = 2;
const WARM_UP_MS = 2_000;
const FOR_MS = 4_000;
const LOGGER = { warn: () => undefined, error: () => undefined };

/** The guide on tenants names this number of jobs. */
it("a worker that holds the jobs of 0.3 s starts jobs of 400 tenants beside many calls of another", async () => {
  const time = beginVirtualTime();
  try {
    const near = createMemoryStore(() => Math.floor((performance.timeOrigin + time.now()) * 1_000));
    const store: typeof near = {
      ...near,
      async draw(request) {
        await time.sleep(TRIP_MS / 2);
        const drawn = await near.draw(request);
        await time.sleep(TRIP_MS / 2);
        return drawn;
      },
    };
    const parts = { store, insight: createMemoryInsight(), logger: LOGGER };
    const open = (replica: string) =>
      createBuckets({ ...parts, isRemote: false, isCluster: false }).open(replica, "downstream", {
        rate: `${RATE}/s`,
      });
    const [worker, caller] = [open("worker"), open("caller")];
    const started = { jobs: 0, calls: 0 };
    let fetched = 0;
    let hasEnded = false;
    async function runJobs(): Promise<void> {
      while (!hasEnded) {
        await time.sleep(FETCH_MS);
        await worker.draw({ key: `tenant ${(fetched += 1) % TENANTS}` });
        started.jobs += 1;
      }
    }
    async function keepCalling(): Promise<void> {
      while (!hasEnded) {
        await caller.draw({ key: "acme" });
        started.calls += 1;
      }
    }
    const running = [
      ...Array.from({ length: 0.3 * RATE }, runJobs),
      ...Array.from({ length: LOOPS }, keepCalling),
    ];
    await time.runUntil(time.now() + WARM_UP_MS);
    const before = { ...started };
    await time.runUntil(time.now() + FOR_MS);
    const [jobs, calls] = [started.jobs - before.jobs, started.calls - before.calls];
    hasEnded = true;
    await time.runUntil(time.now() + FOR_MS);
    await Promise.all(running);

    expect((jobs + calls) / ((RATE * FOR_MS) / 1_000)).toBeGreaterThanOrEqual(0.98);
    expect(calls / (jobs + calls)).toBeLessThanOrEqual(0.05);
  } finally {
    time.end();
  }
});
