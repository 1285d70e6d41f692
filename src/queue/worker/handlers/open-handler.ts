/**
 * Prepares the handler that was passed to a worker: a function, one function for each job name, or a file.
 *
 * A handler in a file runs in a child process of BullMQ's pool. The main file of that process is BullMQ's, and imports
 * our `sandbox-child.ts`. BullMQ exports `ChildPool` and the commands, but not that main file; no upstream issue known;
 * checked with bullmq 6.7.0 (`classes/main.js`).
 */
import { statSync } from "node:fs";
import { createRequire as requireFrom } from "node:module";
import { dirname, join, resolve } from "node:path";
import process from "node:process";
import { fileURLToPath, pathToFileURL } from "node:url";
import type { ChildPool, ParentCommand as Command } from "bullmq";
import { reasonOf } from "../../../core/describe.ts";
import { InvalidOptionError } from "../../../core/errors.ts";
import type { Logger } from "../../../core/logger.ts";
import { HandlerTimeoutError, JobCancelledError } from "../../errors.ts";
import { readErrorFacts, rebuildWith } from "../../failure.ts";
import type { Job } from "../../job.ts";
import { loadBullmq } from "../../bullmq/load-bullmq.cjs";
import type { HandlerInput, Handler, JobContext, Handlers } from "../context.ts";
import { UNSTORABLE, unknownNameFailure } from "../outcome.ts";
import {
  HANDLER_FILE,
  type ChildAnswer,
  type ChildAttempt,
  type SlotMessage,
} from "./sandbox-protocol.ts";
import { markWithoutCalls } from "../../../throttle/slot/job-slot.ts";

/** A worker's handler, and its child processes if the handler is in a file. */
export interface OpenHandler<Data, Result> {
  readonly handle: Handler<Data, Result>;
  /** Returns the failure of a job whose name has no handler. Undefined if there is a handler. */
  refusalOf(job: Pick<Job<unknown>, "name">): Error | undefined;
  /**
   * Returns undefined if a job can start at once. Otherwise, returns a promise to await before the job draws its slot,
   * because child processes start slowly.
   */
  ready(): Promise<unknown> | undefined;
  /** Ends the child processes, including handlers that still run in them. */
  close(): Promise<void>;
}

type Child = Awaited<ReturnType<ChildPool["retain"]>>;

/** The most characters of a path in an error message. */
const LONGEST_PATH = 300;

interface SandboxOptions {
  readonly processes: number;
  readonly logger: Logger;
  readonly failOnResponse: boolean;
}

/**
 * Prepares a worker's handler. For a handler in a file, starts its child processes.
 *
 * @throws {@link InvalidOptionError} when `given` is not a function, an object with functions by name, or an existing
 * file.
 */
export function openHandler<Data, Result>(
  given: HandlerInput<Data, Result>,
  options: SandboxOptions,
): OpenHandler<Data, Result> {
  const isHere = { ready: () => undefined, close: async () => {} };
  if (typeof given === "function") return { handle: given, refusalOf: () => undefined, ...isHere };
  if (areHandlers<Data, Result>(given)) return { ...createNamedHandlers(given), ...isHere };
  return openSandbox(readFile(given), options);
}

/**
 * Starts child processes for a handler that is the default export of a file. Each process runs many jobs, one at a
 * time.
 */
function openSandbox<Data, Result>(
  file: string,
  { processes, logger, failOnResponse }: SandboxOptions,
): OpenHandler<Data, Result> {
  const { mainFile, ourFile } = childFiles(file);
  const env = { ...process.env, [HANDLER_FILE]: file };
  const { ChildPool: Pool } = loadBullmq();
  const pool = new Pool({ mainFile, workerForkOptions: { env } });
  /** The child processes that are starting. */
  const starts = new Set<Promise<void>>();
  let isClosed = false;

  async function take(): Promise<Child> {
    const child = await pool.retain(ourFile);
    if (!isClosed) return child;
    await pool.kill(child);
    throw new Error("The worker is closed");
  }

  function startOne(): void {
    const start = take()
      .then((child) => pool.release(child))
      .catch((error: unknown) => {
        const reason = reasonOf(error instanceof Error ? error.message : error);
        if (isClosed) return;
        logger.error({ file, reason }, `A process of ${file} did not start: ${reason}`);
      })
      .finally(() => starts.delete(start));
    starts.add(start);
  }

  for (let count = 0; count < processes; count += 1) startOne();

  return {
    handle: markWithoutCalls<Handler<Data, Result>>(async (job, context) => {
      const parents = await readParents(context);
      context.signal.throwIfAborted();
      const child = await take();
      // The process gets an abort only after its job, so the job must not start any more.
      if (context.signal.aborted) {
        pool.release(child);
        throw context.signal.reason;
      }
      let answer: ChildAnswer;
      try {
        answer = await runInChild(child, { job, context, parents, failOnResponse });
      } catch (error) {
        void pool.kill(child);
        if (!isClosed) startOne();
        throw error;
      }
      pool.release(child);
      return read(answer) as Result;
    }),
    refusalOf: () => undefined,
    ready: () => (starts.size === 0 ? undefined : Promise.all(starts)),
    async close() {
      isClosed = true;
      await Promise.all(Object.values(pool.retained).map((child) => pool.kill(child)));
      await pool.clean();
      await Promise.all(starts);
    },
  };
}

/** Reads how the parents of a job ended. An error is passed on, because only a handler that uses them should fail. */
async function readParents({ parents }: JobContext): Promise<ChildAttempt["parents"]> {
  try {
    return { outcomes: await parents() };
  } catch (error) {
    const message = error instanceof Error ? error.message : reasonOf(error);
    return { failure: { message, facts: readErrorFacts(error) } };
  }
}

function read(answer: ChildAnswer): unknown {
  if ("failure" in answer) {
    const { facts, ...failure } = answer.failure;
    throw Object.assign(rebuildWith(failure.message, facts), failure);
  }
  return "isLost" in answer ? UNSTORABLE : answer.result;
}

/** Returns the path of BullMQ's main file for child processes, and the path of our file that the main file imports. */
function childFiles(given: string): { readonly mainFile: string; readonly ourFile: string } {
  // `import.meta.url` is undefined in a CommonJS bundle.
  const here: string | undefined = import.meta.url;
  const name = here?.endsWith(".ts") === true ? "./sandbox-child.ts" : "./sandbox-child.js";
  const ours = here === undefined ? undefined : new URL(name, here);
  if (ours !== undefined && isFile(ours)) {
    const bullmq = dirname(requireFrom(ours).resolve("bullmq"));
    return { mainFile: join(bullmq, "classes/main.js"), ourFile: ours.href };
  }
  const remedy =
    'the child process loads files of "sluice" that are not in your bundle; mark "sluice" as external in the bundler, or pass the function itself';
  throw new InvalidOptionError({ where: "worker()", option: "handler", value: given, remedy });
}

/** Returns the URL of a handler's file. */
function readFile(given: unknown): string {
  const url = fileUrlOf(given);
  if (url !== undefined && isFile(url)) return url.href;
  const remedy =
    url === undefined
      ? "give the function that does one job, such functions by the names of jobs, or the path or URL of a file that exports it"
      : `there is no file at ${shortened(fileURLToPath(url))}; a relative path begins at the working folder`;
  throw new InvalidOptionError({ where: "worker()", option: "handler", value: given, remedy });
}

/** Returns the URL of a file from its path or URL. Undefined for any other value. */
function fileUrlOf(given: unknown): URL | undefined {
  const isPath = typeof given === "string" && given !== "" && !given.startsWith("file:");
  if (isPath) return pathToFileURL(resolve(given));
  try {
    const url = new URL(given as string | URL);
    // Throws for a URL that is not a `file:` URL.
    fileURLToPath(url);
    return url;
  } catch {
    return undefined;
  }
}

function isFile(url: URL): boolean {
  try {
    return statSync(url).isFile();
  } catch {
    return false;
  }
}

/** Keeps the end of a long path, because the end is the most useful part. */
function shortened(path: string): string {
  return path.length > LONGEST_PATH ? `…${path.slice(-LONGEST_PATH)}` : path;
}

type Message =
  | { readonly cmd: Command; readonly value?: unknown; readonly err?: unknown }
  | SlotMessage;

interface ChildCall extends Pick<SandboxOptions, "failOnResponse">, Pick<ChildAttempt, "parents"> {
  readonly job: Job<unknown>;
  readonly context: JobContext;
}

/**
 * Runs a job in a child process, and resolves with the job's outcome. Rejects when the process can no longer be used,
 * because it has exited, its handler has timed out, or its job was cancelled.
 */
function runInChild(child: Child, { context, ...given }: ChildCall): Promise<ChildAnswer> {
  const { signal } = context;
  const { ChildCommand, ParentCommand } = loadBullmq();
  return new Promise((resolve, reject) => {
    function settle(outcome: () => void): void {
      child.off("message", receive).off("exit", exited);
      signal.removeEventListener("abort", cancel);
      outcome();
    }

    function receive(given: unknown): void {
      // Ignores unknown messages: the handler, or a module that it imports, may send its own messages, such as "ready".
      if (!isMessage(given)) return;
      if ("sluice" in given) return useSlot(given, context);
      const { cmd, value, err } = given;
      if (cmd === ParentCommand.Completed) settle(() => resolve(value as ChildAnswer));
      else if (cmd === ParentCommand.Log) void context.log(String(value));
      else if (cmd === ParentCommand.Progress) void context.progress(value as object);
      // An error that the handler throws comes as a reply. This message means that an error was thrown elsewhere in the
      // process.
      else if (cmd === ParentCommand.Failed || cmd === ParentCommand.Error)
        settle(() =>
          reject(Object.assign(new Error("The handler's process failed"), value ?? err)),
        );
    }

    function exited(code: number | null, by: string | null): void {
      const how = by === null ? `with exit code ${code}` : `by ${by}`;
      settle(() => reject(new Error(`The handler's process ended ${how}`)));
    }

    function cancel(): void {
      const { reason } = signal;
      const isEnded = reason instanceof HandlerTimeoutError || reason instanceof JobCancelledError;
      if (isEnded) return settle(() => reject(reason));
      send({ cmd: ChildCommand.Cancel, value: reasonOf(reason) });
    }

    function send(message: unknown): void {
      child.send(message).catch((error: unknown) => settle(() => reject(error as Error)));
    }

    child.on("message", receive).on("exit", exited);
    signal.addEventListener("abort", cancel, { once: true });
    send({ cmd: ChildCommand.Start, job: startOf({ context, ...given }) });
  });
}

function startOf({
  job: { data, ...job },
  context: { attempt, slot },
  failOnResponse,
  parents,
}: ChildCall): {
  readonly data: string;
  readonly sluice: ChildAttempt;
} {
  const { bucket, key, atMs, waitedMs, generation, hasLease } = slot;
  const drawn = { bucket, key, atMs, waitedMs, generation, hasLease };
  return {
    data: JSON.stringify(data),
    sluice: { job, attempt, failOnResponse, parents, slot: drawn },
  };
}

function isMessage(given: unknown): given is Message {
  return typeof given === "object" && given !== null && ("cmd" in given || "sluice" in given);
}

function useSlot(message: SlotMessage, { slot, log }: JobContext): void {
  if (message.sluice === "release") return slot.release();
  if (message.sluice !== "settle") return;
  slot.settle(message.cost).catch((error: unknown) => log(`settle() failed: ${reasonOf(error)}`));
}

/** The property name of the handler for jobs whose name has no handler of its own. */
const DEFAULT = "default";
/** The most handler names that an error message lists. */
const MOST_LISTED = 20;

/** Finds the handler of a job by its name. */
interface NamedHandlers<Data, Result> {
  readonly handle: Handler<Data, Result>;
  /** Returns the failure of a job whose name has no handler. Undefined if there is a handler. */
  refusalOf(job: Pick<Job<unknown>, "name">): Error | undefined;
}

/** True if `given` is an object with one handler for each job name. */
export function areHandlers<Data, Result>(given: unknown): given is Handlers<Data, Result> {
  return typeof given === "object" && given !== null && !(given instanceof URL);
}

/**
 * Creates a handler that calls the function for each job's name.
 *
 * @throws {@link InvalidOptionError} when there are no handlers, or one of them is not a function.
 */
function createNamedHandlers<Data, Result>(
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
