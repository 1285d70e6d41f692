import type { Worker } from "sluice";
import { openQueue, type OpenedQueue } from "./open-queue.ts";
import type { RealSluices } from "../setup/real-sluice.ts";
import { rejectionOf } from "../async/rejection.ts";

export interface Order {
  readonly name: string;
  /** What its handler throws, if it does. */
  readonly reason?: string;
}

/** A queue whose jobs have all failed, in this order, each for the reason in its data; it has no worker any more. */
export async function withFailed(
  sluices: RealSluices,
  orders: readonly (Order & { readonly key?: string })[],
): Promise<OpenedQueue<Order>> {
  const opened = openQueue<Order>(sluices);
  for (const { key, ...order } of orders) {
    const job = await opened.queue.enqueue(order, { key, attempts: 1 });
    const worker = startFailing(opened);
    await rejectionOf(job.finished());
    await worker.close();
  }
  return opened;
}

/** A worker whose handler throws each time. */
export function startFailing({ sluice, queue }: OpenedQueue<Order>): Worker {
  return sluice.worker(queue, async ({ data }) => {
    throw new Error(data.reason ?? "downstream says no");
  });
}
