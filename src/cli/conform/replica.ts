/** One replica of a scenario: a process that calls the downstream through a limiter. */
import process from "node:process";
import { setTimeout as pause } from "node:timers/promises";
import { reasonOf } from "../../core/describe.ts";
import type { OpenLimiter, Plan, Send } from "./limiters/contract.ts";
import { loadLimiter, type LimiterName } from "./limiters/limiters.ts";

export interface ReplicaSetup {
  readonly limiter: LimiterName;
  readonly redisUrl: string;
  readonly prefix: string;
  readonly plan: Plan;
  /** The URL of the downstream. */
  readonly url: string;
  /** The number of this replica. Its calls carry it in the header {@link BY}. */
  readonly index: number;
}

/** A message to a replica. */
export type ToReplica =
  | { readonly do: "open"; readonly setup: ReplicaSetup }
  /** Keeps this many callers busy until the process ends. Each calls again as soon as its call has ended. */
  | { readonly do: "loop"; readonly key: string; readonly callers: number }
  | { readonly do: "burst"; readonly key: string; readonly calls: number };

/** A reply of a replica. */
export type FromReplica =
  | { readonly is: "ready" }
  | { readonly is: "open" }
  | { readonly is: "failed"; readonly reason: string };

export const BY = "x-replica";
/** How long a caller waits after an error, such as an unreachable Redis. */
const AFTER_ERROR_MS = 100;

export function serveReplica(): void {
  let limiter: OpenLimiter | undefined;

  async function callOnce(key: string): Promise<void> {
    for (;;) {
      const response = await limiter!.call(key);
      await response.arrayBuffer();
      if (response.status !== 429) return;
      const seconds = Number(response.headers.get("retry-after"));
      if (!limiter!.doesCoolDown) await pause(seconds * 1_000);
    }
  }

  async function keepCalling(key: string): Promise<void> {
    for (;;) {
      try {
        await callOnce(key);
      } catch {
        // A caller in a service also tries again later. The downstream's log shows which calls are missing.
        await pause(AFTER_ERROR_MS);
      }
    }
  }

  async function obey(message: ToReplica): Promise<void> {
    if (message.do === "open") {
      limiter = await openLimiter(message.setup);
      reply({ is: "open" });
    } else if (message.do === "loop") {
      for (let caller = 0; caller < message.callers; caller++) void keepCalling(message.key);
    } else {
      const calls = Array.from({ length: message.calls }, () => callOnce(message.key));
      await Promise.allSettled(calls);
    }
  }

  // Ignore Ctrl-C, which reaches all processes of a terminal. The command ends this process.
  process.on("SIGINT", () => undefined);
  process.on("disconnect", () => process.exit());
  process.on("message", (message) => {
    obey(message as ToReplica).catch((error: unknown) => {
      reply({ is: "failed", reason: reasonOf(error) });
    });
  });
  // Some limiters do not handle their rejected promises while Redis restarts.
  process.on("unhandledRejection", () => undefined);
  reply({ is: "ready" });
}

function reply(message: FromReplica): void {
  process.send?.(message);
}

async function openLimiter(setup: ReplicaSetup): Promise<OpenLimiter> {
  const { limiter, redisUrl, prefix, plan, url, index } = setup;
  const headers = { [BY]: String(index) };
  const send: Send = (path) => fetch(`${url}/${path}`, { headers });
  // The first call of a process takes tens of ms longer, which would look like a call that the limiter let go too late.
  await (await send("")).arrayBuffer();
  return (await loadLimiter(limiter)).open({ redisUrl, prefix, plan, send });
}
