/** A worker whose handler calls a downstream, and takes a while over it. */
import { setTimeout as pause } from "node:timers/promises";
import { createSluice } from "sluice";

const [redis = "", prefix = "", rate = "", url = "", handlerMs = "0", lockMs = "1000"] =
  process.argv.slice(2);
const sluice = createSluice({ redis, prefix });
const bucket = sluice.bucket("downstream", { rate });
const queue = sluice.queue<string>("jobs", { bucket });

sluice.worker(
  queue,
  async (job, { attempt }) => {
    const headers = {
      "x-job": job.data,
      "x-pid": String(process.pid),
      "x-attempt": String(attempt),
    };
    const response = await fetch(url, { method: "POST", headers });
    await response.arrayBuffer();
    await pause(Number(handlerMs));
  },
  { concurrency: 20, lockMs: Number(lockMs) },
);
process.send?.("ready");
process.once("message", async () => {
  await sluice.close();
  process.disconnect?.();
});
