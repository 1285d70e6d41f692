import type { Command } from "ioredis";
import { isScript } from "./script.ts";

/** What a connection was asked and has not answered yet. */
export interface Unanswered {
  add(command: Command): void;
  /** Refuses all of it. */
  refuseAll(error: Error): void;
}

/** A server answers in order: the answer to the last of so many scripts tells of all. */
const TOGETHER = 16;

/**
 * Knows all commands until they have their answers. A busy connection sends scripts, and to wait for the answer of
 * each costs a job about a tenth of its time: so on a connection to one server they are followed by the dozen.
 */
export function createUnanswered({ isInOrder }: { readonly isInOrder: boolean }): Unanswered {
  /** With how each is refused: a cluster puts another way into its place. */
  const alone = new Map<Command, Command["reject"]>();
  const batches = new Set<readonly Command[]>();
  let batch: Command[] = [];

  /** What comes of it is looked at as well: ioredis does not look at that of what it asks itself, which would end the process. */
  function follow(command: Command): void {
    if (alone.has(command)) return;
    const forget = (): void => void alone.delete(command);
    alone.set(command, command.reject);
    command.promise.then(forget, forget);
  }

  function followLast(full: readonly Command[]): void {
    const forget = (): void => {
      batches.delete(full);
      // Those that were refused, which cannot be told from those that wait, and those that were overtaken.
      for (const command of full) if (!command.isResolved) follow(command);
    };
    batches.add(full);
    full.at(-1)!.promise.then(forget, forget);
  }

  return {
    add(command) {
      if (!isInOrder || !isScript(command)) return follow(command);
      batch.push(command);
      if (batch.length < TOGETHER) return;
      followLast(batch);
      batch = [];
    },
    refuseAll(error) {
      for (const refuse of alone.values()) refuse(error);
      for (const each of [...batches, batch]) for (const command of each) command.reject(error);
      batch = [];
    },
  };
}
