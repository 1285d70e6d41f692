/** A process that sends webhooks until it is stopped. */
import process from "node:process";
import { Worker } from "bullmq";
import { Agent } from "undici";
import { importBuild } from "../compare/import-build.ts";
import { connectionTo } from "../limiters/bullmq.ts";
import { PLAIN_QUEUE, type PlainWebhook, type SenderSetup } from "./messages.ts";

const QUIET = { warn: () => undefined, error: () => undefined };

async function startSluice(setup: SenderSetup): Promise<() => Promise<void>> {
  const { redisUrl, build, options, concurrency, lockMs } = setup;
  const { createSluice } = await importBuild(build);
  const { createWebhooks } = await importBuild(build, "./webhooks");
  const sluice = createSluice({ redis: redisUrl, logger: QUIET });
  createWebhooks(sluice, options).worker({ concurrency, lockMs, closeDeadlineMs: 100 });
  return () => sluice.close();
}

/**
 * Starts a plain BullMQ worker without signatures, guard, log or limits. It has the same concurrency, and keeps as
 * many done jobs.
 */
function startPlain({ redisUrl, concurrency }: SenderSetup): () => Promise<void> {
  const agent = new Agent({ pipelining: 1 });
  const worker = new Worker<PlainWebhook>(
    PLAIN_QUEUE,
    async ({ data: { url, body } }) => {
      const headers = { "content-type": "application/json" };
      const { origin, pathname: path } = new URL(url);
      const answer = await agent.request({ origin, path, method: "POST", headers, body });
      await answer.body.text();
      if (answer.statusCode >= 300) throw new Error(`status ${answer.statusCode}`);
    },
    {
      connection: { ...connectionTo(redisUrl), maxRetriesPerRequest: null },
      concurrency,
      removeOnComplete: { count: 10_000 },
    },
  );
  return async () => {
    await worker.close();
    await agent.destroy();
  };
}

const setup = JSON.parse(process.argv[2]!) as SenderSetup;
const end = setup.kind === "sluice" ? await startSluice(setup) : startPlain(setup);
process.once("message", () => {
  const { user, system } = process.cpuUsage();
  void end().then(() => process.send?.({ cpuUs: user + system }, () => process.exit()));
});
process.send?.("started");
process.on("disconnect", () => process.exit());
