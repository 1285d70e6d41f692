import { setTimeout as pause } from "node:timers/promises";
import { ClosedError, type Bucket, type Queue, type Sluice, type WorkerOptions } from "sluice";
import { waitUntil } from "../async/wait-until.ts";

const AFTER_ERROR_MS = 5;

/** Jobs whose handlers call through their bucket, in as many replicas as there are sluices. */
export interface PacedJobs {
  readonly queue: Queue<number>;
  /** Of the first replica, whose queue it is. */
  readonly bucket: Bucket;
  /** One for each attempt whose call has left. */
  readonly attempts: readonly PacedAttempt[];
  /** The numbers that reached a handler. */
  readonly reached: () => ReadonlySet<number>;
  readonly untilEmpty: () => Promise<void>;
}

interface PacedAttempt {
  readonly id: string;
  readonly number: number;
  readonly attempt: number;
  /** The slot that its call left on, in ms. */
  readonly atMs: number;
}

export function workOn(
  sluices: readonly Sluice[],
  { rate, ...options }: { rate: string } & WorkerOptions,
): PacedJobs {
  const attempts: PacedAttempt[] = [];
  const opened = sluices.map((sluice) => {
    const bucket = sluice.bucket("b", { rate });
    const queue = sluice.queue<number>("jobs", { bucket });
    sluice.worker(
      queue,
      async ({ id, data }, { attempt }) => {
        const { atMs } = await bucket.draw();
        attempts.push({ id, number: data, attempt, atMs });
      },
      { lockMs: 1_000, ...options },
    );
    return { bucket, queue };
  });
  const { bucket, queue } = opened[0]!;

  async function isEmpty(): Promise<boolean> {
    const { active, waiting, delayed } = await queue.counts();
    return active + waiting + delayed === 0;
  }

  return {
    queue,
    bucket,
    attempts,
    reached: () => new Set(attempts.map(({ number }) => number)),
    untilEmpty: () => waitUntil(() => isEmpty().catch(() => false), "the queue is empty"),
  };
}

/** A producer that enqueues numbers from 0 on, every other one with a key, until it is stopped; it asks again where it was refused. */
export interface SteadyProducer {
  /** What `enqueue` resolved for. */
  readonly stored: readonly number[];
  readonly errors: readonly unknown[];
  stop(): Promise<void>;
}

export function produceSteadily(queue: Queue<number>): SteadyProducer {
  const stored: number[] = [];
  const errors: unknown[] = [];
  let isStopped = false;

  const running = (async (): Promise<void> => {
    for (let number = 0; !isStopped; number++) {
      const key = number % 2 === 0 ? undefined : `k${number % 5}`;
      try {
        await queue.enqueue(number, { key });
        stored.push(number);
      } catch (error) {
        if (error instanceof ClosedError) return;
        errors.push(error);
        // A refusal may come at once.
        await pause(AFTER_ERROR_MS);
      }
    }
  })();
  return {
    stored,
    errors,
    async stop() {
      isStopped = true;
      await running;
    },
  };
}
