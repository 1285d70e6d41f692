/** Sends as many messages as it is told, all of ids that others send as well; prints which of them were new. */
import { createSluice } from "sluice";
import { createWebhooks } from "sluice/webhooks";

const count = Number(process.argv[2]);
const sluice = createSluice({ prefix: process.env["SLUICE_PREFIX"] });
const hooks = createWebhooks(sluice, { http: true, allow: ["127.0.0.0/8"] });

const sending = Array.from({ length: count }, async (_each, at) => {
  const id = `m-${at}`;
  const { isNew } = await hooks.send({ tenant: "acme", type: "note.made", data: at, id });
  return `${id} ${isNew}`;
});
console.log((await Promise.all(sending)).join("\n"));
await sluice.close();
