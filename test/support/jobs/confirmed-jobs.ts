import { setTimeout as pause } from "node:timers/promises";
import type { Redis } from "ioredis";
import type { Queue } from "sluice";

/** A producer that enqueues numbers from 0 on until it is stopped, and has Redis confirm them in batches. */
export interface ConfirmedJobs {
  /** What `enqueue` resolved for. */
  readonly stored: readonly number[];
  /** Of these, what a replica is known to have. */
  readonly confirmed: readonly number[];
  readonly errors: readonly unknown[];
  stop(): Promise<void>;
}

const BATCH = 10;
const CONFIRM_MS = 500;

/** `client` is one of the primary's, for the confirmations. */
export function enqueueConfirmed(queue: Queue<number>, client: Redis): ConfirmedJobs {
  const stored: number[] = [];
  const confirmed: number[] = [];
  const errors: unknown[] = [];
  let isStopped = false;

  async function enqueueBatch(first: number): Promise<void> {
    const before = await runIdOf(client).catch(() => undefined);
    const batch: number[] = [];
    for (let number = first; number < first + BATCH; number++) {
      await queue.enqueue(number).then(
        () => batch.push(number),
        (error: unknown) => errors.push(error),
      );
      await pause(5);
    }
    stored.push(...batch);
    if (await isReplicated(client, before).catch(() => false)) confirmed.push(...batch);
  }

  const running = (async () => {
    for (let first = 0; !isStopped; first += BATCH) await enqueueBatch(first);
  })();
  return {
    stored,
    confirmed,
    errors,
    async stop() {
      isStopped = true;
      await running;
    },
  };
}

/**
 * Whether a replica has all that this primary has done up to now. WAIT speaks of what its own connection
 * wrote: hence the mark, behind which all that came before it lies. And the primary must be the same still.
 */
async function isReplicated(client: Redis, runId: string | undefined): Promise<boolean> {
  if (runId === undefined) return false;
  await client.set("mark", 1, "PX", CONFIRM_MS);
  const replicas = await client.wait(1, CONFIRM_MS);
  return replicas >= 1 && (await runIdOf(client)) === runId;
}

async function runIdOf(client: Redis): Promise<string | undefined> {
  return /run_id:(\w+)/.exec(await client.info("server"))?.[1];
}
