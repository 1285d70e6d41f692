import { reasonOf } from "../core/describe.ts";
import { isForWantOfRights } from "../core/errors.ts";
import type { Logger } from "../core/logger.ts";

/** What a queue and a worker of BullMQ's have in common. */
interface Reporter {
  on(event: "error", listener: (error: Error) => void): unknown;
  on(event: "ready", listener: () => void): unknown;
}

/**
 * Reports what goes wrong where no caller waits; an outage once, not with each attempt to reconnect, nor with each
 * of those that take one another's place.
 */
export function createErrorReports(who: string, logger: Logger): (stored: Reporter) => void {
  let lastMessage: string | undefined;
  return (stored) => {
    stored.on("error", (error) => {
      if (error.message === lastMessage) return;
      lastMessage = error.message;
      // The message alone: errors of ioredis carry the command, and with it the data of jobs.
      const reason = reasonOf(error.message);
      logger.error({ reason }, `${who} met an error: ${reason}${remedy(error)}`);
    });
    stored.on("ready", () => {
      lastMessage = undefined;
    });
  };
}

function remedy({ message }: Error): string {
  if (!isForWantOfRights(message)) return "";
  return ". Give its Redis user the rights that docs/topologies.md names.";
}
