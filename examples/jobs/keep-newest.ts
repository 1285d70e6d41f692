/** Keeps the two newest waiting jobs of each device, however many a busy producer enqueues. Needs $REDIS_URL. */
import { randomUUID } from "node:crypto";
import { createSluice } from "sluice";
import { onStop, ownPrefix } from "../shared/own-prefix.ts";

await using own = ownPrefix(`keep-${randomUUID().slice(0, 8)}`);
await using sluice = createSluice({ prefix: own.prefix });
onStop(async () => {
  await sluice.close();
  await own[Symbol.asyncDispose]();
});
const bucket = sluice.bucket("positions-api", { rate: "20/s" });
const positions = sluice.queue<string>("positions", { bucket });

for (let minute = 1; minute <= 10; minute++) {
  for (const device of ["van-1", "van-2"]) {
    await positions.enqueue(`minute ${minute}`, { key: device, keep: "newest", keepAtMost: 2 });
  }
}
console.log(`20 jobs were enqueued, ${(await positions.counts()).waiting} wait`);

const worker = sluice.worker(positions, async ({ key, data }) => {
  console.log(`${String(key)}: ${data}`);
});
await worker.drain({ idleMs: 500 });
