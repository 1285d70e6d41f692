import * as z from "zod";
import { InvalidOptionError } from "../../../core/errors.ts";
import { readOptions } from "../../../core/input/options.ts";
import { markLike } from "../../../throttle/slot/job-slot.ts";
import { runLayers, type EnqueueMiddleware, type Layer } from "../../enqueue/middleware.ts";
import type { Job } from "../../job.ts";
import type {
  BatchContext,
  BatchHandler,
  BatchOutcomes,
  Handler,
  HandlerResult,
  JobContext,
} from "../context.ts";

/**
 * Runs around the handler of each job, once for each attempt. `next()` runs the handler, and resolves with what it
 * returns or rejects with what it throws. What this function returns is the result of the attempt. If it throws, the
 * attempt has failed. Without a call of `next`, the handler does not run.
 */
export type HandlerMiddleware<Data = unknown, Result = unknown> = {
  // As in `EnqueueMiddleware`, the type of a method.
  run(
    job: Job<Data>,
    next: () => Promise<HandlerResult<Result>>,
    context: JobContext,
  ): HandlerResult<Result> | Promise<HandlerResult<Result>>;
}["run"];

/**
 * Runs around the handler of each batch, in workers with `batch`. `next()` runs the handler. Returns the outcomes of the
 * jobs, as the handler does.
 */
export type BatchMiddleware<Data = unknown, Result = unknown> = {
  run(
    jobs: readonly Job<Data>[],
    next: () => Promise<BatchOutcomes<Result>>,
    context: BatchContext,
  ): BatchOutcomes<Result> | Promise<BatchOutcomes<Result>>;
}["run"];

/** Functions around `enqueue` and around handlers. At least one of them is set. */
export interface Middleware<Data = unknown, Result = unknown, Input = Data> {
  /** Runs around the handler of each job, except in workers with `batch`. */
  readonly handler?: HandlerMiddleware<Data, Result> | undefined;
  /** Runs around the handler of each batch. */
  readonly batch?: BatchMiddleware<Data, Result> | undefined;
  /** Runs around `enqueue` and `enqueueMany`. Not for workers. */
  readonly enqueue?: EnqueueMiddleware<Data, Result, Input> | undefined;
}

/** The middleware of one worker, which enqueues no jobs. */
export type WorkerMiddleware<Data = unknown, Result = unknown> = Omit<
  Middleware<Data, Result>,
  "enqueue"
>;

/** The middleware of a sluice, a queue or a worker. */
export interface Middlewares {
  /** All middleware, the outermost first: that of the parent, and then the own one in the order of `use`. */
  all(): readonly AnyMiddleware[];
  /**
   * Adds a middleware. Returns a function that removes it.
   *
   * @throws {@link InvalidOptionError} when it has no function, or something that is not a function.
   */
  use(given: unknown): () => void;
}

/** A middleware for data of any type. */
type AnyMiddleware = Middleware<never, never, never>;

const FUNCTION = z
  .custom<never>((value) => typeof value === "function", { error: "give a function" })
  .optional();
const MIDDLEWARE = z.strictObject({ handler: FUNCTION, batch: FUNCTION, enqueue: FUNCTION });

export function createMiddlewares(
  parent?: Pick<Middlewares, "all">,
  isWorker: boolean = false,
): Middlewares {
  let own: readonly AnyMiddleware[] = [];

  return {
    all() {
      const outer = parent?.all() ?? [];
      return own.length === 0 ? outer : [...outer, ...own];
    },
    use(given) {
      const read = readMiddleware(given, isWorker);
      own = [...own, read];
      return () => void (own = own.filter((each) => each !== read));
    },
  };
}

function readMiddleware(given: unknown, isWorker: boolean): AnyMiddleware {
  const where = "use()";
  // A copy, because the same middleware may be added twice.
  const read: AnyMiddleware = { ...readOptions(where, MIDDLEWARE, given) };
  if (isWorker && read.enqueue !== undefined) {
    const remedy = "a worker enqueues no jobs; give it to use() of the queue or of the sluice";
    throw new InvalidOptionError({ where, option: "enqueue", value: read.enqueue, remedy });
  }
  if (Object.values(read).some((each) => each !== undefined)) return read;
  const remedy = `give at least one function: handler, batch${isWorker ? "" : ", enqueue"}`;
  throw new InvalidOptionError({ where, option: "middleware", value: given, remedy });
}

/** Returns a handler that runs through the middleware. */
export function aroundHandler<Data, Result>(
  handler: Handler<Data, Result>,
  { all }: Pick<Middlewares, "all">,
): Handler<Data, Result> {
  return markLike(handler, (job: Job<Data>, context: JobContext) => {
    const around = all().flatMap(
      ({ handler: each }) => each ?? [],
    ) as unknown as readonly HandlerMiddleware<Data, Result>[];
    if (around.length === 0) return handler(job, context);
    const layers = around.map((each): Layer<undefined, HandlerResult<Result>> => {
      return (_input, next) => each(job, () => next(), context);
    });
    // The attempt may have ended before the middleware called `next`.
    const run = async (): Promise<HandlerResult<Result>> => {
      context.signal.throwIfAborted();
      return handler(job, context);
    };
    return runLayers("handler", layers, run, undefined);
  });
}

/** Returns a handler of batches that runs through the middleware. */
export function aroundBatch<Data, Result>(
  handler: BatchHandler<Data, Result>,
  { all, onSkipped }: Pick<Middlewares, "all"> & { readonly onSkipped: () => void },
): BatchHandler<Data, Result> {
  return (jobs, context) => {
    const used = all();
    if (used.some((each) => each.handler !== undefined && each.batch === undefined)) onSkipped();
    const around = used.flatMap(
      ({ batch: each }) => each ?? [],
    ) as unknown as readonly BatchMiddleware<Data, Result>[];
    if (around.length === 0) return handler(jobs, context);
    const layers = around.map((each): Layer<undefined, BatchOutcomes<Result>> => {
      return (_input, next) => each(jobs, () => next(), context);
    });
    const run = async (): Promise<BatchOutcomes<Result>> => {
      context.signal.throwIfAborted();
      return handler(jobs, context);
    };
    return runLayers("batch", layers, run, undefined);
  };
}
