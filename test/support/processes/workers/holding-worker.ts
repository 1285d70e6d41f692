/** A worker that tells when it begins and ends a job; each takes as many ms as it is given, or "forever". */
import { setTimeout as pause } from "node:timers/promises";
import { createSluice } from "sluice";

const [redis = "", prefix = "", heldMs = "0"] = process.argv.slice(2);
const sluice = createSluice({ redis, prefix });
const bucket = sluice.bucket("downstream", { rate: "1000/s" });
const queue = sluice.queue<string>("jobs", { bucket });
const DAY_MS = 86_400_000;

sluice.worker(
  queue,
  async ({ data }) => {
    process.send?.(`began ${data}`);
    await pause(heldMs === "forever" ? DAY_MS : Number(heldMs));
    process.send?.(`ended ${data}`);
  },
  { lockMs: 1_000 },
);
process.send?.("ready");
process.once("message", async () => {
  await sluice.close();
  process.disconnect?.();
});
