/** Sends webhooks until it is ended. */
import { createSluice } from "sluice";
import { createWebhooks } from "sluice/webhooks";

const sluice = createSluice({ prefix: process.env["SLUICE_PREFIX"] });
const hooks = createWebhooks(sluice, { http: true, allow: ["127.0.0.0/8"] });
hooks.worker({ lockMs: 1_000 });
