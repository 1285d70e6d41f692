import { Redis } from "ioredis";
import { lacksPool, type Limiter } from "./contract.ts";
import { importPeer } from "./import-peer.ts";

const PACKAGE = "bullmq";
const NAME = "all";
/** More places than any scenario has callers in one replica. */
const CONCURRENCY = 200;

/** BullMQ with its own `limiter`. Each call is a job that any replica may run. */
export const bullmq: Limiter = {
  title: "BullMQ limiter",
  package: PACKAGE,
  missingFeature: (plan) =>
    plan.perKey === undefined ? lacksPool(plan) : "no limit for each key, except in BullMQ Pro",
  async open({ redisUrl, prefix, plan, send }) {
    const { Queue, QueueEvents, Worker } = await importPeer<typeof import("bullmq")>(PACKAGE);
    const connectionFor = (): { connection: Redis; prefix: string } => {
      const connection = new Redis(redisUrl, { maxRetriesPerRequest: null });
      connection.on("error", () => undefined);
      return { connection, prefix };
    };
    const { calls, seconds } = plan.rate;
    const queue = new Queue(NAME, connectionFor());
    const events = new QueueEvents(NAME, connectionFor());
    const worker = new Worker<string, number>(
      NAME,
      async ({ data }) => {
        const response = await send(data);
        if (response.status !== 429) return response.status;
        await queue.rateLimit(Number(response.headers.get("retry-after")) * 1_000);
        throw Worker.RateLimitError();
      },
      {
        ...connectionFor(),
        concurrency: CONCURRENCY,
        limiter: { max: calls, duration: seconds * 1_000 },
      },
    );
    queue.on("error", () => undefined);
    events.on("error", () => undefined);
    worker.on("error", () => undefined);
    const kept = { removeOnComplete: { count: 1_000 } };
    return {
      doesCoolDown: true,
      async call(key) {
        const job = await queue.add("call", key, kept);
        return new Response(null, { status: await job.waitUntilFinished(events) });
      },
    };
  },
};
