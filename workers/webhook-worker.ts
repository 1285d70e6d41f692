import { z } from "zod";
import { createDeliver, type Webhook } from "./webhook/deliver.ts";
import { loggedHandler } from "./shared/logged-handler.ts";
import { runWorker } from "./shared/run-worker.ts";
import { workerVariables } from "./shared/settings.ts";
import { openWebhookQueue, WEBHOOK_QUEUE } from "./webhook/queue.ts";

const userAgent = z.string().regex(/^[\x21-\x7e]+( [\x21-\x7e]+)*$/, {
  error: "give printable ASCII characters",
});
const VARIABLES = {
  ...WEBHOOK_QUEUE,
  ...workerVariables({ timeoutMs: 15_000 }),
  userAgent: { name: "SLUICE_USER_AGENT", as: userAgent.default("sluice-webhook-worker") },
};

/** Leaves out the path and the query: many webhook URLs have their secret there. */
function originOf(webhook: Webhook | undefined): { readonly to: string | undefined } {
  const url = webhook?.url;
  const to = typeof url === "string" && URL.canParse(url) ? new URL(url).origin : undefined;
  return { to };
}

// POSTs each payload to its URL.
await runWorker(VARIABLES, (settings) => {
  const deliver = createDeliver(settings);
  return {
    open: (sluice) => openWebhookQueue(sluice, settings),
    tryOut: (url) => deliver({ url, payload: {} }, new AbortController().signal),
    handler: (log) =>
      loggedHandler<Webhook, number>({
        log,
        texts: { done: "Delivered.", failed: "Not delivered." },
        facts: originOf,
        call: (job, { signal }) => deliver(job.data, signal),
      }),
  };
});
