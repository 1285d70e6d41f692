import { setTimeout as pause } from "node:timers/promises";
import { Queue as StoredQueue } from "bullmq";
import type { Removal } from "../records.ts";
import type { Stage } from "../stage/stage.ts";
import type { TenantJob } from "./tenants.ts";

type Tool = (queue: StoredQueue<TenantJob>) => Promise<Removal["ids"]>;

const EVERY_MS = 100;
const SOME = 20;
const WAITING = ["delayed", "wait", "prioritized"] as const;

/** Puts or takes jobs away as a dashboard does, by BullMQ's own queue, until the fault is over. */
export const removals = {
  async "jobs removed"(stage: Stage) {
    return repeated(stage, async (queue) => {
      const removed = new Set<string>();
      for (const { id } of await queue.getJobs([...WAITING], 0, SOME)) {
        if ((await queue.remove(id!)) === 1) removed.add(id!);
      }
      return removed;
    });
  },
  async "jobs cleaned"(stage: Stage) {
    return repeated(stage, async (queue) => {
      return new Set(await queue.clean(0, SOME, "delayed"));
    });
  },
  async "jobs promoted"(stage: Stage) {
    return repeated(stage, async (queue) => {
      // One may have been taken meanwhile.
      for (const job of await queue.getJobs(["delayed"], 0, SOME)) {
        await job.promote().catch(() => undefined);
      }
      return new Set();
    });
  },
  async "queue drained"(stage: Stage) {
    return repeated(stage, async (queue) => {
      await queue.drain(true);
      return "all";
    });
  },
  async "queue obliterated"(stage: Stage) {
    return repeated(stage, async (queue) => {
      await queue.obliterate({ force: true });
      return "all";
    });
  },
};

/** Uses a tool again and again, or once if it removes all. */
async function repeated(
  { redis, control, log, nowMs }: Stage,
  tool: Tool,
): Promise<() => Promise<void>> {
  const { name, prefix } = control.tenants.stored;
  const queue = new StoredQueue<TenantJob>(name, { connection: { url: redis.url }, prefix });
  let isOver = false;

  async function work(): Promise<void> {
    for (;;) {
      const beganMs = nowMs();
      const ids = await tool(queue);
      log.tenants.removals.push({ beganMs, endedMs: nowMs(), ids });
      if (isOver || ids === "all") return;
      await pause(EVERY_MS);
    }
  }

  const working = work();
  return async () => {
    isOver = true;
    await working;
    await queue.close();
  };
}
