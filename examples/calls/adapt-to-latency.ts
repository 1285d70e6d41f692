/**
 * A limit finds how many calls a service can run at once, and follows when that number halves. Sixteen callers use a
 * stand-in for the service, which queues the calls above its capacity. With $REDIS_URL set, all processes that run this
 * example share the limit.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { concurrency, createSluice } from "sluice";
import { onStop, ownPrefix } from "../shared/own-prefix.ts";

const CALLERS = 16;
const WORK_MS = 80;

let capacity = 12;
let running = 0;
const queue: (() => void)[] = [];

/** Replace this with the call to your service. */
async function search(): Promise<void> {
  while (running >= capacity) await new Promise<void>((resolve) => queue.push(resolve));
  running += 1;
  await sleep(WORK_MS);
  running -= 1;
  queue.shift()?.();
}

await using own = ownPrefix("adapt");
await using sluice = createSluice({ prefix: own.prefix });
let isOver = false;
onStop(async () => {
  isOver = true;
  await sluice.close();
  await own[Symbol.asyncDispose]();
});
// On a busy computer, the timers of the stand-in are late, so its latency varies more than that of most services.
const limit = concurrency("auto", { initial: 4, max: 100, tolerance: 1.5 });
const bucket = sluice.bucket("search", { limits: [limit] });

async function callAgain(): Promise<void> {
  while (!isOver) await bucket.run(search);
}

/** Shows the limit at each change, until it has one of these values. */
async function showUntil(isReached: (atOnce: number) => boolean): Promise<void> {
  let shown: number | undefined;
  while (!isOver) {
    const { atOnce, reason, recentMs } = (await bucket.peek()).limits[0]!.adaptive!;
    if (atOnce !== shown) {
      console.log(`${atOnce} at once (${reason}), calls take ${Math.round(recentMs)} ms`);
      shown = atOnce;
    }
    if (isReached(atOnce)) return;
    await sleep(50);
  }
}

console.log(`The service runs ${capacity} calls at once.`);
const calling = Array.from({ length: CALLERS }, callAgain);
await showUntil((atOnce) => atOnce >= 10);
capacity = 6;
console.log(`The service runs ${capacity} calls at once from now on.`);
await showUntil((atOnce) => atOnce <= 8);
isOver = true;
await Promise.all(calling);
console.log("The limit has followed.");
