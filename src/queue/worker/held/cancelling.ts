/** What a worker does about cancelled jobs beside those that it runs, whose handlers learn of it (`orders.ts` beside it). */
import type { Worker as StoredWorker } from "bullmq";
import type { LaneStore } from "../../../core/stores/queue/store.ts";
import { forgetCancel } from "../../bullmq/stored-job.ts";
import { CANCELLED } from "../../errors.ts";

/** Lets jobs that have ended as cancelled be retried by other tools; a replay sees to that by itself. */
export function forgetCancels(stored: StoredWorker): void {
  stored.on("failed", (job, error) => {
    if (job?.id === undefined || error.message !== CANCELLED) return;
    forgetCancel(stored, job.id).catch(() => undefined);
  });
}

/**
 * Removes a job whose attempt failed before this worker knew that it was cancelled: it waits for its next one. Never
 * rejects: the worker that gets it then ends it.
 */
export async function removeCancelled(
  {
    queue,
    lanes,
  }: { readonly queue: string; readonly lanes: Pick<LaneStore, "cancel" | "remove"> },
  id: string,
): Promise<void> {
  try {
    if ((await lanes.cancel(queue, id)) === "waits") await lanes.remove(queue, "pending", [id]);
  } catch {
    // Redis is away.
  }
}
