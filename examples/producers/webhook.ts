/** Enqueues webhooks to $WEBHOOK_URL, and waits until workers/webhook-worker.ts has delivered them. */
import { createSluice } from "sluice";
import { openWebhookQueue } from "../../workers/webhook/queue.ts";

await using sluice = createSluice({ prefix: process.env["SLUICE_PREFIX"] });
const queue = openWebhookQueue(sluice);

const url = process.env["WEBHOOK_URL"] ?? "http://127.0.0.1:3000";
const events = ["invoice.created", "invoice.sent", "invoice.paid"];
const jobs = await queue.enqueueMany(
  events.map((event, index) => ({ url, payload: { event, invoice: index + 1 } })),
  { attempts: 8, backoff: { baseMs: 500 } },
);
for (const [index, job] of jobs.entries()) {
  const status = await job.finished({ timeoutMs: 60_000 });
  console.log(`${events[index]} was answered ${status}`);
}
