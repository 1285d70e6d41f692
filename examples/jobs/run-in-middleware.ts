/** Gives each job the tenant of its producer, and logs how long each attempt took. Needs $REDIS_URL. */
import { AsyncLocalStorage } from "node:async_hooks";
import { randomUUID } from "node:crypto";
import { createSluice } from "sluice";
import { onStop, ownPrefix } from "../shared/own-prefix.ts";

await using own = ownPrefix(`middleware-${randomUUID().slice(0, 8)}`);
await using sluice = createSluice({ prefix: own.prefix });
onStop(async () => {
  await sluice.close();
  await own[Symbol.asyncDispose]();
});

const tenant = new AsyncLocalStorage<string>();
sluice.use({
  // The producer's tenant becomes the key of the job. A key in the options takes precedence.
  enqueue: ({ jobs }, next) =>
    next(
      jobs.map(({ data, options }) => ({ data, options: { key: tenant.getStore(), ...options } })),
    ),
  handler: (job, next) => tenant.run(String(job.key), next),
});

const bucket = sluice.bucket("reports-api", { rate: "20/s" });
const reports = sluice.queue<string>("reports", { bucket });
reports.use({
  async handler(job, next, { attempt }) {
    const startMs = performance.now();
    const result = await next();
    const tookMs = Math.round(performance.now() - startMs);
    console.log(`job ${job.id}, attempt ${attempt}: ${String(result)} (${tookMs} ms)`);
    return result;
  },
});
const worker = sluice.worker(reports, async ({ data }) => `${data} for ${tenant.getStore()}`);

await tenant.run("acme", () => reports.enqueueMany(["sales", "stock"]));
await tenant.run("umbrella", () => reports.enqueue("sales"));
await worker.drain({ idleMs: 500 });
