/** Patches ioredis clients for BullMQ, which stops retrying too early. */
import { setTimeout as pause } from "node:timers/promises";
import type { Cluster, Redis } from "ioredis";
import { resendRefused } from "../scripts/script.ts";
import { onClosed } from "./closing.ts";

type Client = Redis | Cluster;

const RETRY_MS = 1_000;

/**
 * Repeats an `INFO` of BullMQ that Redis refuses, each second until the client is closed. The
 * refusal is emitted as an error of the connection, once per message in `reported`.
 *
 * Fault: BullMQ sends `INFO` once on each connection to learn the server's version. If Redis
 * refuses, BullMQ never uses that connection. Causes are a missing permission, or a script that
 * runs too long.
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

  // ioredis itself calls `info` with a callback, to check whether the server is ready. Those calls
  // pass unchanged.
  const ask = (...given: unknown[]) => (given.length > 0 ? info(...given) : untilAnswered());
  client.info = ask as typeof client.info;
  onClosed(client, () => closed.abort());
}

type Command = (this: unknown, ...args: unknown[]) => Promise<unknown>;

/**
 * Matches BullMQ's names of scripts that add new jobs. All other scripts move, end or remove stored
 * jobs, or need little extra memory.
 */
const BRINGS_JOBS = /^add\w*Job/;

/**
 * Retries the scripts that BullMQ defines on this client, in two cases in which Redis refuses a
 * script before it changes anything. ioredis would fail in both. Scripts in a pipeline are
 * unchanged.
 *
 * - When Redis's memory is full, all scripts run except those that add jobs. Otherwise BullMQ could
 *   not even fetch a job. Upstream: https://github.com/taskforcesh/bullmq/issues/3834, open;
 *   checked with BullMQ 6.7.0.
 * - When Redis no longer knows a script, the script's text is sent. ioredis sends only the digest
 *   if another call has just sent the text, and fails if Redis has lost the script again. Upstream:
 *   https://github.com/redis/ioredis/issues/1775, open; checked with ioredis 5.11.1.
 */
export function retryScripts(client: Client): void {
  const define = client.defineCommand.bind(client);
  client.defineCommand = (name, definition) => {
    define(name, definition);
    const { lua, numberOfKeys = 0 } = definition;
    const sendDigest = Reflect.get(client, name) as Command;

    const mayExceedMemory = !BRINGS_JOBS.test(name);
    // Every job ends with such a command, so values for a retry are created only after a refusal.
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
