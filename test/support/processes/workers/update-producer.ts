/** Writes versions of a document, and enqueues the update of each; tells what `enqueue` said. */
import { Redis } from "ioredis";
import { createSluice, type EnqueueOptions } from "sluice";

const [url = "", prefix = "", count = "", options = ""] = process.argv.slice(2);
const redis = new Redis(url);
const sluice = createSluice({ redis: url, prefix });
const bucket = sluice.bucket("downstream", { rate: "1000/s" });
const queue = sluice.queue<number>("jobs", { bucket });

for (let written = 0; written < Number(count); written += 1) {
  const version = await redis.incr(`${prefix}:version`);
  const { id, isNew, data } = await queue.enqueue(version, JSON.parse(options) as EnqueueOptions);
  process.send?.({ id, isNew, data, version });
}
await sluice.close();
redis.disconnect();
process.disconnect?.();
