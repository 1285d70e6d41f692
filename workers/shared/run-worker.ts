import process from "node:process";
import type { Logger } from "pino";
import { createSluice, InvalidOptionError, type Sluice } from "sluice";
import { createWorkerLog } from "./log.ts";
import {
  readSettings,
  secretsOf,
  SettingsError,
  type SettingsOf,
  type Variables,
  type workerVariables,
} from "./settings.ts";

/** Defines what one kind of worker does. */
export interface WorkerPlan {
  /** Starts the work, which ends when the sluice is closed. Resolves with facts for the log line about the start. */
  readonly start: (sluice: Sluice, log: Logger) => Promise<object>;
}

type WorkerVariables = Variables & ReturnType<typeof workerVariables>;
type WorkerSettings = SettingsOf<ReturnType<typeof workerVariables>>;

const BAD_SETTINGS = 2;
/** Closing may take this much longer than the handlers' deadline, because Redis may be unreachable at that moment. */
const CLOSE_GRACE_MS = 5_000;
/**
 * Runs a worker, configured by the environment, until the process gets a signal. Then closes the worker and ends the
 * process.
 */
export async function runWorker<Given extends WorkerVariables>(
  variables: Given,
  planOf: (settings: SettingsOf<Given>) => WorkerPlan,
): Promise<never> {
  try {
    const settings = readSettings(process.env, variables);
    const log = createWorkerLog(settings.logLevel, secretsOf(process.env, variables));
    await work(settings, planOf(settings), log);
    // Exits explicitly, because a client may still have open handles, which must not keep a closed worker alive.
    process.exit(0);
  } catch (error) {
    const problem = describeSettingsProblem(error, variables);
    if (problem === undefined) throw error;
    process.stderr.write(`${problem}\n`);
    process.exit(BAD_SETTINGS);
  }
}

async function work(settings: WorkerSettings, plan: WorkerPlan, log: Logger): Promise<void> {
  const { redisUrl: redis, prefix, concurrency, closeDeadlineMs } = settings;
  await using sluice = createSluice({ redis, prefix, logger: log });
  const stopped = untilSignal();
  const facts = await plan.start(sluice, log);
  log.info({ ...facts, concurrency }, "Started.");

  const signal = await stopped;
  log.info({ signal }, "Closing: no new jobs will start.");
  const giveUp = (): void => {
    log.error("Closing took too long; unfinished jobs will run again when their locks expire.");
    process.exit(1);
  };
  setTimeout(giveUp, closeDeadlineMs + CLOSE_GRACE_MS).unref();
  await sluice.close();
  log.info("Closed.");
}

/**
 * Returns a message about invalid settings; undefined for any other error. The library checks some options that depend
 * on each other. Each such option has the same name as its setting.
 */
function describeSettingsProblem(error: unknown, variables: Variables): string | undefined {
  if (error instanceof SettingsError) return error.message;
  if (!(error instanceof InvalidOptionError)) return undefined;
  const [option = ""] = error.option.split(/[.[]/);
  const variable = Object.hasOwn(variables, option) ? variables[option]!.name : undefined;
  return variable === undefined ? undefined : `${variable} cannot be used: ${error.message}`;
}

/**
 * Signals within this time count as one. A single Ctrl-C can arrive twice, because the terminal and npm both pass it
 * on.
 */
export const TOGETHER_MS = 500;

/** Resolves at the first SIGINT or SIGTERM. A later signal exits the process at once with code 1. */
function untilSignal(): Promise<NodeJS.Signals> {
  let firstAtMs: number | undefined;
  return new Promise((resolve) => {
    const onSignal = (signal: NodeJS.Signals): void => {
      firstAtMs ??= performance.now();
      if (performance.now() - firstAtMs > TOGETHER_MS) process.exit(1);
      resolve(signal);
    };
    process.on("SIGINT", onSignal);
    process.on("SIGTERM", onSignal);
  });
}
