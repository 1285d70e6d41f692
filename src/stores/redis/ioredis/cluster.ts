/** Patches ioredis for clusters with unreachable nodes. */
import type { Cluster, Redis } from "ioredis";
import { onClosed } from "./closing.ts";

const RETRY_MS = 100;
/** The states of a client in which ioredis continues to connect by itself. */
const UNDER_WAY = new Set(["connecting", "connect", "ready", "reconnecting"]);

/**
 * Retries to connect to a cluster until the client is closed.
 *
 * Fault: if the last old connection ends while ioredis resolves the names of the nodes, ioredis
 * aborts the attempt ("Connection is aborted") and makes no further attempt.
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

/**
 * The members of ioredis' `ClusterSubscriber` that the patch below uses. The class is private and
 * may change in any release.
 */
interface SubscriberChoice {
  /** Runs when the connection with the subscriptions has ended. */
  onSubscriberEnd: () => void;
  getInstance(): unknown;
}

const PAUSE_MS = 200;

/**
 * Adds a pause before the next node is tried, when a cluster's client loses the node on which it is
 * subscribed.
 *
 * Fault: ioredis tries the next node immediately, in an endless loop. While all nodes are
 * unreachable, this keeps one CPU core busy.
 * Upstream: https://github.com/redis/ioredis/issues/1732, open, shows the loop. It is still in
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
 * Rejects commands while the whole cluster is unreachable. If the client is still connecting to one
 * node, commands for that node wait.
 *
 * Fault: ioredis has one option, `enableOfflineQueue`, for both cases. With false, ioredis rejects
 * the second of two first commands to a node. With true, it keeps commands until the cluster is
 * reachable, and then sends all of them at once.
 * Upstream: no issue known; checked with ioredis 5.11.1.
 */
export function refuseWhileAway(cluster: Cluster): void {
  const send = cluster.sendCommand.bind(cluster);
  cluster.sendCommand = (command, ...rest) => {
    // `cluster` commands pass, because ioredis sends `CLUSTER INFO` by itself to check whether the
    // cluster is ready.
    if (cluster.status === "ready" || command.name === "cluster") return send(command, ...rest);
    command.reject(new Error("Stream isn't writeable: the cluster is not connected"));
    return command.promise;
  };
}
