import { createMemoryInsight } from "../../../src/stores/memory/memory-insight.ts";
import { createMemoryStore } from "../../../src/stores/memory/memory-store.ts";
import type { Arrival } from "../../../src/entries/simulate/index.ts";
import type { Wake } from "../../../src/core/store.ts";
import { createBuckets } from "../../../src/sluice/buckets.ts";
import type { BucketOptions } from "../../../src/throttle/bucket/bucket-options.ts";
import type { VirtualTime } from "./virtual-time.ts";

const ONE_WAY_MS = 0.5;
const SILENT = { warn: () => undefined, error: () => undefined };

/**
 * Runs calls through the lines of real buckets, one for each replica, with a store that is a round trip of 1 ms away.
 * Resolves with the times at which they leave, in ms.
 */
export async function runRealLines(
  policy: BucketOptions,
  arrivals: readonly Arrival[],
  { replicas, latencyMs, time }: { replicas: number; latencyMs: number; time: VirtualTime },
): Promise<readonly number[]> {
  const memory = createMemoryStore(() => Math.floor((performance.timeOrigin + time.now()) * 1_000));
  const store = {
    ...memory,
    async draw(request: Parameters<typeof memory.draw>[0]) {
      const sentAtMs = performance.now();
      await time.sleep(ONE_WAY_MS);
      const drawn = await memory.draw(request);
      await time.sleep(ONE_WAY_MS);
      return { ...drawn, sentAtMs };
    },
    async release(request: Parameters<typeof memory.release>[0]) {
      await time.sleep(ONE_WAY_MS);
      return memory.release(request);
    },
    listen(replica: string, wake: Wake) {
      memory.listen(replica, (...message) => {
        void time.sleep(ONE_WAY_MS).then(() => wake(...message));
      });
    },
  };
  const parts = { store, insight: createMemoryInsight(), logger: SILENT };
  const buckets = Array.from({ length: replicas }, (_, index) =>
    createBuckets({ ...parts, isRemote: false, isCluster: false }).open(
      `replica-${index}`,
      "simulated",
      policy,
    ),
  );
  const startMs = time.now();
  const left: number[] = [];
  const calling = Promise.all(
    arrivals.map(async ({ atMs, key, cost, priority, replica }) => {
      await time.sleep(atMs);
      const options = { ...(key !== undefined && { key }), cost, priority };
      const slot = await buckets[replica!]!.draw(options);
      left.push(time.now() - startMs);
      await time.sleep(latencyMs);
      slot.release();
    }),
  );
  await time.runUntil(startMs + 60_000);
  await calling;
  const closing = Promise.all(buckets.map((bucket) => bucket.close()));
  await time.runUntil(time.now() + 60_000);
  await closing;
  return left;
}
