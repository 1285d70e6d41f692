import { createSluice, type Slot } from "sluice";

/** What is found out in a process of its own, whose heap nothing else fills. */
export interface MemoryReport {
  readonly bytesPerCaller: number;
  readonly startedInOrder: boolean;
}

const CALLERS = 100_000;

async function probe(redisUrl: string): Promise<MemoryReport> {
  if (globalThis.gc === undefined) throw new Error("start this with --expose-gc");
  await using sluice = createSluice({ redis: redisUrl });
  const bucket = sluice.bucket("memory", { rate: "200000/s" });
  await bucket.draw();
  const waits: Promise<Slot>[] = Array.from({ length: CALLERS });

  globalThis.gc();
  const before = process.memoryUsage().heapUsed;
  // All in one tick: none leaves before they have been weighed.
  for (let caller = 0; caller < CALLERS; caller++) waits[caller] = bucket.draw();
  globalThis.gc();
  const after = process.memoryUsage().heapUsed;

  let started = 0;
  let startedInOrder = true;
  const note = (caller: number): void => {
    startedInOrder &&= caller === started;
    started += 1;
  };
  await Promise.all(waits.map((wait, caller) => wait.then(() => note(caller))));
  return { bytesPerCaller: (after - before) / CALLERS, startedInOrder };
}

const [redisUrl] = process.argv.slice(2);
if (redisUrl !== undefined) process.send?.(await probe(redisUrl));
