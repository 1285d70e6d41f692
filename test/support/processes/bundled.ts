/** A service that is bundled into one file: it paces calls, does a job, and has a handler in a file refused. */
import { randomUUID } from "node:crypto";
import process from "node:process";
import { createSluice, InvalidOptionError } from "sluice";

void main();

async function main(): Promise<void> {
  const sluice = createSluice({ redis: process.argv[2]!, prefix: `t${randomUUID()}` });
  const bucket = sluice.bucket("downstream", { rate: "500/s" });
  const call = bucket.throttled(async (value: string) => value);
  console.log((await Promise.all(["one", "two", "three"].map((value) => call(value)))).join(", "));

  const queue = sluice.queue<{ name: string }>("jobs", { bucket });
  try {
    sluice.worker(queue, process.argv[1]!);
  } catch (error) {
    console.log(error instanceof InvalidOptionError ? `${error.name}: ${error.message}` : error);
  }
  const worker = sluice.worker(queue, async ({ data }) => `did ${data.name}`);
  const job = await queue.enqueue({ name: "this" });
  console.log(await job.finished<string>());
  await worker.close();
  await sluice.close();
}
