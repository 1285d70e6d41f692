/**
 * Gives back the jobs that were fetched for this worker by answers that were lost with their connection. The worker does
 * not know of them, and before their locks end nobody else may have them.
 */
import { setImmediate as nextTurn } from "node:timers/promises";
import type { Worker as StoredWorker } from "bullmq";
import { loadBullmq } from "../../bullmq/load-bullmq.cjs";
import type { Stored } from "../../bullmq/stored-job.ts";
import { parkFromWorker } from "../../lanes/park.ts";
import type { Fetcher } from "../../lanes/fetcher.ts";
import type { WorkerContext } from "../context.ts";

/** Called each time that Redis can be used again. Never rejects: a job that is not given back comes back with its lock's end. */
export async function giveLostBack(
  worker: Pick<WorkerContext, "queue" | "workerId" | "connection" | "lanes" | "weightsOf">,
  stored: StoredWorker,
  fetcher: Pick<Fetcher, "isAsking" | "holds">,
): Promise<void> {
  // No answer was outstanding when the connection was lost.
  if (!fetcher.isAsking) return;
  const { queue, workerId, connection } = worker;
  try {
    // Asked behind all that is sent again, on the same connection: so each of those has its answer by then.
    const held = await connection.heldBy(queue, `${workerId}:`);
    await nextTurn();
    for (const { id, token } of held) {
      if (fetcher.holds(id, token)) continue;
      const job = await loadBullmq().Job.fromId(stored, id);
      if (job !== undefined) await giveBack(job as Stored<unknown>, token);
    }
  } catch {
    // The connection was lost again, or the worker is closed.
  }

  async function giveBack(job: Stored<unknown>, token: string): Promise<void> {
    // Refused if the lock is another's by now. It throws what a processor has to throw.
    await parkFromWorker(job, token, worker).catch(() => undefined);
  }
}
