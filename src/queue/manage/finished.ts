import * as z from "zod";
import { ClosedError } from "../../core/errors.ts";
import { LONGEST_MS, readOptions, wholeNumber } from "../../core/options.ts";
import type { StoredAccess } from "../bullmq/stored-queue.ts";
import { JobFailedError, JobMissingError, JobUnfinishedError } from "../errors.ts";
import type { EventStream } from "./events.ts";

export interface FinishedOptions {
  /** How long to wait at most. Defaults to no limit. */
  readonly timeoutMs?: number | undefined;
}

/** The waits of this process for jobs to end. */
export interface FinishedWaits {
  readonly until: (id: string, options: FinishedOptions | undefined) => Promise<unknown>;
  /** Ends the waits for jobs that were removed together: BullMQ publishes no events for those. */
  readonly end: (removed: readonly string[]) => void;
  close(): void;
}

type Outcome =
  | { readonly state: "done"; readonly result: unknown }
  | { readonly state: "failed"; readonly error: Error };

const FINISHED_OPTIONS = z.strictObject({
  timeoutMs: wholeNumber(0, LONGEST_MS, "milliseconds").optional(),
});

/** BullMQ's list of events is bounded, and a slow reader misses some (taskforcesh/bullmq#2517). So jobs are looked at as well, in turns. */
const LOOK_MS = 5_000;
const LOOKED_AT_ONCE = 1_000;

export function createFinishedWaits({
  name,
  access,
  events,
}: {
  readonly name: string;
  readonly access: StoredAccess;
  readonly events: EventStream;
}): FinishedWaits {
  const waits = new Map<string, Set<(outcome: Outcome) => void>>();
  let timer: NodeJS.Timeout | undefined;
  let isListening = false;

  function settle(id: string, outcome: Outcome): void {
    const waiting = waits.get(id) ?? [];
    waits.delete(id);
    for (const end of waiting) end(outcome);
    if (waits.size === 0) clearInterval(timer);
  }

  function listen(): void {
    if (isListening) return;
    isListening = true;
    events.on("done", ({ jobId, result }) => settle(jobId, { state: "done", result }));
    events.on("failed", ({ jobId, reason }) => settle(jobId, failed(jobId, reason)));
    events.on("removed", ({ jobId }) => settle(jobId, missing(jobId)));
  }

  async function look(id: string): Promise<void> {
    const outcome = await access.ask(async (stored) =>
      asOutcome(id, (await stored.getBackend().isFinished(id, true)) as [number, unknown?]),
    );
    if (outcome !== undefined) settle(id, outcome);
  }

  async function lookAtSome(): Promise<void> {
    const ids = [...waits.keys()].slice(0, LOOKED_AT_ONCE);
    for (const id of ids) {
      const waiting = waits.get(id)!;
      waits.delete(id);
      waits.set(id, waiting);
    }
    // A failed look changes nothing: the wait goes on while Redis is away.
    await Promise.allSettled(ids.map(look));
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
    if (waiting?.size === 0) waits.delete(id);
    if (waits.size === 0) clearInterval(timer);
  }

  /** Listens, then looks, then waits: an end after the look comes as an event. */
  async function until(id: string, timeoutMs = Infinity): Promise<Outcome> {
    const endsAtMs = performance.now() + timeoutMs;
    listen();
    await events.listen();
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
      look(id).then(startLimit, giveUp);
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
    },
  };
}

/** The outcome of a job that has ended, from the reply of BullMQ's `isFinished`. */
function asOutcome(id: string, [status, value]: readonly [number, unknown?]): Outcome | undefined {
  if (status === 1) return { state: "done", result: parse(value) };
  if (status === 2) return failed(id, typeof value === "string" ? value : "");
  return status === -1 ? missing(id) : undefined;
}

function failed(jobId: string, reason: string): Outcome {
  return { state: "failed", error: new JobFailedError({ jobId, reason }) };
}

function missing(jobId: string): Outcome {
  return { state: "failed", error: new JobMissingError(jobId) };
}

function parse(value: unknown): unknown {
  try {
    return JSON.parse(String(value));
  } catch {
    return value ?? null;
  }
}
