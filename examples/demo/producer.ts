import { randomUUID } from "node:crypto";
import { setTimeout as pause } from "node:timers/promises";
import type { Queue } from "sluice";
import type { Webhook } from "../../workers/deliver.ts";
import { githubEvents } from "./github-events.ts";

const TICK_MS = 20;
/** Of the cap: a backlog grows while the producer is at it. */
const HOW_MUCH_FASTER = 5;

export interface ProduceOptions {
  readonly url: string;
  readonly jobs: number;
  /** The cap of the downstream, in calls a second. */
  readonly rate: number;
  readonly signal: AbortSignal;
  readonly onEnqueued: (count: number) => void;
}

/** Enqueues GitHub's webhooks five times faster than they may leave. */
export async function produce(queue: Queue<Webhook>, options: ProduceOptions): Promise<void> {
  const { url, jobs, rate, signal, onEnqueued } = options;
  const events = githubEvents();
  const startMs = performance.now();
  let enqueued = 0;
  while (enqueued < jobs && !signal.aborted) {
    const elapsedMs = performance.now() - startMs + TICK_MS;
    const due = Math.min(jobs, Math.ceil((elapsedMs / 1_000) * rate * HOW_MUCH_FASTER));
    const webhooks: Webhook[] = [];
    for (; enqueued < due; enqueued++) {
      const { name, payload } = events[enqueued % events.length]!;
      const headers = { "x-github-event": name, "x-github-delivery": randomUUID() };
      webhooks.push({ url, payload, headers });
    }
    await queue.enqueueMany(webhooks);
    onEnqueued(webhooks.length);
    await pause(TICK_MS);
  }
}
