import type { Cluster, Redis } from "ioredis";
import { isReply } from "../../core/errors.ts";
import type { Logger } from "../../core/logger.ts";
import { isCluster } from "./connection.ts";
import { nameOf } from "./requests/breaker.ts";

/** The only policy that drops no key that is in use. */
const SAFE = "noeviction";

/**
 * Asks each server that one of these connections reaches for its eviction policy, once, and warns if it may evict: all
 * keys of Sluice expire by themselves, so each policy but `noeviction` may drop them. A server that does not say is
 * left alone. In a cluster, one node answers for all.
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
      // Without the right to ask, no later answer would be another.
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
