/** Patches of ioredis for clusters with unreachable nodes. */
import type { Cluster, Redis } from "ioredis";
import { onClosed } from "./closing.ts";

const RETRY_MS = 100;
/** ioredis goes on from these by itself. */
const UNDER_WAY = new Set(["connecting", "connect", "ready", "reconnecting"]);

/**
 * Tries to connect to a cluster until the client is closed.
 *
 * Fault: when the last of the old connections ends while ioredis resolves the names of the nodes, it gives up the
 * attempt ("Connection is aborted") and makes no other.
 * Upstream: https://github.com/redis/ioredis/pull/1864, open; the fault is still in 6.0.0.
 */
export function connectUntilClosed(client: Redis | Cluster): void {
  if (!("isCluster" in client) || !client.isCluster) return;
  const connect = client.connect.bind(client);
  let isClosed = false;

  function retry(): void {
    if (isClosed || UNDER_WAY.has(client.status)) return;
    client.connect().catch(() => undefined);
  }

  client.connect = async () => {
    isClosed = false;
    try {
      await connect();
    } catch (error) {
      if (!isClosed) setTimeout(retry, RETRY_MS);
      throw error;
    }
  };
  onClosed(client, () => void (isClosed = true));
}

/** The part of ioredis' `ClusterSubscriber` that the patch below needs; it is private, and may look different one day. */
interface SubscriberChoice {
  /** Runs when the connection that is subscribed has ended. */
  onSubscriberEnd: () => void;
  getInstance(): unknown;
}

const PAUSE_MS = 200;

/**
 * Pauses between two nodes when a cluster's client loses the node on which it is subscribed.
 *
 * Fault: ioredis takes the next node at once, without end. While all nodes are unreachable, that
 * keeps one processor busy.
 * Upstream: https://github.com/redis/ioredis/issues/1732, open, shows the loop; it is still in
 * 6.0.0.
 */
export function pauseBetweenNodes(client: Redis | Cluster): void {
  const choice: unknown = Reflect.get(client, "subscriber");
  if (!isSubscriberChoice(choice)) return;
  const choose = choice.onSubscriberEnd;
  let chosenAtMs = -Infinity;

  choice.onSubscriberEnd = () => {
    const lost = choice.getInstance();
    const waitMs = Math.max(0, chosenAtMs + PAUSE_MS - performance.now());
    setTimeout(() => {
      if (choice.getInstance() !== lost) return;
      chosenAtMs = performance.now();
      choose();
    }, waitMs).unref();
  };
}

function isSubscriberChoice(choice: unknown): choice is SubscriberChoice {
  if (typeof choice !== "object" || choice === null) return false;
  const { onSubscriberEnd, getInstance } = choice as Partial<SubscriberChoice>;
  return typeof onSubscriberEnd === "function" && typeof getInstance === "function";
}

/**
 * Rejects commands while a whole cluster is unreachable. A command for a node that is being
 * connected waits for it.
 *
 * Fault: ioredis has one option for both, `enableOfflineQueue`. False rejects the second of two
 * first commands to a node. True keeps commands until the cluster is reachable, and then sends all
 * at once.
 * Upstream: no issue known; checked with ioredis 5.11.1.
 */
export function refuseWhileAway(cluster: Cluster): void {
  const send = cluster.sendCommand.bind(cluster);
  cluster.sendCommand = (command, ...rest) => {
    // ioredis asks `CLUSTER INFO` by itself to find out whether the cluster is ready.
    if (cluster.status === "ready" || command.name === "cluster") return send(command, ...rest);
    command.reject(new Error("Stream isn't writeable: the cluster is not connected"));
    return command.promise;
  };
}
