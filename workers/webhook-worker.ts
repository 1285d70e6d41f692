import type { Logger } from "pino";
import type { Webhooks } from "sluice/webhooks";
import { runWorker } from "./shared/run-worker.ts";
import { workerVariables } from "./shared/settings.ts";
import { openWebhooks, WEBHOOK_SENDER } from "./webhook/sender.ts";

const VARIABLES = {
  ...WEBHOOK_SENDER,
  // Slow endpoints hold places for as long as they may take, and others must find one meanwhile.
  ...workerVariables({ timeoutMs: 15_000, concurrency: 250 }),
};

/** What is blocked, and what is given up, the sender and its queue log themselves. */
function logEvents(hooks: Webhooks, log: Logger): void {
  hooks.on("failing", (facts) => log.warn(facts, "An endpoint has been failing for long."));
  hooks.on("disabled", (facts) => log.error(facts, "An endpoint is disabled."));
  hooks.on("recovered", (facts) => log.info(facts, "An endpoint is well again."));
}

// Sends what the sender's messages wait for, signed and paced.
await runWorker(VARIABLES, (settings) => ({
  async start(sluice, log) {
    const hooks = openWebhooks(sluice, settings);
    logEvents(hooks, log);
    const { concurrency, closeDeadlineMs, lockMs } = settings;
    hooks.worker({ concurrency, closeDeadlineMs, lockMs });
    return { queue: settings.queue };
  },
}));
