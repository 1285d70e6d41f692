import type { Cluster, Redis } from "ioredis";
import { onClosed } from "./closing.ts";

const TRY_AGAIN_MS = 100;
/** What something follows from by itself. */
const UNDER_WAY = new Set(["connecting", "connect", "ready", "reconnecting"]);

/**
 * Tries to connect to a cluster for as long as it takes. If the last of its old connections ends while ioredis still
 * looks up the names of its nodes, ioredis aborts the attempt, and makes no other.
 */
export function connectUntilClosed(client: Redis | Cluster): void {
  if (!("isCluster" in client) || !client.isCluster) return;
  const connect = client.connect.bind(client);
  let isClosed = false;

  function tryAgain(): void {
    if (isClosed || UNDER_WAY.has(client.status)) return;
    client.connect().catch(() => undefined);
  }

  client.connect = async () => {
    isClosed = false;
    try {
      await connect();
    } catch (error) {
      if (!isClosed) setTimeout(tryAgain, TRY_AGAIN_MS);
      throw error;
    }
  };
  onClosed(client, () => void (isClosed = true));
}

/** On which node a client of a cluster listens. It is ioredis' own business, and may look different one day. */
interface NodeChoice {
  onSubscriberEnd: () => void;
  getInstance(): unknown;
}

const PAUSE_MS = 200;

/**
 * Has a client of a cluster that lost the node on which it listens pause between two others. ioredis takes the next
 * one at once: while all are away, that kept a process busy with nothing else.
 */
export function pauseBetweenNodes(client: Redis | Cluster): void {
  const choice: unknown = Reflect.get(client, "subscriber");
  if (!isNodeChoice(choice)) return;
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

function isNodeChoice(choice: unknown): choice is NodeChoice {
  if (typeof choice !== "object" || choice === null) return false;
  const { onSubscriberEnd, getInstance } = choice as Partial<NodeChoice>;
  return typeof onSubscriberEnd === "function" && typeof getInstance === "function";
}
