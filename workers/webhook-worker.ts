import process from "node:process";
import { createSluice, InvalidOptionError, type Handler } from "sluice";
import type { Logger } from "pino";
import { createDeliver, DeliveryError, type Deliver, type Webhook } from "./deliver.ts";
import { readSettings, SettingsError, type Settings } from "./settings.ts";
import { untilSignal } from "./signals.ts";
import { warmUp } from "./warm-up.ts";
import { createWorkerLog } from "./worker-log.ts";

const BAD_SETTINGS = 2;
/** What closing may take beyond the deadline of its handlers: Redis may be away just then. */
const CLOSE_GRACE_MS = 5_000;
/** Which variable an option of the library was read from. */
const VARIABLE_OF: Readonly<Record<string, string>> = {
  rate: "SLUICE_RATE",
  burst: "SLUICE_BURST",
};

try {
  await main(readSettings(process.env));
} catch (error) {
  const problem = describeSettingsProblem(error);
  if (problem === undefined) throw error;
  process.stderr.write(`${problem}\n`);
  process.exitCode = BAD_SETTINGS;
}

/** Delivers webhooks until a signal comes, then closes: jobs that have not started stay in the queue. */
async function main(settings: Settings): Promise<void> {
  const { redisUrl: redis, prefix, rate, burst, concurrency, closeDeadlineMs } = settings;
  const log = createWorkerLog(settings.logLevel);
  await using sluice = createSluice({ redis, prefix, logger: log });
  const bucket = sluice.bucket(settings.bucket, { rate, burst });
  const queue = sluice.queue<Webhook>(settings.queue, { bucket });
  const stopped = untilSignal();

  const deliver = createDeliver(settings);
  await warmUp(deliver);
  sluice.worker(queue, createHandler(deliver, log), { concurrency, closeDeadlineMs });
  log.info({ queue: queue.name, bucket: bucket.name, rate, concurrency }, "Started.");

  const signal = await stopped;
  log.info({ signal }, "Closing: no more webhooks are started.");
  const giveUp = (): void => {
    log.error("Closing takes too long; jobs that were held run again once their locks have ended.");
    process.exit(1);
  };
  setTimeout(giveUp, closeDeadlineMs + CLOSE_GRACE_MS).unref();
  await sluice.close();
  log.info("Closed.");
}

function createHandler(deliver: Deliver, log: Logger): Handler<Webhook, number> {
  return async (job, { signal, attempt }) => {
    const startMs = performance.now();
    const facts = (): object => ({
      job: job.id,
      to: originOf(job.data),
      attempt,
      tookMs: Math.round(performance.now() - startMs),
    });
    try {
      const status = await deliver(job.data, signal);
      log.debug({ ...facts(), status }, "Delivered.");
      return status;
    } catch (error) {
      const reason = error instanceof DeliveryError ? error.message : "failed unexpectedly";
      log.warn({ ...facts(), reason }, "Not delivered.");
      throw error;
    }
  };
}

/** The path is left out as well as the query: many webhook addresses keep their secret there. */
function originOf(webhook: Webhook | undefined): string | undefined {
  const url = webhook?.url;
  return typeof url === "string" && URL.canParse(url) ? new URL(url).origin : undefined;
}

function describeSettingsProblem(error: unknown): string | undefined {
  if (error instanceof SettingsError) return error.message;
  if (!(error instanceof InvalidOptionError)) return undefined;
  const variable = VARIABLE_OF[error.option];
  return variable === undefined ? undefined : `${variable} cannot be used: ${error.message}`;
}
