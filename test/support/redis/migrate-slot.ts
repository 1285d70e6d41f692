import type { ClusterNode } from "./cluster.ts";

/** A slot on its way from one node of a cluster to another. */
export interface Migration {
  /** Moves the keys that the slot has at its old node now; resolves with how many those were. */
  moveKeys(): Promise<number>;
  /** Gives the slot to its new node. */
  finish(): Promise<void>;
}

/** From now on the old node answers ASK for what it has no longer. */
export async function beginMigration(
  slot: number,
  { from, to, all }: { from: ClusterNode; to: ClusterNode; all: readonly ClusterNode[] },
): Promise<Migration> {
  await to.client.cluster("SETSLOT", slot, "IMPORTING", from.id);
  await from.client.cluster("SETSLOT", slot, "MIGRATING", to.id);

  async function moveKeys(): Promise<number> {
    const keys = (await from.client.cluster("GETKEYSINSLOT", slot, 1_000)) as string[];
    if (keys.length === 0) return 0;
    await from.client.call("MIGRATE", "127.0.0.1", to.port, "", 0, 5_000, "KEYS", ...keys);
    return keys.length;
  }

  return {
    moveKeys,
    async finish() {
      while ((await moveKeys()) > 0);
      // The new owner first: were it the old one, nobody would serve the slot in between.
      const others = all.filter((node) => node !== to);
      for (const node of [to, ...others]) await node.client.cluster("SETSLOT", slot, "NODE", to.id);
    },
  };
}
