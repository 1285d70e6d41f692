/** A worker whose handler says when it begins, and goes on for a while. */
import { setTimeout as pause } from "node:timers/promises";
import { createSluice } from "sluice";

const [redis = "", prefix = "", handlerMs = "0"] = process.argv.slice(2);
const sluice = createSluice({ redis, prefix });
const bucket = sluice.bucket("downstream", { rate: "500/s" });
const queue = sluice.queue<string>("jobs", { bucket });

sluice.worker(
  queue,
  async ({ id }, { attempt }) => {
    process.send?.(`${id} ${attempt}`);
    await pause(Number(handlerMs));
  },
  { lockMs: 1_000 },
);
process.send?.("ready");
process.once("message", async () => {
  await sluice.close();
  process.disconnect?.();
});
