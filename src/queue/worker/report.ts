import type { Worker as StoredWorker } from "bullmq";
import { onOneLine, withoutPasswords, withoutSecrets, withoutStop } from "../../core/describe.ts";
import { type OwnedEmitter, createEmitter, type Emitter } from "../../core/events/events.ts";
import { errorTypeOf, type Observing } from "../../core/events/observer.ts";
import type { Logger } from "../../core/logger.ts";
import type { Ended } from "../../stores/redis/scripts/queue/steering.ts";
import { readJob, type Stored } from "../bullmq/stored-job.ts";
import { originalOf, readErrorFacts } from "../failure.ts";
import type { Job } from "../job.ts";
import type { WorkerContext } from "./context.ts";
import { decodeData } from "./job-start.ts";
import type { LaneStore } from "../../stores/redis/queue/store.ts";

/** How the attempts of one worker have ended, since the worker was created. */
export interface Totals {
  /** How many jobs are done: `120`. */
  done: number;
  /** How many jobs have become dead letters: `2`. */
  failed: number;
  /** How many attempts failed and are retried: `5`. */
  retried: number;
}

export interface WorkerReport<Data, Result> {
  readonly emitter: OwnedEmitter<WorkerEvents<Data, Result>>;
  /** The ended attempts that were not reported to Redis yet. */
  readonly tally: Pick<Tally, "take" | "giveBack">;
  /** The attempts that have ended since the worker was created. */
  readonly totals: Readonly<Totals>;
  /** Emits our events for the outcomes that BullMQ's worker stores. */
  follow(stored: StoredWorker<Data, Result | undefined>): void;
  /** Reports a failed attempt that does not count. The job may start again after `inMs`. */
  notCounted(stored: Stored<Data>, error: Error, inMs: number): void;
  /** Reports that a handler starts. */
  started(stored: Stored<Data>): void;
  /** Notes when an attempt started that was handed over, on `performance.now()`, before its outcome is stored. */
  resumed(stored: Stored<Data>, startedAtMs: number): void;
  /** Notes the result of a job whose stored result is encoded, for the event of the job. */
  noteResult(stored: Stored<Data>, result: Result | undefined): void;
  /** Emits `closed`. Resolves once all events of jobs were emitted, whose data may still be decoded. */
  close(): Promise<void>;
}

export function createReport<Data, Result>(
  { queue, payloads, logger }: Pick<WorkerContext, "queue" | "payloads" | "logger">,
  observing?: Observing,
): WorkerReport<Data, Result> {
  const emitter = createWorkerEmitter<Data, Result>(queue, logger);
  const log = createFailureLog(queue, logger);
  const tally = createTally();
  const totals: Totals = { done: 0, failed: 0, retried: 0 };
  const results = new WeakMap<object, Result | undefined>();
  /** Resolves once the latest delayed event was emitted. Undefined if no event waits for data to be decoded. */
  let emitting: Promise<void> | undefined;

  /** Calls `emit` with the job once its data is decoded. Later events wait, so that their order is kept. */
  function emitInTurn(stored: Stored<Data>, emit: (job: Job<Data>) => void): void {
    const job = readJob(stored);
    const decoding = decodeData(payloads, stored);
    if (!(decoding instanceof Promise) && emitting === undefined)
      return emit(Object.assign(job, decoding));
    const emitted = Promise.all([decoding, emitting])
      .then(([found]) => emit(Object.assign(job, found)))
      .finally(() => {
        if (emitting === emitted) emitting = undefined;
      });
    emitting = emitted;
  }

  function fail(stored: Stored<Data>, error: Error): void {
    const job = readJob(stored);
    const { attemptsMade: attempt, opts } = stored;
    const attempts = opts.attempts ?? attempt;
    const facts = { job, attempt, attempts };
    const isDead = stored.finishedOn !== undefined;
    totals[isDead ? "failed" : "retried"] += 1;
    const { backoff } = opts;
    const isSet = typeof backoff === "object" && backoff.type === "fixed";
    const inMs = isSet ? (backoff.delay ?? 0) : stored.delay;
    log.note({ ...facts, error, next: isDead ? { is: "dead" } : { is: "retry", inMs } });
    if (!emitter.hasListener("failed") && !(isDead && emitter.hasListener("dead"))) return;
    const thrown = thrownOf(error);
    const retryInMs = isDead ? undefined : inMs;
    emitInTurn(stored, (decoded) => {
      const event = { job: decoded, attempt, attempts, error: thrown };
      emitter.emit("failed", { ...event, retryInMs, counts: true });
      if (isDead) emitter.emit("dead", { ...event, reason: error.message });
    });
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
    totals,
    notCounted(stored, error, inMs) {
      const { attemptsMade, opts } = stored;
      const attempt = attemptsMade + 1;
      const facts = { attempt, attempts: opts.attempts ?? attempt };
      log.note({ ...facts, job: readJob(stored), error, next: { is: "not counted" } });
      if (!emitter.hasListener("failed")) return;
      const failed = { ...facts, error: thrownOf(error), retryInMs: inMs, counts: false };
      emitInTurn(stored, (job) => emitter.emit("failed", { ...failed, job }));
    },
    follow(stored) {
      stored.on("failed", (job, error) => {
        if (job === undefined) return;
        processed(tally.ended(job, "failed"), error);
        fail(job as Stored<Data>, error);
      });
      stored.on("completed", (job, result) => {
        processed(tally.ended(job, "done"));
        totals.done += 1;
        if (!emitter.hasListener("done")) return;
        const { attemptsMade: attempt, opts } = job;
        const facts = { attempt, attempts: opts.attempts ?? attempt };
        const plain = results.has(job) ? results.get(job) : result;
        emitInTurn(job as Stored<Data>, (decoded) => {
          const ended = { ...decoded, result: plain ?? undefined };
          emitter.emit("done", { job: ended, ...facts, result: plain });
        });
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
      const facts = { attempt, attempts: opts.attempts ?? attempt };
      emitInTurn(stored, (job) => emitter.emit("active", { ...facts, job }));
    },
    resumed: (stored, startedAtMs) => tally.started(stored, startedAtMs),
    noteResult: (stored, result) => void results.set(stored, result),
    async close() {
      log.close();
      await emitting;
      emitter.emit("closed", {});
    },
  };
}

/** Returns the error that the handler threw. If the handler threw something else, returns the failure itself. */
function thrownOf(failure: Error): Error {
  const original = originalOf(failure);
  return original instanceof Error ? original : failure;
}

interface Tally {
  /** Notes that a handler started, now or at another time on `performance.now()`. */
  started(job: object, atMs?: number): void;
  /** Counts an ended attempt. Returns how long its handler ran, in ms, or undefined if the handler never started. */
  ended(job: object, outcome: "done" | "failed"): number | undefined;
  /** Returns the counts of attempts that ended since the last call, and resets them. */
  take(): Ended;
  /** Adds counts that `take` returned, because their report to Redis failed. */
  giveBack(ended: Ended): void;
}

export function createTally(): Tally {
  const startedAtMs = new WeakMap<object, number>();
  let counted: Ended = { done: 0, failed: 0, busyMs: 0 };

  function add({ done, failed, busyMs }: Ended): void {
    counted = {
      done: counted.done + done,
      failed: counted.failed + failed,
      busyMs: counted.busyMs + busyMs,
    };
  }

  return {
    started: (job, atMs = performance.now()) => void startedAtMs.set(job, atMs),
    ended(job, outcome) {
      const nowMs = performance.now();
      // A job whose handler never started counts as 0 ms.
      const startedMs = startedAtMs.get(job);
      const busyMs = Math.round(nowMs - (startedMs ?? nowMs));
      const isDone = outcome === "done";
      add({ done: Number(isDone), failed: Number(!isDone), busyMs });
      return startedMs === undefined ? undefined : nowMs - startedMs;
    },
    take() {
      const taken = counted;
      counted = { done: 0, failed: 0, busyMs: 0 };
      return taken;
    },
    giveBack: add,
  };
}

/** A failed attempt, and what happens to its job next. */
interface FailedAttempt {
  readonly job: Pick<Job<unknown>, "id" | "key" | "name">;
  readonly attempt: number;
  readonly attempts: number;
  readonly error: Error;
  /** What happens to the job next. */
  readonly next:
    | { readonly is: "retry"; readonly inMs: number }
    | { readonly is: "dead" }
    | { readonly is: "not counted" };
}

/** Logs failed attempts as warnings and dead letters as errors, with a bound on the number of lines. */
interface FailureLog {
  note(failed: FailedAttempt): void;
  /** Logs how many failures were not logged in the current window. */
  close(): void;
}

/**
 * In each window of `WINDOW_MS`, at most `MOST_LINES` warnings and `MOST_LINES` errors are logged. At the end of a
 * window, one line says how many were left out.
 */
const WINDOW_MS = 10_000;
const MOST_LINES = 10;
/** The most characters of an error message in a log line. */
const LONGEST_REASON = 500;

interface Count {
  lines: number;
  unsaid: number;
}

const KINDS = { warn: "failed attempts", error: "dead letters" } as const;

function createFailureLog(queue: string, logger: Logger): FailureLog {
  const counts: Record<keyof typeof KINDS, Count> = {
    warn: { lines: 0, unsaid: 0 },
    error: { lines: 0, unsaid: 0 },
  };
  let timer: NodeJS.Timeout | undefined;

  /**
   * Returns whether another line may be logged in this window. When many jobs fail at once, the log does not list each
   * of them.
   */
  function mayLog(level: keyof typeof KINDS): boolean {
    timer ??= setTimeout(endWindow, WINDOW_MS).unref();
    const count = counts[level];
    if (count.lines >= MOST_LINES) {
      count.unsaid += 1;
      return false;
    }
    count.lines += 1;
    return true;
  }

  function endWindow(): void {
    clearTimeout(timer);
    timer = undefined;
    for (const level of ["warn", "error"] as const) {
      const { unsaid } = counts[level];
      counts[level] = { lines: 0, unsaid: 0 };
      if (unsaid === 0) continue;
      const what = `${unsaid} more ${KINDS[level]} of queue "${queue}" were not logged`;
      logger[level](
        { queue, unsaid },
        `${what}: at most ${MOST_LINES} are in ${WINDOW_MS / 1_000} s.`,
      );
    }
  }

  return {
    note({ job, attempt, attempts, error, next }) {
      const level = next.is === "dead" ? "error" : "warn";
      if (!mayLog(level)) return;
      const { id, key, name } = job;
      const reason = withoutPasswords(onOneLine(String(error.message).slice(0, LONGEST_REASON)));
      const facts = withoutSecrets("error", readErrorFacts(error)) as object;
      const which = [name, key === undefined ? undefined : `key ${JSON.stringify(key)}`];
      const known = which.filter((each) => each !== undefined).join(", ");
      const what = `Job ${id}${known === "" ? "" : ` (${onOneLine(known)})`} of queue "${queue}"`;
      const text = `${what} failed in attempt ${attempt} of ${attempts}: ${withoutStop(reason)}; ${wordsFor(next)}.`;
      logger[level]({ queue, job: id, key, name, attempt, attempts, reason, ...facts }, text);
    },
    close: endWindow,
  };
}

function wordsFor(next: FailedAttempt["next"]): string {
  if (next.is === "dead") return "kept as a dead letter";
  if (next.is === "not counted") return "not counted, and tried again once the downstream is back";
  return `tried again in ${inWords(next.inMs)}`;
}

const UNITS = [
  ["h", 3_600_000],
  ["min", 60_000],
  ["s", 1_000],
] as const;

/** Formats a duration: `850 ms`, `2.1 s`, `12 min`. */
function inWords(ms: number): string {
  const [unit, length] = UNITS.find(([, least]) => ms >= least) ?? ["ms", 1];
  const count = ms / length;
  return `${count < 10 && length > 1 ? count.toFixed(1) : Math.round(count)} ${unit}`;
}

/** The job of an event, and the number of its attempt. */
interface AttemptFacts<Data> {
  readonly job: Job<Data>;
  /** The number of this attempt: 1 for the first. */
  readonly attempt: number;
  /** How often the job is attempted at most: `20`. */
  readonly attempts: number;
}

/** The events of one worker's jobs. For the events of all workers, listen to the queue. */
export interface WorkerEvents<Data = unknown, Result = unknown> {
  /** The handler of a job starts. */
  readonly active: AttemptFacts<Data>;
  /** A job is done. `result` is what its handler returned. */
  readonly done: AttemptFacts<Data> & { readonly result: Result | undefined };
  /**
   * An attempt has failed. After the last attempt, `dead` follows. `error` is what the handler threw. `retryInMs` is
   * the time until the job is retried, in ms: `2100`. Undefined after the last attempt.
   */
  readonly failed: AttemptFacts<Data> & {
    readonly error: Error;
    readonly retryInMs: number | undefined;
    /** True if the failure counts as an attempt. False while the downstream is unreachable. */
    readonly counts: boolean;
  };
  /** A job has become a dead letter. */
  readonly dead: AttemptFacts<Data> & { readonly error: Error; readonly reason: string };
  /** An error outside of any handler, such as an outage of Redis. */
  readonly error: { readonly error: Error };
  /**
   * The lock of a job has expired, because this worker or another worker died or hangs. The job waits for a worker
   * again.
   */
  readonly stalled: { readonly jobId: string };
  /** The worker is closed. None of its handlers is running. */
  readonly closed: Readonly<Record<never, never>>;
}

const NAMES = ["active", "done", "failed", "dead", "error", "stalled", "closed"] as const;

/** Emits events of a worker's jobs. */
export interface WorkerEmitter<Data, Result> extends Emitter<WorkerEvents<Data, Result>> {
  /**
   * Calls the listener for each event of this kind, for this worker's jobs only. Errors of listeners are logged and
   * have no other effect. Returns a function that removes the listener.
   *
   * @throws {@link InvalidOptionError} when there is no such event, or the listener is not a function.
   */
  on: Emitter<WorkerEvents<Data, Result>>["on"];
}

function createWorkerEmitter<Data, Result>(
  queue: string,
  logger: Logger,
): OwnedEmitter<WorkerEvents<Data, Result>> {
  return createEmitter<WorkerEvents<Data, Result>>(`a worker of queue "${queue}"`, NAMES, logger);
}

/** The state of a worker. */
export interface WorkerStatus {
  /** `"closing"` while `close()` waits for running handlers, then `"closed"`. */
  readonly state: "running" | "closing" | "closed";
  /** When this state began, in ms since 1970. */
  readonly sinceMs: number;
  /** How many handlers are running. */
  readonly running: number;
  /** How many fetched jobs wait for their slots. */
  readonly waiting: number;
  /** Whether the queue was paused according to the latest reply of Redis. */
  readonly paused: boolean;
  /**
   * Ms until the next job tests whether the downstream is reachable again, at least 1. Otherwise 0: this process does
   * not consider the downstream unreachable. Also 0 while only the downstreams of single keys are unreachable.
   */
  readonly unreachableForMs: number;
  /** @deprecated Use `unreachableForMs`, which has the same value. */
  readonly awayForMs: number;
  /** How many jobs the worker may hold at once, waiting or running. */
  readonly concurrency: number;
}

/**
 * Reports to Redis that a worker is alive, how many jobs it can run at once, and how its attempts ended. `eta()` and
 * `forecast()` return no time for a queue without a worker. `status()` adds up the attempts. A busy worker that dies or
 * hangs stops counting within seconds, and an idle worker within twelve seconds.
 */
interface Presence {
  /** Reports that the worker has ended. Never rejects. */
  close(): Promise<void>;
  /** Reports the attempts that ended after `close()`. Never rejects. */
  sendLast(): Promise<void>;
}

/** How often a busy worker reports to Redis, and how long a report is valid. */
const EVERY_MS = 1_000;
const HOLDS_FOR_MS = 3_500;
/**
 * How often an idle worker reports, and how long its report is valid. An idle worker should rarely send requests to
 * Redis.
 */
const IDLE_EVERY_MS = 10_000;
const IDLE_HOLDS_FOR_MS = 12_000;

export function createPresence({
  lanes,
  queue,
  workerId: worker,
  concurrency: places,
  isIdle,
  tally,
}: {
  readonly lanes: Pick<LaneStore, "noteWorker">;
  readonly queue: string;
  readonly workerId: string;
  readonly concurrency: number;
  readonly isIdle: () => boolean;
  /** `take` returns the attempts that ended since the last call. `giveBack` adds them again if the report failed. */
  readonly tally: { take(): Ended; giveBack(ended: Ended): void };
}): Presence {
  /** The report in flight. There is at most one, even while Redis is unreachable. */
  let noting: Promise<void> | undefined;
  /** When an idle worker reports next, on `performance.now()`. The latest report is valid until then. */
  let dueAtMs = -Infinity;
  async function note(forMs: number): Promise<void> {
    const ended = tally.take();
    try {
      await lanes.noteWorker({ queue, worker, places, forMs, ended });
    } catch {
      // Makes the next call of `beat` send a report again.
      dueAtMs = -Infinity;
      tally.giveBack(ended);
    }
  }

  function beat(): void {
    const idle = isIdle();
    const nowMs = performance.now();
    if (noting !== undefined || (idle && nowMs < dueAtMs - EVERY_MS / 2)) return;
    dueAtMs = nowMs + (idle ? IDLE_EVERY_MS : EVERY_MS);
    noting = note(idle ? IDLE_HOLDS_FOR_MS : HOLDS_FOR_MS).finally(() => {
      noting = undefined;
    });
  }

  const timer = setInterval(beat, EVERY_MS).unref();
  beat();
  return {
    async close() {
      clearInterval(timer);
      await noting;
      await note(0);
    },
    sendLast: () => note(0),
  };
}
