import { createLru } from "../../throttle/lru.ts";
import type { Bucket } from "../../throttle/bucket.ts";
import type { Queue } from "../../queue/queue.ts";
import { HttpProblem } from "../problem.ts";

/** Finds the buckets and queues that any process declares. */
export interface Finder {
  find(name: string): Promise<Bucket | undefined>;
  findQueue(name: string): Promise<Queue<unknown> | undefined>;
}

/** Caches the buckets and queues that this server knows, by name. */
export interface FoundBuckets {
  /** @throws {@link HttpProblem} 404 when no process has declared the bucket. */
  bucket(name: string): Promise<Bucket> | Bucket;
  /** @throws {@link HttpProblem} 404 when no process has declared the queue. */
  queue(name: string): Promise<Queue<unknown>>;
}

/** How long a found bucket is cached. Draws notice a changed policy without a new look-up. */
const KNOWN_MS = 5_000;
const MOST_KNOWN = 10_000;

interface Known {
  readonly bucket: Bucket;
  expiresAtMs: number;
}

export function createFoundBuckets(sluice: Finder): FoundBuckets {
  const known = createLru<Known>(MOST_KNOWN);

  async function ask(name: string): Promise<Bucket> {
    const bucket = await sluice.find(name);
    if (bucket === undefined) {
      known.delete(name);
      throw new HttpProblem("ERR_BUCKET_MISSING", unknownBucket(name));
    }
    known.set(name, { bucket, expiresAtMs: performance.now() + KNOWN_MS });
    return bucket;
  }

  return {
    bucket(name) {
      const found = known.get(name);
      return found !== undefined && performance.now() < found.expiresAtMs
        ? found.bucket
        : ask(name);
    },
    async queue(name) {
      const queue = await sluice.findQueue(name);
      if (queue === undefined) throw new HttpProblem("ERR_QUEUE_MISSING", unknownQueue(name));
      return queue;
    },
  };
}

function unknownBucket(name: string): string {
  return (
    `There is no bucket ${JSON.stringify(name)}; name it in the rules file, ` +
    `or start a process that declares it: sluice.bucket(${JSON.stringify(name)}, { rate: "50/s" }).`
  );
}

function unknownQueue(name: string): string {
  return (
    `There is no queue ${JSON.stringify(name)}; ` +
    `start a process that declares it: sluice.queue(${JSON.stringify(name)}, { bucket }).`
  );
}
