/** A worker of a queue whose keys are ordered; its handler writes into a list of Redis when it begins and ends. */
import { setTimeout as pause } from "node:timers/promises";
import { Redis } from "ioredis";
import { createSluice, RetryAfter } from "sluice";
import type { OrderedJob, OrderedWorkerSettings, Step } from "../../jobs/ordered-workers.ts";

const settings = JSON.parse(process.argv[2]!) as OrderedWorkerSettings;
const { redis, prefix, ordered, rate = "1000/s", keyRate, concurrency = 20 } = settings;
const sluice = createSluice({ redis, prefix });
const bucket = sluice.bucket("downstream", {
  rate,
  ...(keyRate !== undefined && { perKey: { rate: keyRate } }),
});
const queue = sluice.queue<OrderedJob>("jobs", { bucket, ordered });
const log = new Redis(redis);

sluice.worker(
  queue,
  async ({ key, data }, { attempt }) => {
    const { name, takesMs = 0, fails = 0, retryMs = 0, until } = data;
    const tell = (what: Step["what"]): Promise<number> => {
      const step: Step = { key: key as string, name, attempt, what, pid: process.pid };
      return log.rpush(`${prefix}:log`, JSON.stringify(step));
    };
    await tell("begin");
    await pause(takesMs);
    while (until !== undefined && (await log.exists(`${prefix}:${until}`)) === 0) await pause(10);
    await tell("end");
    const runs = await log.incr(`${prefix}:runs:${name}`);
    if (runs <= fails) throw new RetryAfter(retryMs);
  },
  { concurrency, lockMs: 1_000 },
);
process.send?.("ready");
process.once("message", async () => {
  await sluice.close();
  await log.quit();
  process.disconnect?.();
});
