/** Broadcasts one event, whose id it is told, to the tenants that it is told, or to all; prints how many endpoints get it. */
import { createSluice } from "sluice";
import { createWebhooks } from "sluice/webhooks";

const [id, ...named] = process.argv.slice(2) as [string, ...string[]];
const tenants = named.length === 0 ? undefined : named;
const sluice = createSluice({ prefix: process.env["SLUICE_PREFIX"] });
const hooks = createWebhooks(sluice, { http: true, allow: ["127.0.0.0/8"] });
const type = "status.changed";
const sent = await hooks.broadcast({ id, type, data: { id }, tenants });
console.log(`${sent.tenants} ${sent.endpoints}`);
await sluice.close();
