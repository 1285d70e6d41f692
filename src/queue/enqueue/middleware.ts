import { InvalidOptionError } from "../../core/errors.ts";
import { MiddlewareError } from "../errors.ts";
import type { EnqueueOptions } from "../options.ts";
import type { QueuedJob } from "./job-handle.ts";

/** A job that is about to be stored. */
export interface JobToEnqueue<Input = unknown> {
  readonly data: Input;
  readonly options: EnqueueOptions;
}

/** One call of `enqueue` or `enqueueMany`. */
export interface EnqueueCall<Input = unknown> {
  /** The name of the queue: `"mails"`. */
  readonly queue: string;
  /** The jobs of the call. `enqueue` has one. The data and options are copies, with the options as the caller gave them. */
  readonly jobs: readonly JobToEnqueue<Input>[];
}

/**
 * Runs around `enqueue` and `enqueueMany`, once for each call. `next()` stores the jobs, or those that it is given, and
 * resolves with the stored jobs. Returns one stored job for each job of the call. Without a call of `next`, no job is
 * stored, and the caller gets the returned jobs.
 */
export type EnqueueMiddleware<Data = unknown, Result = unknown, Input = Data> = {
  // The type of a method, whose parameters are compared both ways. So a queue of any input can be passed to `worker()`.
  run(
    call: EnqueueCall<Input>,
    next: (jobs?: readonly JobToEnqueue<Input>[]) => Promise<QueuedJob<Data, Result>[]>,
  ): Promise<readonly QueuedJob<Data, Result>[]>;
}["run"];

/** A function around an inner one. `next` calls the inner one, with other input if it is given. */
export type Layer<Input, Output> = (
  input: Input,
  next: (changed?: Input) => Promise<Output>,
) => Output | Promise<Output>;

/**
 * Runs layers around `innermost`. The first layer is the outermost.
 *
 * @throws {@link MiddlewareError} when a layer calls `next` twice.
 */
export async function runLayers<Input, Output>(
  hook: MiddlewareError["hook"],
  layers: readonly Layer<Input, Output>[],
  innermost: (input: Input) => Promise<Output>,
  input: Input,
): Promise<Output> {
  const [layer, ...inner] = layers;
  if (layer === undefined) return innermost(input);
  let running: Outcome<Output> | undefined;
  let isOver = false;
  let fault: MiddlewareError | undefined;

  function next(changed: Input = input): Promise<Output> {
    if (running !== undefined || isOver) {
      fault = new MiddlewareError(hook, isOver ? "called next() after it had ended" : TWICE);
      return rejected(fault);
    }
    running = outcomeOf(runLayers(hook, inner, innermost, changed));
    return running;
  }

  try {
    const output = await layer(input, next);
    // If the layer has not waited for what it has called, that must neither outlive the layer nor fail unseen.
    if (running !== undefined && !running.isSeen) await running;
    if (fault !== undefined) throw fault;
    return output;
  } catch (error) {
    await (running as Outcome<Output> | undefined)?.catch(() => undefined);
    throw fault ?? error;
  } finally {
    isOver = true;
  }
}

const TWICE = "called next() twice";

/** The outcome of `next()`. It says whether anybody has asked for it. */
class Outcome<Output> extends Promise<Output> {
  isSeen = false;

  static override get [Symbol.species](): PromiseConstructor {
    return Promise;
  }

  // `await` calls this, because the constructor of this promise is not `Promise`.
  // oxlint-disable-next-line unicorn/no-thenable -- a promise has this method
  override then<Kept = Output, Caught = never>(
    ...handlers: Parameters<Promise<Output>["then"]>
  ): Promise<Kept | Caught> {
    this.isSeen = true;
    return super.then(...handlers) as Promise<Kept | Caught>;
  }
}

function outcomeOf<Output>(going: Promise<Output>): Outcome<Output> {
  const outcome = new Outcome<Output>((resolve, reject) => void going.then(resolve, reject));
  // If the layer does not ask for the outcome, `runLayers` throws its failure.
  void Promise.prototype.then.call(outcome, undefined, () => undefined);
  return outcome;
}

function rejected(error: Error): Promise<never> {
  const promise = Promise.reject(error);
  // The layer may ignore this promise. The error is thrown when the layer ends.
  promise.catch(() => undefined);
  return promise;
}

/** Stores jobs through the middleware. Resolves with one stored job for each given job. */
export function enqueueThrough<Data, Result, Input>(
  middleware: readonly EnqueueMiddleware<Data, Result, Input>[],
  queue: string,
  jobs: readonly JobToEnqueue<Input>[],
  store: (jobs: readonly JobToEnqueue<Input>[]) => Promise<QueuedJob<Data, Result>[]>,
): Promise<readonly QueuedJob<Data, Result>[]> {
  type Jobs = readonly JobToEnqueue<Input>[];
  type Stored = readonly QueuedJob<Data, Result>[];
  const layers = middleware.map((around): Layer<Jobs, Stored> => {
    return async (given, next) => {
      const stored: unknown = await around({ queue, jobs: given }, (changed) => {
        try {
          const jobs = changed === undefined ? undefined : assertJobs(changed);
          return next(jobs) as Promise<QueuedJob<Data, Result>[]>;
        } catch (error) {
          return rejected(error as Error);
        }
      });
      if (!isList(stored) || stored.length !== given.length || !stored.every(isJob)) {
        throw new MiddlewareError(
          "enqueue",
          `returned something other than ${given.length} stored ${given.length === 1 ? "job" : "jobs"}, one for each job that it was given`,
        );
      }
      return stored as Stored;
    };
  });
  return runLayers("enqueue", layers, store as (given: Jobs) => Promise<Stored>, jobs);
}

function assertJobs<Jobs extends readonly unknown[]>(given: Jobs): Jobs {
  if (isList(given) && given.every((job) => isObject(job) && "data" in job)) return given;
  const remedy =
    "give an array of { data, options }, such as jobs.map((job) => ({ ...job, data }))";
  throw new InvalidOptionError({ where: "next()", option: "jobs", value: given, remedy });
}

function isJob(value: unknown): boolean {
  return isObject(value) && typeof (value as { readonly id?: unknown }).id === "string";
}

function isObject(value: unknown): value is object {
  return typeof value === "object" && value !== null;
}

function isList(value: unknown): value is readonly unknown[] {
  return Array.isArray(value);
}
