/** A relay of an outbox, until it is ended: a message closes it. */
import { createSluice } from "sluice";
import { createOutbox } from "sluice/outbox";

const [redis = "", prefix = "", database = ""] = process.argv.slice(2);
const logger = { warn: () => {}, error: () => {} };
const sluice = createSluice({ redis, prefix, logger });
const bucket = sluice.bucket("orders", { rate: "1000000/s" });
const orders = sluice.queue<number>("orders", { bucket, keepDone: { count: 0 } });
createOutbox({ sluice, queues: [orders], database }).startRelay({ pollMs: 100 });

process.once("message", () => void sluice.close().then(() => process.disconnect()));
process.on("disconnect", () => process.exit());
process.send?.("ready");
