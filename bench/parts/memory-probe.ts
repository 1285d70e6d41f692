import { createSluice, type Slot } from "sluice";

/** The report of a separate process, whose heap contains nothing else. */
export interface MemoryReport {
  readonly bytesPerCaller: number;
  readonly startedInOrder: boolean;
  /** The size of a bucket that has had no draw. */
  readonly bytesPerBucket: number;
}

const CALLERS = 100_000;
const BUCKETS = 1_000;

async function probe(redisUrl: string): Promise<MemoryReport> {
  await using sluice = createSluice({ redis: redisUrl });
  const bucket = sluice.bucket("memory", { rate: "200000/s" });
  await bucket.draw();
  const waits: Promise<Slot>[] = Array.from({ length: CALLERS });

  // Makes all calls in one tick, so that no call starts before the measurement.
  const callerBytes = bytesOf(() => {
    for (let caller = 0; caller < CALLERS; caller++) waits[caller] = bucket.draw();
  });

  let started = 0;
  let startedInOrder = true;
  const note = (caller: number): void => {
    startedInOrder &&= caller === started;
    started += 1;
  };
  await Promise.all(waits.map((wait, caller) => wait.then(() => note(caller))));
  const bucketBytes = bytesOf(() => {
    for (let made = 0; made < BUCKETS; made++) sluice.bucket(`b${made}`, { rate: "1/s" });
  });
  return {
    bytesPerCaller: callerBytes / CALLERS,
    startedInOrder,
    bytesPerBucket: bucketBytes / BUCKETS,
  };
}

/** Measures the growth of the heap, with a garbage collection before each reading. */
function bytesOf(fill: () => void): number {
  if (globalThis.gc === undefined) throw new Error("start this with --expose-gc");
  globalThis.gc();
  const before = process.memoryUsage().heapUsed;
  fill();
  globalThis.gc();
  return process.memoryUsage().heapUsed - before;
}

const [redisUrl] = process.argv.slice(2);
if (redisUrl !== undefined) process.send?.(await probe(redisUrl));
