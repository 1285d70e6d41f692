import type { Bucket, Queue, Sluice, SluiceOptions } from "sluice";
import type { RealSluices } from "./real-sluice.ts";

export interface OpenedQueue<Data> {
  readonly sluice: Sluice;
  readonly bucket: Bucket;
  readonly queue: Queue<Data>;
}

/** A queue of one bucket, in a replica of its own; each of a test's replicas gets the same one. */
export function openQueue<Data>(
  sluices: RealSluices,
  { rate = "1000/s", ...options }: SluiceOptions & { rate?: string } = {},
): OpenedQueue<Data> {
  const sluice = sluices.open(options);
  const bucket = sluice.bucket("downstream", { rate });
  return { sluice, bucket, queue: sluice.queue<Data>("jobs", { bucket }) };
}
