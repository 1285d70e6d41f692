import type { Cluster, Redis } from "ioredis";
import { createUnanswered } from "./unanswered.ts";

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
