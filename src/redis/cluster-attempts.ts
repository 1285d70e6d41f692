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
