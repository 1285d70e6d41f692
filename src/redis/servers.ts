import type { Cluster, Redis } from "ioredis";

/** Does something with the connection to a server, or with each that a cluster's client will make to a node. */
export function onEachServer(client: Redis | Cluster, use: (server: Redis) => void): void {
  if ("isCluster" in client && client.isCluster) client.on("+node", use);
  else use(client as Redis);
}
