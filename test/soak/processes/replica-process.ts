/** A replica at full load: half of its callers draw, half call a throttled function. */
import { setTimeout as pause } from "node:timers/promises";
import type { FromReplica, Resources } from "./messages.ts";
import { endWhenAsked, openActor, untilMessage } from "./open-actor.ts";
import { sendCall } from "./send-call.ts";

const CALLERS = 10;
const AFTER_ERROR_MS = 50;
/** How long sockets and timers that are no longer needed may take to disappear. */
const SETTLE_LIMIT_MS = 15_000;
const POLL_MS = 100;

const actor = openActor();
const { bucket, settings } = actor;
const { url } = settings;
const errors: Record<string, number> = {};
let warnings = 0;
let isStopped = false;
process.on("warning", () => (warnings += 1));

function send(message: FromReplica): void {
  process.send?.(message);
}

const calls = [
  bucket.throttled(() => sendCall(url, {})),
  async () => sendCall(url, { slotMs: (await bucket.draw()).atMs }),
];

async function keepCalling(call: () => Promise<unknown>): Promise<void> {
  while (!isStopped) {
    try {
      await call();
    } catch (error) {
      const name = error instanceof Error ? error.name : typeof error;
      errors[name] = (errors[name] ?? 0) + 1;
      await pause(AFTER_ERROR_MS);
    }
  }
}

function resourcesNow(): Resources {
  const counts: Record<string, number> = { warnings, listeners: listenersNow() };
  for (const name of process.getActiveResourcesInfo()) counts[name] = (counts[name] ?? 0) + 1;
  return counts;
}

function listenersNow(): number {
  return process.eventNames().reduce((sum, name) => sum + process.listenerCount(name), 0);
}

function isWithin(now: Resources, before: Resources): boolean {
  return Object.entries(now).every(([name, count]) => count <= (before[name] ?? 0));
}

const go = untilMessage("go");
const rest = untilMessage("rest");
for (const call of calls) await call();
const before = resourcesNow();
send({ kind: "ready", resources: before });
await go;
const running = calls.flatMap((call) => Array.from({ length: CALLERS }, () => keepCalling(call)));
await rest;
isStopped = true;
await Promise.all(running);
const endsAtMs = performance.now() + SETTLE_LIMIT_MS;
while (!isWithin(resourcesNow(), before) && performance.now() < endsAtMs) await pause(POLL_MS);
send({ kind: "rested", resources: resourcesNow(), errors });
endWhenAsked(actor);
