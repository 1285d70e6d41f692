/** A worker whose process is killed by each job with the data "deadly", as soon as that begins. */
import { createSluice } from "sluice";

const [redis = "", prefix = "", rate = ""] = process.argv.slice(2);
const sluice = createSluice({ redis, prefix });
const queue = sluice.queue<string>("jobs", { bucket: sluice.bucket("downstream", { rate }) });

sluice.worker(
  queue,
  async (job) => {
    if (job.data === "deadly") process.kill(process.pid, "SIGKILL");
  },
  { lockMs: 1_000 },
);
