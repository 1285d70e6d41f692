import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import process from "node:process";
import type { Logger } from "pino";
import { createSluice, InvalidOptionError, type Handler, type Queue, type Sluice } from "sluice";
import { createWorkerLog } from "./log.ts";
import {
  readSettings,
  secretsOf,
  SettingsError,
  type SettingsOf,
  type Variables,
  type workerVariables,
} from "./settings.ts";

/** What one kind of worker does. */
export interface WorkerPlan<Data, Result> {
  readonly open: (sluice: Sluice) => Queue<Data, Result>;
  readonly handler: (log: Logger) => Handler<Data, Result>;
  /** Makes a call like the handler's, to warm up; it must not send the API key. */
  readonly tryOut: (url: string) => Promise<unknown>;
}

type WorkerVariables = Variables & ReturnType<typeof workerVariables>;
type WorkerSettings = SettingsOf<ReturnType<typeof workerVariables>>;

const BAD_SETTINGS = 2;
/** How much longer than the handlers' deadline closing may take: Redis may be away at that moment. */
const CLOSE_GRACE_MS = 5_000;
/** The variable behind each option that only the library can check, together with others. */
const VARIABLE_OF: Readonly<Record<string, string>> = { burst: "SLUICE_BURST" };

/** Runs a worker with this environment until a signal comes, closes it, and ends the process. */
export async function runWorker<Given extends WorkerVariables, Data, Result>(
  variables: Given,
  planOf: (settings: SettingsOf<Given>) => WorkerPlan<Data, Result>,
): Promise<never> {
  try {
    const settings = readSettings(process.env, variables);
    const log = createWorkerLog(settings.logLevel, secretsOf(process.env, variables));
    await work(settings, planOf(settings), log);
    // A client may still hold something open; that must not keep a closed worker alive.
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
  log.info({ signal }, "Closing: no new jobs will start.");
  const giveUp = (): void => {
    log.error("Closing took too long; unfinished jobs will run again when their locks expire.");
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

/** Signals this close together count as one Ctrl-C, which the terminal and npm both pass on. */
export const TOGETHER_MS = 500;

/** Resolves at the first SIGINT or SIGTERM; a later one exits at once with code 1. */
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

const CALLS = 20;

/**
 * Makes a few calls to a temporary local server that answers `{}`; their results do not matter.
 * The first call of a process takes about 50 ms longer than later ones, because fetch is loaded;
 * it would arrive late, together with the calls after it, and overfill their second.
 */
async function warmUp(call: (url: string) => Promise<unknown>): Promise<void> {
  const server = createServer((request, response) => {
    request.resume();
    response.setHeader("content-type", "application/json").end("{}");
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  for (let count = 0; count < CALLS; count++) await call(url).catch(() => undefined);
  server.close();
  server.closeAllConnections();
}
