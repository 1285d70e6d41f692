/** Patches of ioredis that make a closed connection end: with its nodes, its commands and its copies. */
import type { Cluster, Command, Redis } from "ioredis";
import { isScript } from "../scripts/script.ts";

type Client = Redis | Cluster;

/** Calls `listener` each time that a client is closed, but not when it is to connect again (`disconnect(true)`). */
export function onClosed(client: Client, listener: () => void): void {
  const disconnect = client.disconnect.bind(client);
  client.disconnect = (reconnect) => {
    disconnect(reconnect);
    if (reconnect !== true) listener();
  };
}

/**
 * Closes the nodes of a cluster together with its client.
 *
 * Fault: when the old connection to a node ends late, ioredis removes the new one, which has the same name, from its
 * pool, and leaves it open for ever.
 * Upstream: https://github.com/redis/ioredis/pull/1864, open, is about these races; this one is mended in 6.0.0.
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
 * Rejects the unanswered commands of a connection that is closed.
 *
 * Faults (ioredis 5.11.1): a client that is closed between two attempts to connect keeps the status "reconnecting" and
 * emits no "end". Commands that ioredis keeps in order to resend them, and commands that it sent on a connection that
 * was lost before it was ready, are never answered. And nothing catches the rejection of what ioredis asks by itself
 * on a new connection, which would end the process.
 * Upstream: https://github.com/redis/ioredis/pull/2169, open, for the first; https://github.com/redis/ioredis/pull/2197,
 * closed, and https://github.com/redis/ioredis/pull/2194, merged after 6.0.0, for kept commands. BullMQ's
 * `worker.close()` waits for ever because of them: https://github.com/taskforcesh/bullmq/issues/4656.
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

/** Does what ioredis does when it closes a client in any state but "reconnecting". */
function end(client: Client): void {
  client.status = "end";
  // Their types are private.
  const inner = client as unknown as { flushQueue(error: Error): void; manuallyClosing: boolean };
  inner.flushQueue(closedError());
  // Else the next loss of a client that is opened again would end it; a cluster resets it by itself.
  if (!client.isCluster) inner.manuallyClosing = false;
  process.nextTick(() => {
    // The client may have been opened again: what was asked since then is not to be rejected.
    if (client.status === "end") client.emit("end");
  });
}

/** BullMQ recognises it by these words. */
function closedError(): Error {
  return new Error("Connection is closed.");
}

const LOST = "The connection was lost before it was ready.";

/**
 * Tracks the commands that ioredis does not reject by itself when their connection is closed.
 *
 * A busy connection sends thousands of scripts. ioredis has a list of those that it has sent, and a second one would
 * keep their arguments until the next garbage collection, which would cost a job a tenth of its time.
 */
function trackUnanswered(client: Client) {
  /** How each command is rejected: a cluster replaces `reject`. */
  const tracked = new Map<Command, Command["reject"]>();
  /** Unanswered when a ready connection was lost; ioredis takes out what it resends. */
  let toResend: Redis["commandQueue"] | undefined;
  /** Unanswered when a connection was lost before it was ready; ioredis forgets them. */
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
  // Not earlier: ioredis would take a rejection for an answer of the server, and give the connection up.
  client.on("connecting", () => {
    for (const command of takeAll(forgotten)) {
      if (isHandshake(client, command)) tracked.delete(command);
      else command.reject(new Error(LOST));
    }
  });

  /** Also catches the command's rejection, which ioredis leaves unhandled for its own commands. */
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
 * Whether ioredis asks this of each new connection by itself. Such a command is left without an answer: if its own
 * name were refused, ioredis would ask whether the lost connection is ready, and keep that question for the next one.
 */
function isHandshake({ options }: Client, { name, args }: Command): boolean {
  if (name === "select") return true;
  if (name !== "client") return false;
  const ownName = "connectionName" in options ? options.connectionName : undefined;
  return args[0] === "SETINFO" || (typeof ownName === "string" && args[1] === ownName);
}

/** The commands of a list of ioredis, which is empty afterwards. */
function* takeAll(queue: Redis["commandQueue"] | undefined): Iterable<Command> {
  for (let sent = queue?.shift(); sent !== undefined; sent = queue?.shift())
    // The list's type names only some members of a command.
    yield sent.command as Command;
}

/** ioredis' list of the unanswered commands on a connection to one server. */
function sentBy(client: Client): Redis["commandQueue"] | undefined {
  return client.isCluster ? undefined : (client as Redis).commandQueue;
}

/** How soon a copy that has ended is connected again, unless BullMQ does so itself. */
const RECONNECT_MS = 1_000;

/**
 * Closes the copies of a client together with it, and reconnects them until then.
 *
 * Fault: BullMQ copies a worker's client to block on. It leaves the copy open if its first
 * connection fails, or if it is closed while Redis is unreachable. To reconnect a copy, BullMQ ends
 * it first. If a cluster is unreachable at that moment, ioredis gives the copy up.
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
    // BullMQ stops listening to errors once it has closed a copy; ioredis would write them to stderr.
    copy.on("error", () => undefined);
    copy.on("end", () => void setTimeout(connectUnlessClosed, RECONNECT_MS).unref());
    if (copy.status === "wait") copy.connect().catch(() => undefined);
    return copy;
  }) as typeof client.duplicate;
  onClosed(client, () => closeCopies(copies, copies));
}

const madeCopies = new WeakMap<Client, Set<Client>>();

/**
 * Runs `make`. Returns its result, and a function that closes the copies of the client that it
 * made.
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
