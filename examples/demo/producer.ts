import { createRequire } from "node:module";
import { setTimeout as pause } from "node:timers/promises";
import type { Webhooks } from "sluice/webhooks";
import { customerOf, type Customer } from "./customers.ts";

const TICK_MS = 20;
/** The producer's rate ÷ the cap. Above 1, the backlog grows while the producer runs. */
const HOW_MUCH_FASTER = 5;

export interface ProduceOptions {
  readonly customers: readonly Customer[];
  readonly jobs: number;
  /** The cap of the downstream, in calls a second. */
  readonly rate: number;
  readonly signal: AbortSignal;
  readonly onSent: (customer: Customer) => void;
}

/** Sends GitHub webhooks five times as fast as the cap allows. */
export async function produce(hooks: Webhooks, options: ProduceOptions): Promise<void> {
  const { customers, jobs, rate, signal, onSent } = options;
  const events = githubEvents();
  const startMs = performance.now();
  let sent = 0;
  while (sent < jobs && !signal.aborted) {
    const elapsedMs = performance.now() - startMs + TICK_MS;
    const due = Math.min(jobs, Math.ceil((elapsedMs / 1_000) * rate * HOW_MUCH_FASTER));
    const sending: Promise<void>[] = [];
    for (; sent < due; sent++) {
      const { name: type, payload: data } = events[sent % events.length]!;
      const customer = customerOf(customers, sent);
      const { tenant } = customer;
      sending.push(hooks.send({ tenant, type, data }).then(() => onSent(customer)));
    }
    await Promise.all(sending);
    await pause(TICK_MS);
  }
}

/** One webhook in GitHub's format. */
export interface GithubEvent {
  /** The type of the event, such as `"push"`. */
  readonly name: string;
  readonly payload: unknown;
}

interface Definition {
  readonly name: string;
  readonly examples: readonly unknown[];
}

/** Returns all 329 example webhooks of `@octokit/webhooks-examples`, 10 kB each on average. */
export function githubEvents(): readonly GithubEvent[] {
  // Uses `require`, because the package is one JSON file, but its types describe a module.
  const require = createRequire(import.meta.url);
  const definitions = require("@octokit/webhooks-examples") as readonly Definition[];
  return definitions.flatMap(({ name, examples }) =>
    examples.map((payload) => ({ name, payload })),
  );
}
