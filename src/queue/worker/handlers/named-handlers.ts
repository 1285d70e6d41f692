import { InvalidOptionError } from "../../../core/errors.ts";
import type { Job } from "../../job.ts";
import type { Handler, Handlers } from "../context.ts";
import { unknownNameFailure } from "../outcome.ts";

/** The name of the handler for jobs whose name has no handler. */
const DEFAULT = "default";
/** The most names that an error lists. */
const MOST_LISTED = 20;

/** Finds the handler of a job by its name. */
export interface NamedHandlers<Data, Result> {
  readonly handle: Handler<Data, Result>;
  /** Returns the failure of a job without a handler; undefined if there is one. */
  refusalOf(job: Pick<Job<unknown>, "name">): Error | undefined;
}

/** True if the given handler is meant to be several, by job name. */
export function areHandlers<Data, Result>(given: unknown): given is Handlers<Data, Result> {
  return typeof given === "object" && given !== null && !(given instanceof URL);
}

/** @throws {@link InvalidOptionError} when there are no handlers, or one is not a function. */
export function createNamedHandlers<Data, Result>(
  given: Handlers<Data, Result>,
): NamedHandlers<Data, Result> {
  if (Array.isArray(given)) refuse("handler", given, "give one function, or { name: handler }");
  const handlers = new Map(Object.entries(given));
  if (handlers.size === 0) refuse("handler", given, "give at least one handler by its name");
  for (const [name, handler] of handlers) {
    if (typeof handler === "function") continue;
    refuse(`handler.${name}`, handler, "give the function that does the jobs of this name");
  }
  const names = [...handlers.keys()];
  const listed = names.slice(0, MOST_LISTED).join(", ");
  const known = names.length > MOST_LISTED ? `${listed}, …` : listed;

  function handlerOf(name: string | undefined): Handler<Data, Result> | undefined {
    return (name === undefined ? undefined : handlers.get(name)) ?? handlers.get(DEFAULT);
  }

  return {
    handle: (job, context) => handlerOf(job.name)!(job, context),
    refusalOf({ name }) {
      return handlerOf(name) === undefined ? unknownNameFailure(name, known) : undefined;
    },
  };
}

function refuse(option: string, value: unknown, remedy: string): never {
  throw new InvalidOptionError({ where: "worker()", option, value, remedy });
}
