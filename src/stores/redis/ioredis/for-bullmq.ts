/** Patches of ioredis clients for BullMQ, which gives up too early. */
import { setTimeout as pause } from "node:timers/promises";
import type { Cluster, Redis } from "ioredis";
import { resendRefused } from "../scripts/script.ts";
import { onClosed } from "./closing.ts";

type Client = Redis | Cluster;

const RETRY_MS = 1_000;

/**
 * Repeats each second, until the client is closed, an `INFO` of BullMQ that Redis refuses. The refusal is emitted as
 * an error of the connection, once for each message in `reported`.
 *
 * Fault: BullMQ asks `INFO` once for each connection, to learn the server's version. If Redis refuses, because of a
 * missing right or a script that runs too long, BullMQ never uses that connection.
 * Upstream: https://github.com/taskforcesh/bullmq/issues/3341, open; checked with BullMQ 6.7.0.
 */
export function retryInfo(client: Client, reported: Set<string>): void {
  const info = client.info.bind(client) as (...given: unknown[]) => Promise<string>;
  const closed = new AbortController();

  function report(error: unknown): void {
    const { message } = error as Error;
    if (reported.has(message) || client.listenerCount("error") === 0) return;
    reported.add(message);
    client.emit("error", error);
  }

  async function untilAnswered(): Promise<string> {
    for (;;) {
      try {
        return await info();
      } catch (error) {
        if (closed.signal.aborted) throw error;
        report(error);
        const { signal } = closed;
        const wait = pause(RETRY_MS, undefined, { signal, ref: false });
        await wait.catch(() => Promise.reject(error));
      }
    }
  }

  // ioredis itself asks with a callback, whether the server is ready.
  const ask = (...given: unknown[]) => (given.length > 0 ? info(...given) : untilAnswered());
  client.info = ask as typeof client.info;
  onClosed(client, () => closed.abort());
}

type Command = (this: unknown, ...args: unknown[]) => Promise<unknown>;

/** BullMQ's names of scripts that bring new jobs. All others move, end or remove stored jobs, or add little to them. */
const BRINGS_JOBS = /^add\w*Job/;

/**
 * Runs the scripts that BullMQ defines on this client in two cases in which ioredis would give up.
 * Redis refused them before they changed anything. Scripts in a pipeline stay as they are.
 *
 * - While memory is full, all scripts run except those that bring jobs: BullMQ could not even fetch
 *   one. Upstream: https://github.com/taskforcesh/bullmq/issues/3834, open; checked with BullMQ
 *   6.7.0.
 * - ioredis resends a script that Redis has forgotten. It sends only the digest if another call has
 *   sent the text in between. When Redis has forgotten that too, the text is sent. Upstream:
 *   https://github.com/redis/ioredis/issues/1775, open; checked with ioredis 5.11.1.
 */
export function retryScripts(client: Client): void {
  const define = client.defineCommand.bind(client);
  client.defineCommand = (name, definition) => {
    define(name, definition);
    const { lua, numberOfKeys = 0 } = definition;
    const sendDigest = Reflect.get(client, name) as Command;

    const mayExceedMemory = !BRINGS_JOBS.test(name);
    // Every job ends with such a command: what only a refusal needs is made when there is one.
    const command: Command = function (...args) {
      const sent = sendDigest.apply(this, args);
      if (this !== client) return sent;
      return sent.catch((refusal) => {
        const operands = args.flat() as string[];
        const send = (source: string): Promise<unknown> =>
          client.eval(source, numberOfKeys, ...operands);
        return resendRefused(refusal, { source: lua, send }, mayExceedMemory);
      });
    };
    Reflect.set(client, name, command);
  };
}
