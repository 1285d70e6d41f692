/** A worker whose handler waits until its signal is aborted, and then does what its job says; it tells of both. */
import { setTimeout as pause } from "node:timers/promises";
import { createSluice, RetryAfter } from "sluice";

const [redis = "", prefix = "", lockMs = "30000"] = process.argv.slice(2);
const sluice = createSluice({ redis, prefix });
const bucket = sluice.bucket("downstream", { rate: "100/s" });
const queue = sluice.queue<string>("jobs", { bucket });

sluice.worker(
  queue,
  async ({ id, data }, { signal, attempt }) => {
    process.send?.({ begun: id, attempt });
    while (!signal.aborted) await pause(10);
    process.send?.({ aborted: id, by: (signal.reason as Error).name });
    if (data === "throw") throw new Error("as it was told");
    if (data === "throw its reason") throw signal.reason;
    if (data === "ask for more") throw new RetryAfter(1);
    return "a result";
  },
  { lockMs: Number(lockMs) },
);
process.send?.("ready");
