import { setTimeout as pause } from "node:timers/promises";
import type { Cluster, Redis } from "ioredis";
import { onClosed } from "./closing.ts";

type Client = Redis | Cluster;

const ASK_AGAIN_MS = 1_000;

/**
 * Has BullMQ hear what server it is on. It asks `INFO` once for each connection, and gives that up for good if Redis
 * refuses it, for want of a right or because a script runs: it is asked again each second, until the connection
 * is closed. The refusal is told as an error of the connection, unless it is among those `told`.
 */
export function insistOnInfo(client: Client, told: Set<string>): void {
  const info = client.info.bind(client) as (...given: unknown[]) => Promise<string>;
  const closed = new AbortController();

  function tell(error: unknown): void {
    const { message } = error as Error;
    if (told.has(message) || client.listenerCount("error") === 0) return;
    told.add(message);
    client.emit("error", error);
  }

  async function untilAnswered(): Promise<string> {
    for (;;) {
      try {
        return await info();
      } catch (error) {
        if (closed.signal.aborted) throw error;
        tell(error);
        const { signal } = closed;
        const wait = pause(ASK_AGAIN_MS, undefined, { signal, ref: false });
        await wait.catch(() => Promise.reject(error));
      }
    }
  }

  // With a callback it is ioredis that asks, whether the server is ready.
  const ask = (...given: unknown[]) => (given.length > 0 ? info(...given) : untilAnswered());
  client.info = ask as typeof client.info;
  onClosed(client, () => closed.abort());
}
