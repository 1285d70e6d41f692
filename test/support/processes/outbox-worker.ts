/** A worker that writes a line of fixed length into a file for each job that it starts. */
import { appendFileSync } from "node:fs";
import { createSluice } from "sluice";

const [redis = "", prefix = "", file = ""] = process.argv.slice(2);
/** The number of the job, and when it was stored, each with 16 digits. */
const DIGITS = 16;
const logger = { warn: () => {}, error: () => {} };
const sluice = createSluice({ redis, prefix, logger });
const bucket = sluice.bucket("orders", { rate: "1000000/s" });
const orders = sluice.queue<number>("orders", { bucket, keepDone: { count: 0 } });
sluice.worker(
  orders,
  async ({ data, enqueuedAtMs }) => {
    const line = [data, enqueuedAtMs].map((value) => String(value).padStart(DIGITS)).join(" ");
    appendFileSync(file, `${line}\n`);
  },
  { concurrency: 20, lockMs: 2_000 },
);

process.on("disconnect", () => process.exit());
process.send?.("ready");
