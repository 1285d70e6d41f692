import type { Cluster, Command, Redis } from "ioredis";
import { isScript } from "./script.ts";

const LOST = "The connection was lost before it was ready.";

/** The commands of a connection that have yet to be answered, as far as ioredis would forget them. */
export interface Unanswered {
  /** A command was sent, or is to be. */
  add(command: Command): void;
  /** Refuses all that have no answer yet. */
  refuseAll(error: Error): void;
}

/**
 * Knows the commands that ioredis does not refuse by itself when their connection is closed for good. A busy
 * connection sends scripts by the thousand: of those it has sent, ioredis has a list, and a second one would keep
 * all that they hold for longer than a collection of garbage takes to come, which costs a job a tenth of its time.
 */
export function createUnanswered(client: Redis | Cluster): Unanswered {
  /** With how each is refused: a cluster puts another way into its place. */
  const alone = new Map<Command, Command["reject"]>();
  /** What had no answer when the connection was lost; ioredis takes out what it sends again. */
  let toSendAgain: Redis["commandQueue"] | undefined;
  /** What had none when the connection was lost before it was ready; ioredis forgets that. */
  let forgotten: Redis["commandQueue"] | undefined;
  let wasReady = false;
  client.on("ready", () => {
    wasReady = true;
  });
  client.on("close", () => {
    const sent = sentBy(client);
    if (wasReady) toSendAgain = sent;
    else if (sent !== toSendAgain) forgotten = sent;
    wasReady = false;
  });
  // Not before: until then ioredis takes it for an answer of the server that its connection is of no use.
  client.on("connecting", () => {
    for (const command of taken(forgotten)) {
      if (isIntroduction(client, command)) alone.delete(command);
      else command.reject(new Error(LOST));
    }
  });

  /** What comes of it is looked at as well: ioredis does not look at that of what it asks itself, which would end the process. */
  function follow(command: Command): void {
    if (alone.has(command)) return;
    const forget = (): void => void alone.delete(command);
    alone.set(command, command.reject);
    command.promise.then(forget, forget);
  }

  return {
    add(command) {
      const isListed = isScript(command) && sentBy(client)?.peekBack()?.command === command;
      if (!isListed) follow(command);
    },
    refuseAll(error) {
      for (const reject of alone.values()) reject(error);
      for (const command of taken(toSendAgain)) command.reject(error);
    },
  };
}

/**
 * What ioredis itself asks of each new connection, and nobody waits for. If it were told that its name was refused, it
 * would go on to ask whether the lost connection is ready, and keep that question for the next one that is.
 */
function isIntroduction({ options }: Redis | Cluster, { name, args }: Command): boolean {
  if (name === "select") return true;
  if (name !== "client") return false;
  const ownName = "connectionName" in options ? options.connectionName : undefined;
  return args[0] === "SETINFO" || (typeof ownName === "string" && args[1] === ownName);
}

/** What a list of ioredis holds, which is empty then. */
function* taken(queue: Redis["commandQueue"] | undefined): Iterable<Command> {
  for (let sent = queue?.shift(); sent !== undefined; sent = queue?.shift())
    // Its type tells of less.
    yield sent.command as Command;
}

/** The list that ioredis has of what one connection to one server was sent, and has not answered. */
function sentBy(client: Redis | Cluster): Redis["commandQueue"] | undefined {
  return client.isCluster ? undefined : (client as Redis).commandQueue;
}
