/** A worker of a queue with lanes, whose handler calls a downstream and tells it whose job it is. */
import { setTimeout as pause } from "node:timers/promises";
import { createSluice } from "sluice";
import type { LaneWorkerSettings } from "../../jobs/lane-workers.ts";

const settings = JSON.parse(process.argv[2]!) as LaneWorkerSettings;
const { redis, prefix, url, policy, weights, handlerMs = 0, failFirst = 0 } = settings;
const { concurrency = 20, lockMs = 1_000, patienceMs, storeTimeoutMs } = settings;
const sluice = createSluice({ redis, prefix, storeTimeoutMs });
const bucket = sluice.bucket("downstream", policy);
const queue = sluice.queue<string>("jobs", { bucket, weights });

sluice.worker(
  queue,
  async (job, { attempt, slot }) => {
    const headers = {
      "x-job": job.data,
      "x-key": String(job.key ?? ""),
      "x-pid": String(process.pid),
      "x-attempt": String(attempt),
      "x-slot-ms": String(slot.atMs),
    };
    const response = await fetch(url, { method: "POST", headers });
    await response.arrayBuffer();
    await pause(handlerMs);
    if (attempt <= failFirst) throw new Error("not yet");
    return process.pid;
  },
  { concurrency, lockMs, patienceMs },
);
process.send?.("ready");
process.once("message", async () => {
  await sluice.close();
  process.disconnect?.();
});
