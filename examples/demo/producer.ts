import { randomUUID } from "node:crypto";
import { createRequire } from "node:module";
import { setTimeout as pause } from "node:timers/promises";
import type { Queue } from "sluice";
import type { Webhook } from "../../workers/webhook/deliver.ts";

const TICK_MS = 20;
/** Times the cap: the backlog grows while the producer runs. */
const HOW_MUCH_FASTER = 5;

export interface ProduceOptions {
  readonly url: string;
  readonly jobs: number;
  /** The cap of the downstream, in calls a second. */
  readonly rate: number;
  readonly signal: AbortSignal;
  readonly onEnqueued: (count: number) => void;
}

/** Enqueues GitHub webhooks five times faster than they may leave. */
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

/** One webhook in GitHub's format. */
export interface GithubEvent {
  /** The value of `x-github-event`, such as `"push"`. */
  readonly name: string;
  readonly payload: unknown;
}

interface Definition {
  readonly name: string;
  readonly examples: readonly unknown[];
}

/** Returns all 329 example webhooks of `@octokit/webhooks-examples`, 10 kB each on average. */
export function githubEvents(): readonly GithubEvent[] {
  // The package is one JSON file, but its types describe a module.
  const require = createRequire(import.meta.url);
  const definitions = require("@octokit/webhooks-examples") as readonly Definition[];
  return definitions.flatMap(({ name, examples }) =>
    examples.map((payload) => ({ name, payload })),
  );
}
