/** Broadcasts one event, whose id it is told; prints how many endpoints get it. */
import { createSluice } from "sluice";
import { createWebhooks } from "sluice/webhooks";

const [id] = process.argv.slice(2) as [string];
const sluice = createSluice({ prefix: process.env["SLUICE_PREFIX"] });
const hooks = createWebhooks(sluice, { http: true, allow: ["127.0.0.0/8"] });
const { tenants, endpoints } = await hooks.broadcast({ id, type: "status.changed", data: { id } });
console.log(`${tenants} ${endpoints}`);
await sluice.close();
