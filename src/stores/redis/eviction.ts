import type { Cluster, Redis } from "ioredis";
import { isReply } from "../../core/errors.ts";
import type { Logger } from "../../core/logger.ts";
import { isCluster } from "./connection.ts";
import { nameOf } from "./requests/breaker.ts";

/** The only eviction policy that never deletes a key in use. */
const SAFE = "noeviction";

/**
 * Returns a function that reads a server's eviction policy once, and warns if the server may evict
 * keys. All keys of Sluice expire by themselves, so every policy except `noeviction` may delete
 * them. A server that does not reveal its policy causes no warning. In a cluster, only one node is
 * asked.
 */
export function createEvictionWarning(logger: Logger): (client: Redis | Cluster) => void {
  const asked = new Set<string>();

  async function ask(client: Redis | Cluster, server: string): Promise<void> {
    if (asked.has(server)) return;
    asked.add(server);
    try {
      const policy = /^maxmemory_policy:(\S+)/m.exec(String(await client.info("memory")))?.[1];
      if (policy !== undefined && policy !== SAFE) warn(server, policy);
    } catch (error) {
      // A refused request is not repeated, because the missing permission would cause the same
      // error again.
      if (!isReply(error)) asked.delete(server);
    }
  }

  function warn(server: string, policy: string): void {
    const problem =
      `Redis at ${server} may evict keys (its maxmemory-policy is ${policy}): limits would forget ` +
      `what was used, and jobs would be lost. Set maxmemory-policy to ${SAFE}; see docs/guides/production/checklist.md.`;
    logger.warn({ server, policy }, problem);
  }

  return (client) => {
    client.on("ready", () => {
      const server = isCluster(client) ? "a node of the cluster" : nameOf(client);
      void ask(client, server);
    });
  };
}
