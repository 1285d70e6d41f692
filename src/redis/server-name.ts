import slotOf from "cluster-key-slot";
import type { Cluster, Redis } from "ioredis";
import { isCluster } from "./connection.ts";

/** Tells what the server of a bucket is called in logs and events: where it is, never with a user or password. */
export function serverNames(redis: Redis | Cluster): (bucket: string) => string {
  if (isCluster(redis)) return (bucket) => redis.slots[slotOf(bucket)]?.[0] ?? "cluster";
  const name = nameOf(redis);
  return () => name;
}

/** The same name, from the connection to a node of a cluster. */
export function nodeName({ options: { host, port } }: Redis): string {
  return `${host}:${port}`;
}

function nameOf({ options }: Redis): string {
  const { host = "localhost", port = 6379, path, db = 0, sentinels, name } = options;
  const database = db === 0 ? "" : `/${db}`;
  if (sentinels !== undefined && sentinels !== null) return `${name ?? "sentinel"}${database}`;
  if (typeof path === "string") return `${path}${database}`;
  return `${host.includes(":") ? `[${host}]` : host}:${port}${database}`;
}
