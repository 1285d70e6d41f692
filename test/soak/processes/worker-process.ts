/** A worker whose handler calls the downstream; a few jobs can never be done. */
import { setTimeout as pause } from "node:timers/promises";
import { Discard } from "sluice";
import { createMachineClock } from "../../../bench/fleet/machine-clock.ts";
import { LOCK_MS } from "../plan/fault-kinds.ts";
import type { FromWorker } from "./messages.ts";
import { endWhenAsked, openActor } from "./open-actor.ts";
import { sendCall, warmUp } from "./send-call.ts";

const CONCURRENCY = 20;
const HANDLER_MS = 20;
const LOOK_EVERY_MS = 50;
const CLOSE_DEADLINE_MS = 4_000;
/** The handler discards one of this many jobs. */
const HOPELESS_EVERY = 101;

const actor = openActor();
const { sluice, queue, settings } = actor;

await warmUp(settings.url);
sluice.worker(
  queue,
  async ({ data: { number } }, { slot }) => {
    if (number % HOPELESS_EVERY === 0) throw new Discard("can never be done");
    const response = await sendCall(settings.url, { slotMs: slot.atMs, job: number });
    if (!response.ok)
      throw Object.assign(new Error(`was answered ${response.status}`), { response });
    await pause(HANDLER_MS);
  },
  { concurrency: CONCURRENCY, lockMs: LOCK_MS, closeDeadlineMs: CLOSE_DEADLINE_MS },
);
endWhenAsked(actor);
/** Reports each standstill long enough to end a lock, which is renewed at half its time. */
function watchForStandstills(): void {
  const nowMs = createMachineClock();
  let lastMs = nowMs();
  setInterval(() => {
    const fromMs = lastMs;
    lastMs = nowMs();
    if (lastMs - fromMs > LOCK_MS / 2) send({ kind: "stood", fromMs, toMs: lastMs });
  }, LOOK_EVERY_MS).unref();
}

function send(message: FromWorker): void {
  process.send?.(message);
}

watchForStandstills();
send({ kind: "ready" });
