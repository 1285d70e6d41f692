/** Sends events to $WEBHOOK_URL, and waits until workers/webhook-worker.ts has delivered them. */
import { setTimeout as pause } from "node:timers/promises";
import { createSluice } from "sluice";
import { openWebhooks } from "../../workers/webhook/sender.ts";

const LOOK_EVERY_MS = 50;

await using sluice = createSluice({ prefix: process.env["SLUICE_PREFIX"] });
const hooks = openWebhooks(sluice);

// The endpoint of a customer. The customer verifies webhooks with the same secret.
const { secret } = await hooks.endpoints.put({
  tenant: "acme",
  id: "billing",
  url: process.env["WEBHOOK_URL"] ?? "http://127.0.0.1:3000",
  secret: process.env["WEBHOOK_SECRET"],
  types: ["invoice.*"],
});
if (secret !== undefined) console.log("a secret was made for the receiver");

for (const [index, type] of ["invoice.created", "invoice.sent", "invoice.paid"].entries()) {
  const { id } = await hooks.send({ tenant: "acme", type, data: { invoice: index + 1 } });
  let state;
  do {
    await pause(LOOK_EVERY_MS);
    state = (await hooks.messages.get({ tenant: "acme", id }))?.endpoints["billing"];
  } while (state === "waiting");
  const { entries } = await hooks.attempts.list({ tenant: "acme", message: id });
  console.log(`${type} was answered ${entries.at(-1)?.status}`);
}
