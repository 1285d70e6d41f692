import type { Cluster, Redis } from "ioredis";
import { insist } from "./script.ts";

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
