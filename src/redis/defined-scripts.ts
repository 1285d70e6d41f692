import type { Cluster, Redis } from "ioredis";
import { WHEN_FULL, isOutOfMemory, isUnknownScript } from "./script.ts";

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
  const commands = client as unknown as Record<string, Command>;
  client.defineCommand = (name, definition) => {
    define(name, definition);
    const { lua, numberOfKeys = 0 } = definition;
    const send = commands[name]!;

    commands[name] = function (...args) {
      const sent = send.apply(this, args);
      return this === client ? sent.catch(sendText) : sent;

      async function sendText(error: unknown): Promise<unknown> {
        const operands = args.flat() as string[];
        if (isUnknownScript(error)) {
          return client.eval(lua, numberOfKeys, ...operands).catch(sendText);
        }
        if (!isOutOfMemory(error) || BRINGS_JOBS.test(name)) throw error;
        return client.eval(WHEN_FULL + lua, numberOfKeys, ...operands);
      }
    };
  };
}
