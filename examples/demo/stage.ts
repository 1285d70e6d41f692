import { randomUUID } from "node:crypto";
import { createSluice, type Logger } from "sluice";
import { createServer } from "sluice/server";
import { createWebhooks, type Webhooks } from "sluice/webhooks";
import { startRedis } from "../../test/support/redis/local-redis.ts";
import type { DemoArguments } from "./arguments.ts";
import { createCleanup, removeKeys } from "../shared/cleanup.ts";
import { createCustomers, ENDPOINT, newSealingKeys, WARM_UP, type Customer } from "./customers.ts";
import { pathOf, startDownstream, type Downstream } from "./downstream.ts";
import { createTally, type Tally } from "./tally.ts";
import { count, mostPerSecond } from "./verdict.ts";
import { startWorkers, type Workers } from "./workers.ts";

/** All parts of the demo: the processes, the sender, and the count of arrived calls. */
export interface Stage {
  readonly downstream: Downstream;
  readonly workers: Workers;
  readonly hooks: Webhooks;
  readonly customers: readonly Customer[];
  readonly tally: Tally;
  /** Ends the processes and removes the stored data. */
  [Symbol.asyncDispose](): Promise<void>;
}

/** How long a worker holds a job, before and while it runs, with a margin. */
const IN_HAND_S = 0.3;
/** Additional places for webhooks that wait for the separate limit of their endpoint. */
const FOR_SLOW = 10;
const SCHEDULE_MS = [0, 1_000, 5_000];

/** Starts Redis, the downstream and the workers, and prints a line for each. */
export async function openStage(
  given: DemoArguments,
  print: (line: string) => void,
): Promise<Stage> {
  const cleanup = createCleanup();
  try {
    const prefix = `sluice-demo-${randomUUID().slice(0, 8)}`;
    const rate = `${given.rate}/s`;
    const most = mostPerSecond(given.rate);

    const redis = await startRedis({ orInMemory: true });
    cleanup.add(() => redis.stop());
    cleanup.add(() => removeKeys(redis.url, prefix));
    print(`Redis       ${redis.origin}${redis.pid === undefined ? "" : `, pid ${redis.pid}`}`);

    const tally = createTally();
    const customers = createCustomers(given.rate);
    let workersStalledMs = (): number => 0;
    const downstream = await startDownstream(most, customers, (report) =>
      tally.add({ ...report, workersStalledMs: workersStalledMs() }),
    );
    cleanup.add(() => downstream.end());
    print(`downstream  ${downstream.url}, pid ${downstream.pid}`);
    print(`            429 above ${count(most)} calls in any second: 1.01 × the cap is promised`);

    const keys = newSealingKeys();
    const sluice = createSluice({ redis: redis.url, prefix, logger: COMPLAINTS });
    cleanup.add(() => sluice.close());
    const allow = ["127.0.0.0/8"];
    const hooks = createWebhooks(sluice, {
      keys,
      rate,
      http: true,
      allow,
      scheduleMs: SCHEDULE_MS,
    });
    for (const customer of [...customers, WARM_UP]) {
      const { tenant, secret, perSecond } = customer;
      const url = `${downstream.url}${pathOf(customer)}`;
      const own = perSecond === undefined ? undefined : `${perSecond}/s`;
      await hooks.endpoints.put({ tenant, id: ENDPOINT, url, secret, rate: own });
      if (own !== undefined) print(`            ${tenant} takes at most ${own} of them`);
    }

    const workers = await startWorkers(given.workers, {
      REDIS_URL: redis.url,
      SLUICE_PREFIX: prefix,
      SLUICE_WEBHOOK_KEYS: keys,
      SLUICE_RATE: rate,
      SLUICE_SCHEDULE_MS: SCHEDULE_MS.join(","),
      SLUICE_ALLOW: allow.join(","),
      SLUICE_ALLOW_HTTP: "true",
      SLUICE_CONCURRENCY: String(concurrencyOf(given)),
    });
    cleanup.add(() => workers.end());
    workersStalledMs = workers.longestStandstillMs;
    print(`workers     pid ${workers.all.map(({ pid }) => pid).join(", ")}`);
    if (given.board) {
      const server = await createServer(sluice, { port: 0, insecureLocal: true, logger: false });
      cleanup.add(() => server.close());
      print(`board       ${(await server.listen()).url}`);
    }
    return {
      downstream,
      workers,
      hooks,
      customers,
      tally,
      [Symbol.asyncDispose]: () => cleanup[Symbol.asyncDispose](),
    };
  } catch (error) {
    await cleanup[Symbol.asyncDispose]();
    throw error;
  }
}

/**
 * Returns each worker's concurrency. It is not higher, because jobs that a worker holds too early lengthen its
 * garbage collection.
 */
function concurrencyOf({ rate, workers }: DemoArguments): number {
  return Math.ceil((rate * IN_HAND_S) / workers) + FOR_SLOW;
}

/** A logger that drops the warnings about settings that the demo chooses on purpose. */
const COMPLAINTS: Logger = {
  warn: () => undefined,
  error: (_facts, text) => void process.stderr.write(`${text}\n`),
};
