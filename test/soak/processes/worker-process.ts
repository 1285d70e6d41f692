/** A worker whose handler calls the downstream; a few jobs can never be done. */
import { setTimeout as pause } from "node:timers/promises";
import { Discard, RetryAfter } from "sluice";
import { createMachineClock } from "../../../bench/fleet/machine-clock.ts";
import { LOCK_MS } from "../plan/fault-kinds.ts";
import { DISCARD_REASON, GIVE_UP_REASON, RETRY_MS } from "../tenants/tenants.ts";
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
const { sluice, queue, tenants, settings } = actor;

await warmUp(settings.url);
await warmUp(settings.tenantsUrl);
const options = { concurrency: CONCURRENCY, lockMs: LOCK_MS, closeDeadlineMs: CLOSE_DEADLINE_MS };
sluice.worker(
  queue,
  async ({ data: { number } }, { slot }) => {
    if (number % HOPELESS_EVERY === 0) throw new Discard("can never be done");
    const response = await sendCall(settings.url, { slotMs: slot.atMs, job: number });
    if (!response.ok)
      throw Object.assign(new Error(`was answered ${response.status}`), { response });
    await pause(HANDLER_MS);
  },
  options,
);
sluice.worker(
  tenants,
  async ({ data: { number, tenant, fate } }, { slot, attempt }) => {
    await sendCall(settings.tenantsUrl, { slotMs: slot.atMs, job: number, attempt, tenant });
    if (fate === "discarded") throw new Discard(DISCARD_REASON);
    if (fate === "given up") throw new Error(GIVE_UP_REASON);
    if (fate === "retried" && attempt === 1) throw new RetryAfter(RETRY_MS);
    if (fate === "thrown" && attempt === 1) throw new Error("fails on its first attempt");
    await pause(HANDLER_MS);
  },
  options,
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
