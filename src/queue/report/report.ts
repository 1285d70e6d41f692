/** What a worker tells of itself: events for who listens, lines for the log, and how it stands. */
import type { Worker as StoredWorker } from "bullmq";
import type { OwnedEmitter } from "../../core/events/events.ts";
import type { Logger } from "../../core/logger.ts";
import { errorTypeOf, type Observing } from "../../core/events/observer.ts";
import { readJob, type Stored } from "../bullmq/stored-job.ts";
import { originalOf } from "../failure.ts";
import { createFailureLog } from "./failure-log.ts";
import { createTally, type Tally } from "./tally.ts";
import { createWorkerEmitter, type WorkerEvents } from "./worker-events.ts";

export interface WorkerReport<Data, Result> {
  readonly emitter: OwnedEmitter<WorkerEvents<Data, Result>>;
  /** Its attempts that have ended and are yet to be told to Redis. */
  readonly tally: Pick<Tally, "take" | "giveBack">;
  /** Tells what BullMQ's worker stores. */
  follow(stored: StoredWorker<Data, Result | undefined>): void;
  /** Tells of a failed attempt that does not count, and after which the job may start again in so many ms. */
  spared(stored: Stored<Data>, error: Error, inMs: number): void;
  /** Tells that a handler starts. */
  started(stored: Stored<Data>): void;
  close(): void;
}

export function createReport<Data, Result>(
  queue: string,
  logger: Logger,
  observing?: Observing,
): WorkerReport<Data, Result> {
  const emitter = createWorkerEmitter<Data, Result>(queue, logger);
  const log = createFailureLog(queue, logger);
  const tally = createTally();

  function fail(stored: Stored<Data>, error: Error): void {
    const job = readJob(stored);
    const { attemptsMade: attempt, opts } = stored;
    const attempts = opts.attempts ?? attempt;
    const facts = { job, attempt, attempts };
    const isDead = stored.finishedOn !== undefined;
    const { backoff } = opts;
    const isSet = typeof backoff === "object" && backoff.type === "fixed";
    const inMs = isSet ? (backoff.delay ?? 0) : stored.delay;
    log.note({ ...facts, error, next: isDead ? { is: "dead" } : { is: "retry", inMs } });
    const thrown = thrownOf(error);
    if (emitter.hasListener("failed")) {
      const retryInMs = isDead ? undefined : inMs;
      emitter.emit("failed", { ...facts, error: thrown, retryInMs, counts: true });
    }
    if (isDead && emitter.hasListener("dead")) {
      emitter.emit("dead", { ...facts, error: thrown, reason: error.message });
    }
  }

  function processed(ms: number | undefined, error?: Error): void {
    if (ms === undefined) return;
    observing?.observer
      ?.series("messaging.process.duration", queue, errorTypeOf(error && thrownOf(error)))
      .add(ms);
  }

  return {
    emitter,
    tally,
    spared(stored, error, inMs) {
      const { attemptsMade, opts } = stored;
      const attempt = attemptsMade + 1;
      const facts = { job: readJob(stored), attempt, attempts: opts.attempts ?? attempt };
      log.note({ ...facts, error, next: { is: "spared" } });
      if (!emitter.hasListener("failed")) return;
      const thrown = thrownOf(error);
      emitter.emit("failed", { ...facts, error: thrown, retryInMs: inMs, counts: false });
    },
    follow(stored) {
      stored.on("failed", (job, error) => {
        if (job === undefined) return;
        processed(tally.ended(job, "failed"), error);
        fail(job as Stored<Data>, error);
      });
      stored.on("completed", (job, result) => {
        processed(tally.ended(job, "done"));
        if (!emitter.hasListener("done")) return;
        const { attemptsMade: attempt, opts } = job;
        const facts = { attempt, attempts: opts.attempts ?? attempt };
        emitter.emit("done", { job: readJob(job as Stored<Data>), ...facts, result });
      });
      stored.on("stalled", (jobId) => emitter.emit("stalled", { jobId }));
      stored.on("error", (error) => emitter.emit("error", { error }));
    },
    started(stored) {
      tally.started(stored);
      observing?.observer?.series("messaging.client.consumed.messages", queue).add(1);
      if (!emitter.hasListener("active")) return;
      const { attemptsMade, opts } = stored;
      const attempt = attemptsMade + 1;
      emitter.emit("active", { job: readJob(stored), attempt, attempts: opts.attempts ?? attempt });
    },
    close() {
      log.close();
      emitter.emit("closed", {});
    },
  };
}

/** What the handler threw, if that was an error. */
function thrownOf(failure: Error): Error {
  const original = originalOf(failure);
  return original instanceof Error ? original : failure;
}
