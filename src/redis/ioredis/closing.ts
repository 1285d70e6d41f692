import type { Cluster, Command, Redis } from "ioredis";
import { isScript } from "../scripts/script.ts";

type Client = Redis | Cluster;

/** How long a copy that has ended may take to be connected again by whoever ended it. */
const CONNECT_AGAIN_MS = 1_000;

/** Calls back each time that a connection is closed for good, and not only left for another one. */
export function onClosed(client: Client, listener: () => void): void {
  const disconnect = client.disconnect.bind(client);
  client.disconnect = (isToReturn) => {
    disconnect(isToReturn);
    if (isToReturn !== true) listener();
  };
}

/** Closes the nodes of a cluster together with it: ioredis forgets one whose forerunner ends after it was connected. */
export function closeWithNodes(client: Client): void {
  if (!("isCluster" in client) || !client.isCluster) return;
  const nodes = new Set<Redis>();
  client.on("+node", (node: Redis) => {
    nodes.add(node);
    node.on("end", () => {
      if (node.status === "end") nodes.delete(node);
    });
  });
  onClosed(client, () => {
    for (const node of nodes) node.disconnect();
  });
}

/**
 * Refuses what a connection still has to answer when it is closed. ioredis forgets what it keeps to send again on its
 * next connection, so that whoever waits for it keeps the process; and it does not look what comes of what it asks
 * itself on a new connection, so that a refusal would end the process.
 */
export function refuseOnceClosed(client: Client): void {
  const unanswered = createUnanswered(client);
  const send = client.sendCommand.bind(client);
  const disconnect = client.disconnect.bind(client);

  function refuseAll(): void {
    unanswered.refuseAll(closed());
  }

  client.sendCommand = (...given: Parameters<Cluster["sendCommand"]>) => {
    const answer = Reflect.apply(send, undefined, given) as unknown;
    unanswered.add(given[0]);
    return answer;
  };
  client.on("end", refuseAll);
  client.disconnect = (isToReturn) => {
    const isBetweenAttempts = client.status === "reconnecting";
    disconnect(isToReturn);
    if (isToReturn === true || !isBetweenAttempts) return;
    refuseAll();
    end(client);
  };
}

/**
 * What ioredis does by itself in other states. A connection that is closed between two attempts it leaves as it is:
 * nobody would hear of the end, and whoever asks it then would wait for ever.
 */
function end(client: Client): void {
  client.status = "end";
  // The type says they are private.
  const inner = client as unknown as { flushQueue(error: Error): void; manuallyClosing: boolean };
  inner.flushQueue(closed());
  // If it is opened again, its next loss is not meant. A cluster sees to that by itself.
  if (!client.isCluster) inner.manuallyClosing = false;
  process.nextTick(() => {
    // It may be on its way again, and what was asked since is not to be refused.
    if (client.status === "end") client.emit("end");
  });
}

/** BullMQ knows it by these words. */
function closed(): Error {
  return new Error("Connection is closed.");
}

/**
 * Closes copies of a connection together with it, and lets none be lost. BullMQ makes one to block on, and
 * leaves it open if it has to connect it and fails the first time, or if it closes while Redis is away. And to connect
 * one anew it ends it first: if a cluster is away at that moment, ioredis gives it up for good.
 */
export function adoptCopies(client: Client, onCopy: (copy: Client) => void): void {
  const duplicate = client.duplicate.bind(client) as (...given: unknown[]) => Client;
  const copies: Client[] = [];
  let isClosed = false;

  client.duplicate = ((...given: unknown[]) => {
    const copy = duplicate(...given);
    const connectUnlessClosed = (): void => {
      if (!isClosed && copy.status === "end") copy.connect().catch(() => undefined);
    };
    copies.push(copy);
    onCopy(copy);
    // BullMQ hears of errors no more once it has closed it, and ioredis would write those to stderr.
    copy.on("error", () => undefined);
    copy.on("end", () => void setTimeout(connectUnlessClosed, CONNECT_AGAIN_MS).unref());
    if (copy.status === "wait") copy.connect().catch(() => undefined);
    return copy;
  }) as typeof client.duplicate;
  onClosed(client, () => {
    isClosed = true;
    for (const copy of copies) copy.disconnect();
  });
}

const LOST = "The connection was lost before it was ready.";

/** The commands of a connection that have yet to be answered, as far as ioredis would forget them. */
interface Unanswered {
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
function createUnanswered(client: Redis | Cluster): Unanswered {
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
