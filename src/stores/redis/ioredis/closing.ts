/**
 * Patches ioredis so that closing a connection also ends its nodes, its pending commands and its
 * copies.
 */
import type { Cluster, Command, Redis } from "ioredis";
import { isScript } from "../scripts/script.ts";

type Client = Redis | Cluster;

/**
 * Calls `listener` each time that a client is closed for good. `disconnect(true)` does not count,
 * because the client then reconnects.
 */
export function onClosed(client: Client, listener: () => void): void {
  const disconnect = client.disconnect.bind(client);
  client.disconnect = (reconnect) => {
    disconnect(reconnect);
    if (reconnect !== true) listener();
  };
}

/**
 * Closes the connections to a cluster's nodes together with the cluster's client.
 *
 * Fault: if the old connection to a node ends late, ioredis removes the new connection with the
 * same name from its pool. The new connection then stays open forever.
 * Upstream: https://github.com/redis/ioredis/pull/1864, open, is about such races. This race is
 * fixed in 6.0.0.
 */
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
 * Rejects the unanswered commands of a closed connection.
 *
 * Faults (ioredis 5.11.1): A client that is closed between two connection attempts keeps the status
 * "reconnecting" and emits no "end". Some commands never get an answer. These are the commands that
 * ioredis keeps in order to resend them. The others are those that were sent on a connection that
 * was lost before it was ready. Also, ioredis does not catch rejections of the commands that it
 * sends by itself on a new connection. Such a rejection would end the process.
 * Upstream: https://github.com/redis/ioredis/pull/2169, open, for the first fault. For kept
 * commands: https://github.com/redis/ioredis/pull/2197, closed, and
 * https://github.com/redis/ioredis/pull/2194, merged after 6.0.0. These faults make BullMQ's
 * `worker.close()` wait forever: https://github.com/taskforcesh/bullmq/issues/4656.
 */
export function rejectWhenClosed(client: Client): void {
  const unanswered = trackUnanswered(client);
  const send = client.sendCommand.bind(client);
  const disconnect = client.disconnect.bind(client);

  function rejectAll(): void {
    unanswered.rejectAll(closedError());
  }

  client.sendCommand = (...given: Parameters<Cluster["sendCommand"]>) => {
    const answer = Reflect.apply(send, undefined, given) as unknown;
    unanswered.add(given[0]);
    return answer;
  };
  client.on("end", rejectAll);
  client.disconnect = (reconnect) => {
    const isBetweenAttempts = client.status === "reconnecting";
    disconnect(reconnect);
    if (reconnect === true || !isBetweenAttempts) return;
    rejectAll();
    end(client);
  };
}

/**
 * Ends a client that is closed while "reconnecting", in the way in which ioredis ends it in all
 * other states.
 */
function end(client: Client): void {
  client.status = "end";
  // The cast is needed because these members are private in ioredis' types.
  const inner = client as unknown as { flushQueue(error: Error): void; manuallyClosing: boolean };
  inner.flushQueue(closedError());
  // Resets the flag, because otherwise a client that is reopened would end at its next lost
  // connection. A cluster resets its flag by itself.
  if (!client.isCluster) inner.manuallyClosing = false;
  process.nextTick(() => {
    // The client may have been reopened. "end" would then reject the commands that were sent since.
    if (client.status === "end") client.emit("end");
  });
}

/** BullMQ recognises a closed connection by this message. */
function closedError(): Error {
  return new Error("Connection is closed.");
}

const LOST = "The connection was lost before it was ready.";

/**
 * Tracks the commands that ioredis does not reject by itself when their connection is closed.
 *
 * Sent scripts are not tracked here, because ioredis has its own list of them. A busy connection
 * sends thousands of scripts. A second list would keep their arguments until the next garbage
 * collection, which would add a tenth to a job's time.
 */
function trackUnanswered(client: Client) {
  /** The original `reject` of each command, because a cluster replaces `reject`. */
  const tracked = new Map<Command, Command["reject"]>();
  /**
   * The commands that were unanswered when a ready connection was lost. ioredis removes the
   * commands that it resends.
   */
  let toResend: Redis["commandQueue"] | undefined;
  /**
   * The commands that were unanswered when a connection was lost before it was ready. ioredis never
   * answers them.
   */
  let forgotten: Redis["commandQueue"] | undefined;
  let wasReady = false;
  client.on("ready", () => {
    wasReady = true;
  });
  client.on("close", () => {
    const sent = sentBy(client);
    if (wasReady) toResend = sent;
    else if (sent !== toResend) forgotten = sent;
    wasReady = false;
  });
  // Rejects these commands only when the client connects again. ioredis would take an earlier
  // rejection for a server's reply, and drop the connection.
  client.on("connecting", () => {
    for (const command of takeAll(forgotten)) {
      if (isHandshake(client, command)) tracked.delete(command);
      else command.reject(new Error(LOST));
    }
  });

  /**
   * Tracks a command until it settles. Also catches its rejection, because ioredis does not handle
   * rejections of the commands that it sends by itself.
   */
  function track(command: Command): void {
    if (tracked.has(command)) return;
    const forget = (): void => void tracked.delete(command);
    tracked.set(command, command.reject);
    command.promise.then(forget, forget);
  }

  return {
    add(command: Command): void {
      const isListed = isScript(command) && sentBy(client)?.peekBack()?.command === command;
      if (!isListed) track(command);
    },
    rejectAll(error: Error): void {
      for (const reject of tracked.values()) reject(error);
      for (const command of takeAll(toResend)) command.reject(error);
    },
  };
}

/**
 * True for commands that ioredis sends by itself on each new connection. They are not rejected. If
 * ioredis' command to set the connection name failed, ioredis would check whether the lost
 * connection is ready. It would then send that check on the next connection.
 */
function isHandshake({ options }: Client, { name, args }: Command): boolean {
  if (name === "select") return true;
  if (name !== "client") return false;
  const ownName = "connectionName" in options ? options.connectionName : undefined;
  return args[0] === "SETINFO" || (typeof ownName === "string" && args[1] === ownName);
}

/** Removes all commands from one of ioredis' lists, and yields them. */
function* takeAll(queue: Redis["commandQueue"] | undefined): Iterable<Command> {
  for (let sent = queue?.shift(); sent !== undefined; sent = queue?.shift())
    // The cast is needed because the list's type declares only some members of a command.
    yield sent.command as Command;
}

/**
 * Returns ioredis' list of unanswered commands on a connection to one server. Undefined for a
 * cluster.
 */
function sentBy(client: Client): Redis["commandQueue"] | undefined {
  return client.isCluster ? undefined : (client as Redis).commandQueue;
}

/** The delay after which an ended copy is reconnected, unless BullMQ reconnects it earlier. */
const RECONNECT_MS = 1_000;

/**
 * Closes the copies of a client together with the client, and reconnects lost copies until then.
 *
 * Fault: BullMQ copies a worker's client for blocking commands. BullMQ leaves the copy open if the
 * copy's first connection fails, or if the worker is closed while Redis is unreachable. To
 * reconnect a copy, BullMQ first ends it. If a cluster is unreachable at that moment, ioredis never
 * reconnects the copy.
 * Upstream: https://github.com/taskforcesh/bullmq/issues/4656 and
 * https://github.com/taskforcesh/bullmq/issues/4138, both open; checked with BullMQ 6.7.0.
 */
export function adoptCopies(client: Client, onCopy: (copy: Client) => void): void {
  const duplicate = client.duplicate.bind(client) as (...given: unknown[]) => Client;
  const copies = new Set<Client>();
  madeCopies.set(client, copies);

  client.duplicate = ((...given: unknown[]) => {
    const copy = duplicate(...given);
    const connectUnlessClosed = (): void => {
      if (copies.has(copy) && copy.status === "end") copy.connect().catch(() => undefined);
    };
    copies.add(copy);
    onCopy(copy);
    // BullMQ removes its error listener when it closes a copy. Without our listener, ioredis prints
    // later errors to stderr.
    copy.on("error", () => undefined);
    copy.on("end", () => void setTimeout(connectUnlessClosed, RECONNECT_MS).unref());
    if (copy.status === "wait") copy.connect().catch(() => undefined);
    return copy;
  }) as typeof client.duplicate;
  onClosed(client, () => closeCopies(copies, copies));
}

const madeCopies = new WeakMap<Client, Set<Client>>();

/**
 * Runs `make`. Returns the result of `make`, and a function that closes the copies of the client
 * that `make` created.
 */
export function withCopies<Made>(
  client: Client,
  make: () => Made,
): { readonly made: Made; readonly close: () => void } {
  const all = madeCopies.get(client) ?? new Set();
  const before = new Set(all);
  const made = make();
  const own = [...all].filter((copy) => !before.has(copy));
  return { made, close: () => closeCopies(own, all) };
}

function closeCopies(some: Iterable<Client>, all: Set<Client>): void {
  for (const copy of some) {
    all.delete(copy);
    copy.disconnect();
  }
}
