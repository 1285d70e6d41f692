/** A worker without a logger, whose handler calls a downstream at which nobody listens. */
import { createSluice } from "sluice";

const [redis = "", prefix = "", url = ""] = process.argv.slice(2);
const sluice = createSluice({ redis, prefix });
const queue = sluice.queue<string>("jobs", {
  bucket: sluice.bucket("downstream", { rate: "100/s" }),
});

sluice.worker(queue, () => fetch(url));
process.once("SIGTERM", () => void sluice.close());
