/** Seven producers of one process, each of which enqueues until its queue is full; tells how many jobs of a key are stored. */
import { createSluice, QueueFullError, type MaxBacklog } from "sluice";

const [redis = "", prefix = "", bound = ""] = process.argv.slice(2);
const sluice = createSluice({ redis, prefix });
const bucket = sluice.bucket("downstream", { rate: "1000/s" });
const maxBacklog = JSON.parse(bound) as MaxBacklog;
const queue = sluice.queue<number>("jobs", { bucket, maxBacklog });

async function produce(key: string): Promise<void> {
  let [stored, others, refused] = [0, 0, 0];
  while (refused < 20) {
    try {
      const delayMs = stored % 2 === 0 ? 3_600_000 : 0;
      await queue.enqueue(stored, { key, delayMs });
      stored += 1;
    } catch (error) {
      refused += 1;
      if (!(error instanceof QueueFullError)) others += 1;
    }
  }
  process.send?.({ key, stored, others });
}

await Promise.all([...Array(7).keys()].map((index) => produce(index % 2 === 0 ? "a" : "b")));
await sluice.close();
process.disconnect?.();
