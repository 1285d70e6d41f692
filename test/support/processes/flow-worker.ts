/** A worker of several queues that appends a line to a file for each job that it starts. */
import { appendFileSync } from "node:fs";
import { createSluice } from "sluice";

const [redis = "", prefix = "", file = "", ...queues] = process.argv.slice(2);
const logger = { warn: () => {}, error: () => {} };
const sluice = createSluice({ redis, prefix, logger });
const bucket = sluice.bucket("flows", { rate: "400/s" });
for (const name of queues) {
  const queue = sluice.queue<string>(name, { bucket, keepDone: { count: 5 } });
  sluice.worker(
    queue,
    async ({ data }, { parents }) => {
      const done = (await parents()).filter(({ state }) => state === "done").length;
      appendFileSync(file, `${data} ${done}\n`);
      return data;
    },
    { concurrency: 20, lockMs: 2_000 },
  );
}

process.on("disconnect", () => process.exit());
process.send?.("ready");
