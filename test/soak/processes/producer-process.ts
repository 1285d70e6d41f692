/** A producer that enqueues jobs of all kinds, and reports which of them Redis has confirmed. */
import { setTimeout as pause } from "node:timers/promises";
import { StoreUnavailableError, type EnqueueOptions } from "sluice";
import type { FromProducer } from "./messages.ts";
import { endWhenAsked, openActor, untilMessage } from "./open-actor.ts";

const EVERY_MS = 40;
const REPORT_EVERY_MS = 200;
const AGAIN_MS = 100;
/** Enough attempts for all the faults that a job can meet. */
const ATTEMPTS = 200;
/** A few jobs have one attempt only, and some of those become dead letters. */
const HASTY_EVERY = 17;
const BACKOFF = { baseMs: 100, maxMs: 500 };
/** Longer than any soak, so that a done job cannot be stored again either. */
const DEDUPE_MS = 86_400_000;

const actor = openActor();
const { queue } = actor;
const underWay = new Set<Promise<void>>();
const errors: string[] = [];
let stored: number[] = [];
let refused = 0;
let isStopped = false;

function send(message: FromProducer): void {
  process.send?.(message);
}

function optionsOf(number: number): EnqueueOptions {
  return {
    key: number % 3 === 0 ? undefined : `k${number % 5}`,
    attempts: number % HASTY_EVERY === 0 ? 1 : ATTEMPTS,
    backoff: BACKOFF,
    delayMs: number % 13 === 0 ? 500 : undefined,
    priority: number % 11 === 0 ? "high" : undefined,
    ...(isSafe(number) ? { dedupeId: `job ${number}`, dedupeMs: DEDUPE_MS } : {}),
  };
}

/** Whether to enqueue a job again until it is confirmed, which its dedupeId makes safe. */
function isSafe(number: number): boolean {
  return number % 2 === 0;
}

async function enqueue(number: number): Promise<void> {
  for (;;) {
    try {
      await queue.enqueue({ number }, optionsOf(number));
      stored.push(number);
      return;
    } catch (error) {
      refused += 1;
      if (!(error instanceof StoreUnavailableError)) errors.push(String(error));
      if (!isSafe(number) || isStopped) return;
      await pause(AGAIN_MS);
    }
  }
}

function report(): void {
  if (stored.length > 0) send({ kind: "stored", jobs: stored });
  stored = [];
}

const go = untilMessage("go");
void untilMessage("rest").then(() => (isStopped = true));
send({ kind: "ready" });
await go;
const reporting = setInterval(report, REPORT_EVERY_MS);
for (let number = 0; !isStopped; number++) {
  const enqueuing = enqueue(number).finally(() => underWay.delete(enqueuing));
  underWay.add(enqueuing);
  await pause(EVERY_MS);
}
await Promise.all(underWay);
clearInterval(reporting);
report();
send({ kind: "rested", refused, errors });
endWhenAsked(actor);
