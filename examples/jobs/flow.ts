/** Loads the parts of a catalogue, and publishes it once all parts are there. Needs $REDIS_URL. */
import { randomUUID } from "node:crypto";
import { createSluice } from "sluice";
import { onStop, ownPrefix } from "../shared/own-prefix.ts";

await using own = ownPrefix(`flow-${randomUUID().slice(0, 8)}`);
await using sluice = createSluice({ prefix: own.prefix });
onStop(async () => {
  await sluice.close();
  await own[Symbol.asyncDispose]();
});
const bucket = sluice.bucket("catalogue-api", { rate: "50/s" });
const parts = sluice.queue<string, number>("catalogue-parts", { bucket });
const steps = sluice.queue<string>("catalogue-steps", { bucket });

sluice.worker(parts, async ({ data }) => {
  console.log(`loaded ${data}`);
  return data.length;
});
sluice.worker(steps, async ({ data }, { parents }) => {
  const sizes = (await parents()).map(({ result }) => Number(result));
  console.log(`${data}, after ${sizes.length} jobs`);
  return sizes.reduce((sum, size) => sum + size, 0);
});

// The producer streams the parts, while workers load the first ones already.
const group = await parts.enqueueGroup([], { then: { queue: steps, data: "publish" }, open: true });
for (const letters of [["a", "bb"], ["ccc"], ["dddd", "eeeee"]]) await group.add(letters);
await group.close();

const { final } = group;
const announce = await steps.enqueue("announce", { after: [final] });
const why = await announce.explain();
console.log(`announce waits for: ${why?.waitsFor ?? "nothing"}`);
await announce.finished();
console.log(`published ${String(await final.finished())} characters`);
