import { randomUUID } from "node:crypto";
import { createSluice, type Queue } from "sluice";
import { startRedis } from "../../test/support/redis/local-redis.ts";
import type { Webhook } from "../../workers/webhook/deliver.ts";
import type { DemoArguments } from "./arguments.ts";
import { createCleanup } from "../shared/cleanup.ts";
import { startDownstream, type Downstream } from "./downstream.ts";
import { removeKeys } from "../shared/cleanup.ts";
import { createTally, type Tally } from "./tally.ts";
import { count, mostPerSecond } from "./verdict.ts";
import { startWorkers, type Workers } from "./workers.ts";

/** Everything in the demo: the processes, the queue, and the count of arriving calls. */
export interface Stage {
  readonly downstream: Downstream;
  readonly workers: Workers;
  readonly queue: Queue<Webhook>;
  readonly tally: Tally;
  /** Ends the processes and removes what was stored. */
  [Symbol.asyncDispose](): Promise<void>;
}

const QUEUE = "webhooks";
/** How long a worker holds a job before and while it runs, with room to spare. */
const IN_HAND_S = 0.3;

/** Starts Redis, the downstream and the workers, and prints a line about each. */
export async function openStage(
  given: DemoArguments,
  print: (line: string) => void,
): Promise<Stage> {
  const cleanup = createCleanup();
  try {
    const prefix = `sluice-demo-${randomUUID().slice(0, 8)}`;
    const rate = `${given.rate}/s`;
    const most = mostPerSecond(given.rate);

    const redis = await startRedis();
    cleanup.add(() => redis.stop());
    cleanup.add(() => removeKeys(redis.url, prefix));
    print(`Redis       ${redis.origin}${redis.pid === undefined ? "" : `, pid ${redis.pid}`}`);

    const tally = createTally();
    const downstream = await startDownstream(most, (report) => tally.add(report));
    cleanup.add(() => downstream.end());
    print(`downstream  ${downstream.url}, pid ${downstream.pid}`);
    print(`            429 above ${count(most)} calls in any second: 1.01 × the cap is promised`);

    const sluice = createSluice({ redis: redis.url, prefix });
    cleanup.add(() => sluice.close());
    const queue = sluice.queue<Webhook>(QUEUE, { bucket: sluice.bucket(QUEUE, { rate }) });

    const workers = await startWorkers(given.workers, {
      REDIS_URL: redis.url,
      SLUICE_PREFIX: prefix,
      SLUICE_QUEUE: QUEUE,
      SLUICE_RATE: rate,
      SLUICE_CONCURRENCY: String(concurrencyOf(given)),
    });
    cleanup.add(() => workers.end());
    print(`workers     pid ${workers.all.map(({ pid }) => pid).join(", ")}`);
    return {
      downstream,
      workers,
      queue,
      tally,
      [Symbol.asyncDispose]: () => cleanup[Symbol.asyncDispose](),
    };
  } catch (error) {
    await cleanup[Symbol.asyncDispose]();
    throw error;
  }
}

/** Each worker's concurrency: jobs that it holds too early only lengthen its garbage collection. */
function concurrencyOf({ rate, workers }: DemoArguments): number {
  return Math.ceil((rate * IN_HAND_S) / workers);
}
