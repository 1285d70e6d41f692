import type { Command } from "ioredis";
import { isScript } from "./script.ts";

/** What a connection was asked and has not answered yet. */
export interface Unanswered {
  add(command: Command): void;
  /** Refuses all of it. */
  refuseAll(error: Error): void;
}

/**
 * Knows all commands until they have their answers. A busy connection sends scripts, many in each turn of the event
 * loop, and to wait for the answer of each would cost a job some of its time. A server answers in order: so on a
 * connection to one, the answer to the last script of a turn tells of all.
 */
export function createUnanswered({ isInOrder }: { readonly isInOrder: boolean }): Unanswered {
  /** With how each is refused: a cluster puts another way into its place. */
  const alone = new Map<Command, Command["reject"]>();
  const batches = new Set<readonly Command[]>();
  /** The scripts of this turn, the last of the batches. */
  let batch: Command[] | undefined;

  /** What comes of it is looked at as well: ioredis does not look at that of what it asks itself, which would end the process. */
  function follow(command: Command): void {
    if (alone.has(command)) return;
    const forget = (): void => void alone.delete(command);
    alone.set(command, command.reject);
    command.promise.then(forget, forget);
  }

  function begin(): Command[] {
    const begun: Command[] = [];
    batches.add(begun);
    setImmediate(() => {
      batch = undefined;
      followLast(begun);
    });
    return begun;
  }

  function followLast(sent: readonly Command[]): void {
    const forget = (): void => {
      batches.delete(sent);
      // Those that were refused, which cannot be told from those that wait, and those that were overtaken.
      for (const command of sent) if (!command.isResolved) follow(command);
    };
    sent.at(-1)!.promise.then(forget, forget);
  }

  return {
    add(command) {
      if (!isInOrder || !isScript(command)) return follow(command);
      batch ??= begin();
      batch.push(command);
    },
    refuseAll(error) {
      for (const refuse of alone.values()) refuse(error);
      for (const sent of batches) for (const command of sent) command.reject(error);
    },
  };
}
