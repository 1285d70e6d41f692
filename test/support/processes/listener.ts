/** A replica that has a worker and listens, to all that it can; it closes when it is told to, and ends if nothing keeps it. */
import { createSluice } from "sluice";

const [redis = ""] = process.argv.slice(2);
const logger = { warn: () => {}, error: () => {} };
const sluice = createSluice({ redis, storeTimeoutMs: 200, logger });
const bucket = sluice.bucket("b", { rate: "100/s" });
const queue = sluice.queue<number>("jobs", { bucket });

queue.on("done", () => {});
sluice.worker(queue, async () => {});
await bucket.draw().catch(() => undefined);

process.send?.("ready");
process.once("message", async () => {
  await sluice.close();
  process.disconnect?.();
});
