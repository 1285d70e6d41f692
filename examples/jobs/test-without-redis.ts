/**
 * Tests a worker without Redis: the queue is in this process's memory, and the test moves the clock. Run the same in
 * your test runner.
 */
import assert from "node:assert/strict";
import { createSluice } from "sluice";
import { advanceTime, drainQueue, failNext } from "sluice/testing";

const HOUR_MS = 3_600_000;

await using sluice = createSluice({ redis: "memory" });
const bucket = sluice.bucket("mail-provider", { rate: "1000/s" });
const reminders = sluice.queue<{ to: string }>("reminders", { bucket });
const sent: string[] = [];
sluice.worker(reminders, async ({ data }) => void sent.push(data.to));

await reminders.enqueue({ to: "ann" }, { delayMs: 24 * HOUR_MS });
await drainQueue(sluice, reminders);
assert.deepEqual(sent, []);
console.log("The reminder waits for its time.");

failNext(reminders, new Error("the provider is down"));
await advanceTime(sluice, 24 * HOUR_MS);
const { delayed } = await drainQueue(sluice, reminders);
assert.equal(delayed, 1);
console.log("The first attempt failed, and the retry waits.");

await advanceTime(sluice, HOUR_MS);
await drainQueue(sluice, reminders);
assert.deepEqual(sent, ["ann"]);
console.log("The retry has sent the reminder.");
