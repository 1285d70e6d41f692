import { InvalidOptionError } from "../core/errors.ts";
import type { Logger } from "../core/logger.ts";
import type { Observing } from "../core/events/observer.ts";
import type { InsightStore } from "../core/stores/insight/store.ts";
import type { ChangeLog } from "../core/stores/insight/change-log.ts";
import type { RulesInUse } from "../rules/apply.ts";
import type { Queue } from "../queue/queue.ts";
import type { Handler } from "../queue/worker/context.ts";
import type { Drained } from "../queue/worker/drain.ts";
import type { WorkerOptions } from "../queue/worker/worker-options.ts";
import type { Demand, OwnedWorker } from "../queue/worker/worker.ts";
import type { ClientActivity } from "./workers.ts";
import type { Backend } from "../stores/redis/backend.ts";

/** The internal parts of a sluice that other entry points of this package use. */
export interface SluiceParts {
  readonly prefix: string;
  readonly timeoutMs: number;
  readonly logger: Logger;
  readonly observing: Observing;
  readonly insight: InsightStore;
  readonly changeLog: ChangeLog;
  /** The rules from the `rules` option of `createSluice()`. */
  readonly rules: RulesInUse | undefined;
  /** @throws {@link RedisRequiredError} when the sluice has no Redis. */
  readonly connect: (where: string, queue: string) => ReturnType<Backend["connectQueue"]>;
  /**
   * Moves the clock of the sluice forward. Undefined unless the sluice was created with `redis:
   * "memory"`.
   */
  readonly advance: ((ms: number) => Promise<void>) | undefined;
  /** Returns the queues whose jobs run in this process, once for each of their workers. */
  readonly running: () => string[];
  /**
   * Returns the names of the members that this process has declared for a bucket. Empty if the bucket is no pool.
   * Undefined if this process does not declare the bucket.
   */
  readonly membersOf: (bucket: string) => readonly string[] | undefined;
  /** Marks a queue, before it is opened, as the queue of a webhook sender. */
  readonly noteSender: (queue: string) => void;
  /** Registers a function that runs when the sluice closes, before its workers close. */
  readonly onClose: (close: () => Promise<void>) => void;
  /** Called with a promise that resolves once a worker has started. */
  readonly expectWorker: (starting: Promise<void>) => void;
  /** Resolves once all expected workers have started: with true if the sluice has an open worker. */
  readonly hasWorkers: () => Promise<boolean>;
  /** Drains all workers of the sluice together, as `worker.drain()` does. */
  readonly drainWorkers: (idleMs: number) => Promise<Drained>;
  /**
   * Starts a worker that hands its jobs over to programs outside of this process, for a queue that `sluice.queue()` or
   * `sluice.findQueue()` returned.
   *
   * @throws {@link RedisRequiredError} when the sluice has no Redis.
   */
  readonly startHandOver: (queue: Queue<unknown>, parts: HandOverParts) => OwnedWorker;
}

export interface HandOverParts {
  /** Passes each job on, and returns a `HandOver`. */
  readonly handler: Handler<unknown>;
  readonly options: WorkerOptions;
  readonly demand: Demand;
  /** Returns the programs that run the jobs. They are reported in place of the worker. */
  readonly clients: () => readonly ClientActivity[];
}

const partsOfSluices = new WeakMap<object, SluiceParts>();

export function keepParts(sluice: object, parts: SluiceParts): void {
  partsOfSluices.set(sluice, parts);
}

/** @throws {@link InvalidOptionError} when the argument is not a sluice. */
export function partsOf(where: string, sluice: unknown): SluiceParts {
  const isObject = typeof sluice === "object" && sluice !== null;
  const parts = isObject ? partsOfSluices.get(sluice) : undefined;
  if (parts !== undefined) return parts;
  const remedy = "give the result of createSluice()";
  throw new InvalidOptionError({ where, option: "sluice", value: sluice, remedy });
}
