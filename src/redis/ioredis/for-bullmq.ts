import { setTimeout as pause } from "node:timers/promises";
import type { Cluster, Redis } from "ioredis";
import { insist } from "../scripts/script.ts";
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

type Command = (this: unknown, ...args: unknown[]) => Promise<unknown>;

/** What BullMQ calls its scripts that bring new jobs. All others move, end or remove those that are stored, or note little about them. */
const BRINGS_JOBS = /^add\w*Job/;

/**
 * Has the scripts that BullMQ defines on this client run where ioredis would give them up. What is sent
 * again was refused before it changed anything. Scripts in a pipeline are left as they are.
 *
 * - While memory is full, all run but those that bring jobs.
 * - A script that Redis has forgotten is sent once more by ioredis, but by its digest if another call has
 *   sent the text meanwhile. When Redis has forgotten that too, the text is sent.
 */
export function insistOnScripts(client: Redis | Cluster): void {
  const define = client.defineCommand.bind(client);
  client.defineCommand = (name, definition) => {
    define(name, definition);
    const { lua, numberOfKeys = 0 } = definition;
    const sendDigest = Reflect.get(client, name) as Command;

    const mayExceedMemory = !BRINGS_JOBS.test(name);
    // Each job's end comes by here: what only a refusal needs is made when there is one.
    const command: Command = function (...args) {
      const sent = sendDigest.apply(this, args);
      if (this !== client) return sent;
      return sent.catch((refusal) => {
        const operands = args.flat() as string[];
        const send = (source: string): Promise<unknown> =>
          client.eval(source, numberOfKeys, ...operands);
        return insist(refusal, { source: lua, send }, mayExceedMemory);
      });
    };
    Reflect.set(client, name, command);
  };
}
