import { Redis } from "ioredis";
import { takeTurns, type Limiter, type Rate } from "./contract.ts";
import { importPeer } from "./import-peer.ts";

const PACKAGE = "bullmq";
/** More places than any scenario has callers in one replica. */
const CONCURRENCY = 200;

/**
 * BullMQ with its own `limiter`. Each call is a job that any replica may run. Each key and each member has a queue,
 * because the limiter knows no keys; so keys share no common limit.
 */
export const bullmq: Limiter = {
  title: "BullMQ limiter",
  package: PACKAGE,
  async open({ redisUrl, prefix, plan, send }) {
    const { Queue, QueueEvents, Worker } = await importPeer<typeof import("bullmq")>(PACKAGE);
    const names = plan.members ?? (plan.perKey === undefined ? ["all"] : undefined);
    const queues = new Map<string, (path: string) => Promise<Response>>();

    function openQueue(name: string, { calls, seconds }: Rate) {
      const connectionFor = (): { connection: Redis; prefix: string } => {
        const connection = new Redis(redisUrl, { maxRetriesPerRequest: null });
        connection.on("error", () => undefined);
        return { connection, prefix };
      };
      const queue = new Queue(name, connectionFor());
      const events = new QueueEvents(name, connectionFor());
      const worker = new Worker<string, number>(
        name,
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
      return async (path: string): Promise<Response> => {
        const job = await queue.add("call", path, kept);
        return new Response(null, { status: await job.waitUntilFinished(events) });
      };
    }

    const nextMember = takeTurns(plan.members ?? []);
    for (const name of names ?? []) queues.set(name, openQueue(name, plan.rate));
    return {
      doesCoolDown: true,
      call(key) {
        const path = nextMember() ?? key;
        const name = names === undefined || plan.members !== undefined ? path : "all";
        const run = queues.get(name) ?? openQueue(name, plan.perKey ?? plan.rate);
        queues.set(name, run);
        return run(path);
      },
    };
  },
};
