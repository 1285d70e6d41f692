import { setTimeout as pause } from "node:timers/promises";
import { WARM_UP_PATH } from "./downstream.ts";
import { githubEvents } from "./github-events.ts";
import type { Stage } from "./stage.ts";

const PER_WORKER = 50;
const LOOK_EVERY_MS = 50;
const SECOND_MS = 1_000;

/**
 * Sends webhooks that the downstream does not report, at the same cap: code that
 * runs for the first time takes some 20 ms longer, which at 100 calls a second
 * is two calls in the wrong second.
 */
export async function warmUp(
  { queue, downstream, workers }: Stage,
  { rate, signal }: { rate: number; signal: AbortSignal },
): Promise<void> {
  const url = `${downstream.url}${WARM_UP_PATH}`;
  const webhooks = githubEvents()
    .slice(0, Math.min(rate, PER_WORKER * workers.all.length))
    .map(({ payload }) => ({ url, payload }));
  await queue.enqueueMany(webhooks);

  for (let left = webhooks.length; left > 0 && !signal.aborted;) {
    if (workers.crashed > 0) throw new Error("A worker has ended before the demo began.");
    await pause(LOOK_EVERY_MS);
    const { waiting, active, delayed } = await queue.counts();
    left = waiting + active + delayed;
  }
  // The downstream refuses by all calls of the last second, so let that be over.
  await pause(SECOND_MS, undefined, { signal }).catch(() => undefined);
}
