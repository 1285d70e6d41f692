import process from "node:process";
import { createSluice, InvalidOptionError, type Handler, type Queue, type Sluice } from "sluice";
import type { Logger } from "pino";
import {
  readSettings,
  secretsOf,
  SettingsError,
  type SettingsOf,
  type Variables,
} from "./settings.ts";
import { untilSignal } from "./signals.ts";
import type { workerVariables } from "./variables.ts";
import { warmUp } from "./warm-up.ts";
import { createWorkerLog } from "./worker-log.ts";

/** What one kind of worker does. */
export interface WorkerPlan<Data, Result> {
  readonly open: (sluice: Sluice) => Queue<Data, Result>;
  readonly handler: (log: Logger) => Handler<Data, Result>;
  /** Makes a call as the handler does, to warm up; it must not show the key. */
  readonly tryOut: (url: string) => Promise<unknown>;
}

type WorkerVariables = Variables & ReturnType<typeof workerVariables>;
type WorkerSettings = SettingsOf<ReturnType<typeof workerVariables>>;

const BAD_SETTINGS = 2;
/** What closing may take beyond the deadline of its handlers: Redis may be away just then. */
const CLOSE_GRACE_MS = 5_000;
/** Which variable an option was read from that only the library can check, with others. */
const VARIABLE_OF: Readonly<Record<string, string>> = { burst: "SLUICE_BURST" };

/** Runs a worker of this environment until a signal comes, closes it, and ends the process. */
export async function runWorker<Given extends WorkerVariables, Data, Result>(
  variables: Given,
  planOf: (settings: SettingsOf<Given>) => WorkerPlan<Data, Result>,
): Promise<never> {
  try {
    const settings = readSettings(process.env, variables);
    const log = createWorkerLog(settings.logLevel, secretsOf(process.env, variables));
    await work(settings, planOf(settings), log);
    // What a client may still hold open must not keep a worker that is closed.
    process.exit(0);
  } catch (error) {
    const problem = describeSettingsProblem(error);
    if (problem === undefined) throw error;
    process.stderr.write(`${problem}\n`);
    process.exit(BAD_SETTINGS);
  }
}

async function work<Data, Result>(
  settings: WorkerSettings,
  { open, handler, tryOut }: WorkerPlan<Data, Result>,
  log: Logger,
): Promise<void> {
  const { redisUrl: redis, prefix, concurrency, closeDeadlineMs, lockMs } = settings;
  await using sluice = createSluice({ redis, prefix, logger: log });
  const queue = open(sluice);
  const stopped = untilSignal();
  await warmUp(tryOut);
  sluice.worker(queue, handler(log), { concurrency, closeDeadlineMs, lockMs });
  log.info({ queue: queue.name, bucket: queue.bucket.name, concurrency }, "Started.");

  const signal = await stopped;
  log.info({ signal }, "Closing: no more jobs are started.");
  const giveUp = (): void => {
    log.error("Closing takes too long; jobs that were held run again once their locks have ended.");
    process.exit(1);
  };
  setTimeout(giveUp, closeDeadlineMs + CLOSE_GRACE_MS).unref();
  await sluice.close();
  log.info("Closed.");
}

function describeSettingsProblem(error: unknown): string | undefined {
  if (error instanceof SettingsError) return error.message;
  if (!(error instanceof InvalidOptionError)) return undefined;
  const variable = VARIABLE_OF[error.option];
  return variable === undefined ? undefined : `${variable} cannot be used: ${error.message}`;
}
