/** Indexes a document once after a burst of edits, and stops an indexing run that is out of date. Needs $REDIS_URL. */
import { randomUUID } from "node:crypto";
import { setTimeout as pause } from "node:timers/promises";
import { createSluice } from "sluice";
import { onStop, ownPrefix } from "../shared/own-prefix.ts";

await using own = ownPrefix(`debounce-${randomUUID().slice(0, 8)}`);
// Silent, because the cancelled run is printed below.
const logger = { warn: () => {}, error: () => {} };
await using sluice = createSluice({ prefix: own.prefix, logger });
onStop(async () => {
  await sluice.close();
  await own[Symbol.asyncDispose]();
});
const bucket = sluice.bucket("search-api", { rate: "20/s" });
const index = sluice.queue<string>("search-index", { bucket });
const edit = (text: string) =>
  index.enqueue(text, {
    key: "acme",
    dedupeId: "document 1",
    dedupe: { mode: "debounce", waitMs: 300, maxDelayMs: 5_000 },
    cancelRunning: true,
  });

const worker = sluice.worker(index, async ({ data }, { signal }) => {
  console.log(`indexing "${data}"`);
  // The first version is long. A newer one ends its run.
  const isEnded = await pause(data.length < 8 ? 60_000 : 10, false, { signal }).catch(() => true);
  console.log(isEnded ? `stopped "${data}"` : `indexed "${data}"`);
});

for (const text of ["S", "Sl", "Slu"]) await edit(text);
while (worker.status().running === 0) await pause(50);
for (const text of ["Sluice", "Sluice is", "Sluice is fast"]) await edit(text);
const { done, failed } = await worker.drain({ idleMs: 1_000 });
console.log(`6 edits: ${done} done, ${failed} cancelled`);
