/** A worker on updates of one document. It tells of each run how many others ran, and the version that it found. */
import { setTimeout as pause } from "node:timers/promises";
import { Redis } from "ioredis";
import { createSluice } from "sluice";

const [url = "", prefix = "", failFirst = "0"] = process.argv.slice(2);
const redis = new Redis(url);
const sluice = createSluice({ redis: url, prefix });
const bucket = sluice.bucket("downstream", { rate: "1000/s" });
const queue = sluice.queue<number>("jobs", { bucket });

sluice.worker(queue, async ({ id, data }, { attempt }) => {
  const running = await redis.incr(`${prefix}:running`);
  const version = Number(await redis.get(`${prefix}:version`));
  await pause(15);
  await redis.decr(`${prefix}:running`);
  process.send?.({ id, data, attempt, running, version });
  if (attempt <= Number(failFirst)) throw new Error("not yet");
});
process.send?.("ready");
process.once("message", async () => {
  await sluice.close();
  redis.disconnect();
  process.disconnect?.();
});
