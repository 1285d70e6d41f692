import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import type { Command } from "commander";
import { InvalidOptionError } from "../../core/errors.ts";
import type { Drained } from "../../queue/worker/drain.ts";
import { readDrainOptions } from "../../queue/worker/worker-options.ts";
import type { Sluice } from "../../sluice/create-sluice.ts";
import { partsOf } from "../../sluice/parts.ts";
import {
  endAtOnce,
  EndWithCode,
  parseDuration,
  print,
  serveUnread,
  untilInterrupted,
  withSluice,
  type Io,
} from "../io.ts";

type Start = (sluice: Sluice) => unknown;

interface WorkerGiven {
  readonly untilEmpty?: boolean;
  readonly idle?: string;
}

/** The exit codes of `--until-empty`, beside those of all commands. `docs/reference/cli.md` lists them. */
const JOBS_FAILED = 6;
const JOBS_BLOCKED = 7;
const STOPPED_BY = { SIGINT: 130, SIGTERM: 143 } as const;

export function addWorker(program: Command, io: Io): void {
  program
    .command("worker <module>")
    .description("runs the workers that a module starts, until interrupted or until no job is left")
    .option("--until-empty", "ends once no job is left that could run")
    .option(
      "--idle <time>",
      "with --until-empty: how long no such job may be left; also waits for jobs that are due within this time (default: 5s)",
    )
    .addHelpText(
      "after",
      `
The module's default export is a function that gets a sluice, and declares buckets, queues and workers on it.
On SIGINT or SIGTERM the workers finish their jobs, as with sluice.close(). They keep running when the output is closed.

With --until-empty, the exit code is 0 if no job is left that could run and none became a dead letter. It is ${JOBS_FAILED} if jobs became dead letters, and ${JOBS_BLOCKED} if a pause or a dead letter blocks due jobs. After SIGINT it is ${STOPPED_BY.SIGINT}, and after SIGTERM ${STOPPED_BY.SIGTERM}. Jobs that are due later stay in the queue.

Example: sluice worker ./charge-worker.js
Example: sluice worker ./charge-worker.js --until-empty --idle 30s`,
    )
    .action(async (path: string, given: WorkerGiven, command: Command) => {
      const idleMs = readIdle(given);
      serveUnread();
      if (idleMs !== undefined) endAtOnce();
      const start = await startOf(path);
      await withSluice(command, io, async (sluice) => {
        const interrupted = untilInterrupted();
        await start(sluice);
        const { hasWorkers, drainWorkers } = partsOf("sluice worker", sluice);
        const hasStarted = await Promise.race([hasWorkers(), interrupted.then(() => true)]);
        if (!hasStarted) {
          throw wrongModule(
            path,
            "it started no worker: call sluice.worker(queue, handler) on the sluice that its default export gets",
          );
        }
        if (idleMs === undefined) {
          io.err("Working; stop it with SIGINT or SIGTERM.\n");
          await interrupted;
          return;
        }
        io.err("Working until no job is left; stop it with SIGINT or SIGTERM.\n");
        let signal: keyof typeof STOPPED_BY | undefined;
        void interrupted.then((by) => {
          signal = by;
          return sluice.close();
        });
        const drained = await drainWorkers(idleMs);
        print(command, io, drained, describe);
        const code = codeOf(drained, signal);
        if (code !== 0) throw new EndWithCode(code);
      });
    });
}

/** Returns how long no job may be left. Undefined if the workers run until they are interrupted. */
function readIdle({ untilEmpty, idle }: WorkerGiven): number | undefined {
  if (untilEmpty === true) {
    const idleMs = idle === undefined ? undefined : parseDuration("--idle", idle);
    return readDrainOptions("sluice worker", { idleMs }).idleMs;
  }
  if (idle === undefined) return undefined;
  const remedy = "add --until-empty, or leave it out";
  throw new InvalidOptionError({ where: "sluice worker", option: "--idle", value: idle, remedy });
}

function codeOf({ reason, failed }: Drained, signal: keyof typeof STOPPED_BY | undefined): number {
  if (signal !== undefined) return STOPPED_BY[signal];
  // The module itself has closed a worker, so jobs may be left.
  if (reason === "closed") return 1;
  if (failed > 0) return JOBS_FAILED;
  return reason === "blocked" ? JOBS_BLOCKED : 0;
}

const WHY: Readonly<Record<Drained["reason"], string>> = {
  empty: "No job is left that could run.",
  blocked: "Due jobs are left that cannot run: see sluice why.",
  closed: "Stopped before all jobs were done.",
};

function describe({ reason, done, failed, retried, blocked, delayed }: Drained): string {
  const counts = `${done} done, ${failed} failed for good, ${retried} attempts to be retried`;
  return `${WHY[reason]}\n${counts}; left: ${blocked} blocked, ${delayed} due later.`;
}

async function startOf(path: string): Promise<Start> {
  const url = pathToFileURL(resolve(path)).href;
  const loaded = (await import(url).catch((cause: unknown) => {
    throw wrongModule(path, "it could not be loaded: give a JavaScript file", cause);
  })) as { readonly default?: unknown };
  if (typeof loaded.default === "function") return loaded.default as Start;
  throw wrongModule(path, "its default export must be a function that gets a sluice");
}

function wrongModule(path: string, remedy: string, cause?: unknown): InvalidOptionError {
  return new InvalidOptionError({
    where: "sluice worker",
    option: "module",
    value: path,
    remedy,
    cause,
  });
}
