import { Cluster, Redis } from "ioredis";
import { startRedis, type LocalRedis } from "./local-redis.ts";
import { waitUntil } from "./wait-until.ts";

const HOST = "127.0.0.1";
const SLOTS = 16_384;
const PRIMARIES = 3;

export interface ClusterNode {
  readonly id: string;
  readonly server: LocalRedis;
  readonly port: number;
  /** A client of this node alone. */
  readonly client: Redis;
}

export interface RedisCluster {
  /** The primaries as they were at first, and a replica of each. */
  readonly primaries: readonly ClusterNode[];
  readonly replicas: readonly ClusterNode[];
  /** What a user gives to `createSluice`; it is closed with the cluster. */
  readonly open: () => Cluster;
  /** The primary that serves a hash tag now, as one of the nodes has it: the first, unless another is named. */
  readonly ownerOf: (tag: string, asked?: ClusterNode) => Promise<ClusterNode | undefined>;
  stop(): Promise<void>;
}

/** Three primaries, each with a replica; a part whose primary is gone leaves the others alone. */
export async function startCluster(): Promise<RedisCluster> {
  const stops: (() => Promise<void> | void)[] = [];
  async function stop(): Promise<void> {
    for (const each of stops.toReversed()) await each();
  }

  async function startNode(): Promise<ClusterNode> {
    const server = await startRedis({ fresh: true, args: CLUSTER_ARGS });
    stops.push(() => server.stop());
    const port = Number(new URL(server.url).port);
    const client = new Redis({ host: HOST, port });
    client.on("error", () => undefined);
    stops.push(() => client.disconnect());
    return { id: String(await client.cluster("MYID")), server, port, client };
  }

  try {
    const nodes: ClusterNode[] = [];
    for (let node = 0; node < 2 * PRIMARIES; node++) nodes.push(await startNode());
    const primaries = nodes.slice(0, PRIMARIES);
    const replicas = nodes.slice(PRIMARIES);
    await join(primaries, replicas);
    return {
      primaries,
      replicas,
      open() {
        const cluster = new Cluster(primaries.map(({ port }) => ({ host: HOST, port })));
        cluster.on("error", () => undefined);
        stops.push(() => cluster.disconnect());
        return cluster;
      },
      ownerOf: (tag, asked = nodes[0]!) => ownerOf(nodes, tag, asked),
      stop,
    };
  } catch (error) {
    await stop();
    throw error;
  }
}

const CLUSTER_ARGS = [
  "--cluster-enabled",
  "yes",
  "--cluster-announce-ip",
  HOST,
  "--cluster-node-timeout",
  "1500",
  "--cluster-require-full-coverage",
  "no",
  // A replica that was cut off for a moment on a busy machine may stand for election all the same.
  "--cluster-replica-validity-factor",
  "0",
];

async function join(
  primaries: readonly ClusterNode[],
  replicas: readonly ClusterNode[],
): Promise<void> {
  for (const [index, { client }] of primaries.entries()) {
    const first = Math.floor((index * SLOTS) / PRIMARIES);
    const last = Math.floor(((index + 1) * SLOTS) / PRIMARIES) - 1;
    await client.cluster("ADDSLOTSRANGE", first, last);
    await client.cluster("SET-CONFIG-EPOCH", index + 1);
  }
  const nodes = [...primaries, ...replicas];
  for (const { port } of nodes.slice(1)) await nodes[0]!.client.cluster("MEET", HOST, port);
  await waitUntil(async () => {
    const infos = await Promise.all(nodes.map(({ client }) => client.cluster("INFO")));
    return infos.every((info) => info.includes(`cluster_known_nodes:${nodes.length}`));
  }, "the nodes know each other");
  for (const [index, { client }] of replicas.entries()) {
    await client.cluster("REPLICATE", primaries[index]!.id);
  }
  await waitUntil(async () => {
    const infos = await Promise.all(replicas.map(({ client }) => client.info("replication")));
    const states = await Promise.all(nodes.map(({ client }) => client.cluster("INFO")));
    const seen = await Promise.all(nodes.map(({ client }) => client.cluster("NODES")));
    return (
      infos.every((info) => info.includes("master_link_status:up")) &&
      states.every((state) => state.includes("cluster_state:ok")) &&
      seen.every((text) => String(text).split("slave ").length === replicas.length + 1)
    );
  }, "each primary has its replica");
}

async function ownerOf(
  nodes: readonly ClusterNode[],
  tag: string,
  { client }: ClusterNode,
): Promise<ClusterNode | undefined> {
  const slot = Number(await client.cluster("KEYSLOT", `{${tag}}`));
  const ranges = await client.cluster("SLOTS");
  const [, , owner] = ranges.find(([first, last]) => first <= slot && slot <= last) ?? [];
  return nodes.find(({ port }) => port === owner?.[1]);
}
