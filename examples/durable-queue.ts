/** Runs a producer and a worker in one file. In production they are separate processes. Needs $REDIS_URL. */
import { randomUUID } from "node:crypto";
import { once, EventEmitter } from "node:events";
import { createSluice } from "sluice";
import { onStop, ownPrefix } from "./shared/own-prefix.ts";

interface Mail {
  readonly to: string;
}

const MAILS = 20;

await using own = ownPrefix(`queue-${randomUUID().slice(0, 8)}`);
await using sluice = createSluice({ prefix: own.prefix });
onStop(async () => {
  await sluice.close();
  await own[Symbol.asyncDispose]();
});
const bucket = sluice.bucket("mail-provider", { rate: "10/s" });
const outbox = sluice.queue<Mail>("mails", { bucket });

const mails = Array.from({ length: MAILS }, (_, index) => ({ to: `reader-${index}@example.com` }));
await outbox.enqueueMany(mails, { attempts: 3 });
console.log(`${MAILS} mails are stored; they outlive this process.`);

const startMs = performance.now();
const progress = new EventEmitter();
let sent = 0;
sluice.worker(outbox, async (job, { attempt }) => {
  const atMs = Math.round(performance.now() - startMs);
  console.log(`${String(atMs).padStart(5)} ms  mail to ${job.data.to}, attempt ${attempt}`);
  sent += 1;
  if (sent === MAILS) progress.emit("all sent");
});
await once(progress, "all sent");
