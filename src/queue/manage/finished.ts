import { randomUUID } from "node:crypto";
import * as z from "zod";
import type { Payloads } from "../../core/codec.ts";
import type { CodecError } from "../../core/errors.ts";
import { isThenable } from "../../core/describe.ts";
import { ClosedError } from "../../core/errors.ts";
import { LONGEST_MS, readOptions, wholeNumber } from "../../core/input/options.ts";
import type { JobEnd } from "../../stores/redis/scripts/queue/jobs.ts";
import type { QueueConnection } from "../bullmq/connection.ts";
import type { StoredAccess } from "../bullmq/stored-queue.ts";
import { parseErrorFacts, rebuildWith, type FailureFacts } from "../failure.ts";
import {
  CANCELLED,
  JobCancelledError,
  JobFailedError,
  JobMissingError,
  JobUnfinishedError,
} from "../errors.ts";
import type { EventStream } from "./events.ts";

export interface FinishedOptions {
  /** The longest time to wait, in ms. Defaults to no limit. */
  readonly timeoutMs?: number | undefined;
}

/** The calls of `finished()` in this process that wait for jobs to end. */
export interface FinishedWaits {
  readonly until: (id: string, options: FinishedOptions | undefined) => Promise<unknown>;
  /** Ends the waits for jobs that were removed in one batch, because BullMQ publishes no events for these jobs. */
  readonly end: (removed: readonly string[]) => void;
  close(): void;
}

type Outcome =
  | { readonly state: "done"; readonly result: unknown }
  | { readonly state: "failed"; readonly error: Error };

const FINISHED_OPTIONS = z.strictObject({
  timeoutMs: wholeNumber(0, LONGEST_MS, "milliseconds").optional(),
});

/**
 * BullMQ keeps a bounded number of events, so a slow reader misses some of them (taskforcesh/bullmq#2517). Awaited jobs
 * are therefore also checked, in turns. Each job is checked within five minutes, because Redis keeps the results of
 * awaited jobs for ten minutes.
 */
const LOOK_MS = 5_000;
const TURNS = 60;
const LOOKED_AT_ONCE = 1_000;
/** Ids of jobs that are no longer awaited are gathered for this time, then sent to Redis together. */
const GATHER_MS = 100;

export function createFinishedWaits({
  name,
  connection,
  access,
  events,
  payloads,
}: {
  readonly name: string;
  readonly connection: Pick<QueueConnection, "awaitJobs" | "unawaitJobs">;
  readonly access: StoredAccess;
  readonly events: EventStream;
  readonly payloads: Pick<Payloads, "decode">;
}): FinishedWaits {
  const process = randomUUID();
  const waits = new Map<string, Set<(outcome: Outcome) => void>>();
  /** The jobs whose results Redis keeps because this process waits for them. */
  const awaited = new Set<string>();
  let released: string[] = [];
  let releaseTimer: NodeJS.Timeout | undefined;
  let timer: NodeJS.Timeout | undefined;
  let isListening = false;
  /** True once this process listens to all events, so that it misses none. */
  let missesNothing = false;
  let gathered: { readonly ids: Set<string>; readonly looking: Promise<void> } | undefined;

  function settle(id: string, outcome: Outcome): void {
    const waiting = waits.get(id) ?? [];
    waits.delete(id);
    release(id);
    for (const end of waiting) end(outcome);
    if (waits.size === 0) clearInterval(timer);
  }

  function listen(): void {
    if (isListening) return;
    isListening = true;
    events.on("done", ({ jobId, result, unreadable: error }) =>
      settle(jobId, error === undefined ? { state: "done", result } : { state: "failed", error }),
    );
    events.on("failed", ({ jobId, reason, ...facts }) =>
      settle(jobId, failed(jobId, reason, facts)),
    );
    events.on("cancelled", ({ jobId }) => settle(jobId, cancelled(jobId)));
    events.on("removed", ({ jobId }) => {
      // The `cancelled` event of this job may have been published before this process listened, so the job is checked.
      if (waits.has(jobId)) look(jobId).catch(() => settle(jobId, missing(jobId)));
    });
  }

  /** Checks a job, in one request with all jobs that are checked at the same time. */
  function look(id: string): Promise<void> {
    if (gathered === undefined) {
      const ids = new Set<string>();
      const looking = Promise.resolve().then(() => {
        gathered = undefined;
        return lookAt([...ids]);
      });
      gathered = { ids, looking };
    }
    gathered.ids.add(id);
    return gathered.looking;
  }

  async function lookAt(ids: readonly string[]): Promise<void> {
    await Promise.all(
      inBatches(ids).map(async (batch) => {
        const ends = await access.ask(() =>
          connection.awaitJobs({ queue: name, process, ids: batch }),
        );
        for (const [index, id] of batch.entries()) {
          const end = ends[index];
          if (end?.state === "done") settleDone(id, parse(end.json));
          else if (end !== undefined) settle(id, asOutcome(id, end));
          else {
            awaited.add(id);
            // The wait may have ended while the reply was in flight.
            if (!waits.has(id)) release(id);
          }
        }
      }),
    );
  }

  function settleDone(id: string, stored: unknown): void {
    const result = payloads.decode(stored, { kind: "result", id });
    if (!isThenable(result)) return settle(id, { state: "done", result });
    result.then(
      (decoded) => settle(id, { state: "done", result: decoded }),
      (error: CodecError) => settle(id, { state: "failed", error }),
    );
  }

  async function lookAtSome(): Promise<void> {
    const count = Math.max(LOOKED_AT_ONCE, Math.ceil(waits.size / TURNS));
    const ids = [...waits.keys()].slice(0, count);
    for (const id of ids) {
      const waiting = waits.get(id)!;
      waits.delete(id);
      waits.set(id, waiting);
    }
    // A failed check changes nothing: the wait continues while Redis is unreachable.
    await lookAt(ids).catch(() => undefined);
  }

  function release(id: string): void {
    if (!awaited.delete(id)) return;
    released.push(id);
    releaseTimer ??= setTimeout(sendReleases, GATHER_MS).unref();
  }

  function sendReleases(): void {
    releaseTimer = undefined;
    const ids = released;
    released = [];
    // If this request fails, Redis stops keeping the results after a while, because its marks expire.
    for (const batch of inBatches(ids)) {
      access
        .ask(() => connection.unawaitJobs({ queue: name, process, ids: batch }))
        .catch(() => undefined);
    }
  }

  function add(id: string, end: (outcome: Outcome) => void): void {
    if (waits.size === 0) timer = setInterval(() => void lookAtSome(), LOOK_MS);
    const waiting = waits.get(id);
    if (waiting === undefined) waits.set(id, new Set([end]));
    else waiting.add(end);
  }

  function drop(id: string, end: (outcome: Outcome) => void): void {
    const waiting = waits.get(id);
    waiting?.delete(end);
    if (waiting?.size === 0) {
      waits.delete(id);
      release(id);
    }
    if (waits.size === 0) clearInterval(timer);
  }

  /**
   * Checks a job once the process listens to events, so that a job that ends after the check is noticed by its event.
   * If the process does not listen yet, the job is also checked at once, so that Redis keeps its result from now on.
   */
  async function begin(id: string): Promise<void> {
    if (!missesNothing) {
      await Promise.all([look(id), events.listen()]);
      missesNothing = true;
      if (!waits.has(id)) return;
    }
    await look(id);
  }

  function until(id: string, timeoutMs = Infinity): Promise<Outcome> {
    const endsAtMs = performance.now() + timeoutMs;
    listen();
    return new Promise((resolve, reject) => {
      let limit: NodeJS.Timeout | undefined;
      const end = (outcome: Outcome): void => {
        clearTimeout(limit);
        resolve(outcome);
      };
      const giveUp = (error: unknown): void => {
        drop(id, end);
        reject(error as Error);
      };
      const startLimit = (): void => {
        if (timeoutMs === Infinity || !waits.get(id)?.has(end)) return;
        const late = (): void => giveUp(new JobUnfinishedError({ jobId: id, timeoutMs }));
        limit = setTimeout(late, endsAtMs - performance.now());
      };
      add(id, end);
      begin(id).then(startLimit, giveUp);
    });
  }

  return {
    async until(id, given = {}) {
      const { timeoutMs } = readOptions("finished()", FINISHED_OPTIONS, given);
      const outcome = await until(id, timeoutMs);
      if (outcome.state === "failed") throw outcome.error;
      return outcome.result;
    },
    end(removed) {
      if (waits.size === 0) return;
      for (const id of removed) settle(id, missing(id));
    },
    close() {
      const error = new ClosedError(`Queue "${name}"`);
      for (const id of waits.keys()) settle(id, { state: "failed", error });
      clearTimeout(releaseTimer);
    },
  };
}

function inBatches(ids: readonly string[]): string[][] {
  const count = Math.ceil(ids.length / LOOKED_AT_ONCE);
  return Array.from({ length: count }, (_, index) =>
    ids.slice(index * LOOKED_AT_ONCE, (index + 1) * LOOKED_AT_ONCE),
  );
}

function asOutcome(id: string, end: Exclude<JobEnd, { readonly state: "done" }>): Outcome {
  if (end.state === "cancelled") return cancelled(id);
  return end.state === "failed" ? failed(id, end.reason, parseErrorFacts(end.facts)) : missing(id);
}

function cancelled(jobId: string): Outcome {
  return { state: "failed", error: new JobCancelledError(jobId) };
}

function failed(jobId: string, reason: string, facts: FailureFacts): Outcome {
  if (reason === CANCELLED) return cancelled(jobId);
  const cause = rebuildWith(reason, facts);
  return { state: "failed", error: new JobFailedError({ jobId, reason, cause }) };
}

function missing(jobId: string): Outcome {
  return { state: "failed", error: new JobMissingError(jobId) };
}

function parse(json: string): unknown {
  try {
    return JSON.parse(json);
  } catch {
    return json;
  }
}
