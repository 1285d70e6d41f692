/**
 * A worker without a rules file, of a queue for which a file has rules. It stores a job all the time, takes it out again,
 * and tells with how many attempts it was stored, or that the queue is full; it ends when it is killed.
 */
import { createSluice, QueueFullError } from "sluice";

const [redis = "", prefix = ""] = process.argv.slice(2);
const sluice = createSluice({ redis, prefix });
const bucket = sluice.bucket("downstream", { rate: "1000/s" });
const queue = sluice.queue<number>("jobs", { bucket, defaults: { attempts: 3 } });
sluice.worker(queue, async () => undefined);
let told = "";

async function attemptsOfOne(): Promise<string> {
  try {
    const job = await queue.enqueue(1, { delayMs: 3_600_000 });
    await job.remove();
    return `attempts ${job.attempts}`;
  } catch (error) {
    if (error instanceof QueueFullError) return `full at ${error.limit}`;
    throw error;
  }
}

for (;;) {
  const text = await attemptsOfOne();
  if (text !== told) console.log(text);
  told = text;
}
