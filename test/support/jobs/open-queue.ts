import {
  leakyBucket,
  tokenBucket,
  type Bucket,
  type BucketOptions,
  type Handler,
  type Queue,
  type QueueOptions,
  type Sluice,
  type SluiceOptions,
  type Worker,
  type WorkerOptions,
} from "sluice";
import type { RealSluices } from "../setup/real-sluice.ts";

export interface OpenedQueue<Data> {
  readonly sluice: Sluice;
  readonly bucket: Bucket;
  readonly queue: Queue<Data>;
}

type OpenQueueOptions = SluiceOptions & { rate?: string; keepDone?: QueueOptions["keepDone"] };

/** A queue of one bucket, in a replica of its own; each of a test's replicas gets the same one. */
export function openQueue<Data>(
  sluices: RealSluices,
  { rate = "1000/s", keepDone, ...options }: OpenQueueOptions = {},
): OpenedQueue<Data> {
  const sluice = sluices.open(options);
  const bucket = sluice.bucket("downstream", { rate });
  return { sluice, bucket, queue: sluice.queue<Data, unknown, Data>("jobs", { bucket, keepDone }) };
}

/** A queue whose jobs may cost tokens: 100 of them, of which one comes back in a minute. */
export function openTokenQueue<Data>(
  sluices: RealSluices,
  { maxJobBytes }: Pick<QueueOptions, "maxJobBytes"> = {},
): OpenedQueue<Data> {
  const sluice = sluices.open();
  const bucket = sluice.bucket("downstream", {
    limits: [leakyBucket("500/s"), tokenBucket({ capacity: 100, refill: "1/min", unit: "tokens" })],
  });
  return {
    sluice,
    bucket,
    queue: sluice.queue<Data, unknown, Data>("jobs", { bucket, maxJobBytes }),
  };
}

export interface QueueAtWork extends OpenedQueue<string> {
  readonly worker: Worker;
  /** What the logger got as errors. */
  readonly errors: readonly string[];
}

/** A queue with a worker on it. */
export function openAtWork(
  sluices: RealSluices,
  handler: Handler<string, unknown>,
  { options, policy }: { options?: WorkerOptions; policy?: Partial<BucketOptions> } = {},
): QueueAtWork {
  const errors: string[] = [];
  const logger = { warn: () => {}, error: (_facts: object, text: string) => errors.push(text) };
  const sluice = sluices.open({ logger });
  const bucket = sluice.bucket("downstream", { rate: "500/s", ...policy });
  const queue = sluice.queue<string>("jobs", { bucket });
  return { sluice, bucket, queue, errors, worker: sluice.worker(queue, handler, options) };
}
