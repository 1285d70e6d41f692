import type { Logger } from "pino";
import type { Webhooks } from "sluice/webhooks";
import { runWorker } from "./shared/run-worker.ts";
import { workerVariables } from "./shared/settings.ts";
import { openWebhooks, WEBHOOK_SENDER } from "./webhook/sender.ts";

const VARIABLES = {
  ...WEBHOOK_SENDER,
  // A call to a slow endpoint occupies a place in the worker until its timeout. The high concurrency leaves places for
  // other endpoints.
  ...workerVariables({ timeoutMs: 15_000, concurrency: 250 }),
};

/**
 * Logs endpoints that fail for a long time or are disabled. The sender and its queue already log blocked endpoints and
 * undeliverable messages.
 */
function logEvents(hooks: Webhooks, log: Logger): void {
  hooks.on("failing", (facts) => log.warn(facts, "An endpoint has been failing for a long time."));
  hooks.on("disabled", (facts) => log.error(facts, "An endpoint is disabled."));
  hooks.on("recovered", (facts) => log.info(facts, "An endpoint has recovered."));
}

// Sends the queued webhook messages, signed and at a limited rate.
await runWorker(VARIABLES, (settings) => ({
  async start(sluice, log) {
    const hooks = openWebhooks(sluice, settings);
    logEvents(hooks, log);
    const { concurrency, closeDeadlineMs, lockMs } = settings;
    hooks.worker({ concurrency, closeDeadlineMs, lockMs });
    return { queue: settings.queue };
  },
}));
