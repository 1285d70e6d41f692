import type { Cluster, Command, Redis } from "ioredis";

type Client = Redis | Cluster;

/**
 * Refuses what a connection still has to answer when it is closed. ioredis forgets what it keeps to send again on its
 * next connection, so that whoever waits for it keeps the process; and it does not look what comes of what it asks
 * itself on a new connection, so that a refusal would end the process.
 */
export function refuseOnceClosed(client: Client): void {
  const asked = new Map<Command, Command["reject"]>();
  const send = client.sendCommand.bind(client);
  const disconnect = client.disconnect.bind(client);

  function refuseAll(): void {
    // BullMQ knows it by these words.
    for (const refuse of asked.values()) refuse(new Error("Connection is closed."));
  }

  client.sendCommand = (...given: Parameters<Cluster["sendCommand"]>) => {
    const [command] = given;
    if (!asked.has(command)) {
      const forget = (): void => void asked.delete(command);
      asked.set(command, command.reject);
      command.promise.then(forget, forget);
    }
    return Reflect.apply(send, undefined, given);
  };
  client.on("end", refuseAll);
  client.disconnect = (isToReturn) => {
    // Nothing follows that could end it.
    const isBetweenAttempts = client.status === "reconnecting";
    disconnect(isToReturn);
    if (isToReturn !== true && isBetweenAttempts) refuseAll();
  };
}

/**
 * Closes copies of a connection together with it, and lets none be lost. BullMQ makes one to block on, and
 * leaves it open if it has to connect it and fails the first time, or if it closes while Redis is away.
 */
export function adoptCopies(client: Client, onCopy: (copy: Client) => void): void {
  const duplicate = client.duplicate.bind(client) as (...given: unknown[]) => Client;
  const disconnect = client.disconnect.bind(client);
  const copies: Client[] = [];
  client.duplicate = ((...given: unknown[]) => {
    const copy = duplicate(...given);
    copies.push(copy);
    onCopy(copy);
    if (copy.status === "wait") copy.connect().catch(() => undefined);
    return copy;
  }) as typeof client.duplicate;
  client.disconnect = (isToReturn) => {
    disconnect(isToReturn);
    if (isToReturn !== true) for (const copy of copies) copy.disconnect();
  };
}
