import { Cluster, Redis } from "ioredis";
import { onTestFinished } from "vitest";
import { startRedis } from "./local-redis.ts";
import { REPLICATE_AT_ONCE, type LocalRedis } from "./private-redis.ts";
import { waitUntil } from "../async/wait-until.ts";

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
  const clients: (Redis | Cluster)[] = [];
  const servers: LocalRedis[] = [];
  async function stop(): Promise<void> {
    for (const client of clients) client.disconnect();
    await Promise.all(servers.map((server) => server.stop()));
  }

  async function startNode(): Promise<ClusterNode> {
    const server = await startRedis({ fresh: true, args: CLUSTER_ARGS });
    servers.push(server);
    const port = Number(new URL(server.url).port);
    const client = new Redis({ host: HOST, port });
    client.on("error", () => undefined);
    clients.push(client);
    return { id: String(await client.cluster("MYID")), server, port, client };
  }

  try {
    const nodes = await allOf(Array.from({ length: 2 * PRIMARIES }, startNode));
    const primaries = nodes.slice(0, PRIMARIES);
    const replicas = nodes.slice(PRIMARIES);
    await join(primaries, replicas);
    return {
      primaries,
      replicas,
      open() {
        const cluster = new Cluster(primaries.map(({ port }) => ({ host: HOST, port })));
        cluster.on("error", () => undefined);
        clients.push(cluster);
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

/** A cluster that ends after the test. */
export async function startOwnCluster(): Promise<RedisCluster> {
  const cluster = await startCluster();
  onTestFinished(() => cluster.stop());
  return cluster;
}

/** A name whose hash tag this node serves. */
export async function nameOn({ ownerOf }: RedisCluster, { id }: ClusterNode): Promise<string> {
  for (let index = 0; ; index++) {
    const name = `bucket ${index}`;
    if ((await ownerOf(name))?.id === id) return name;
  }
}

/** As `Promise.all`, but it rejects no earlier than all have ended: what they started is known then. */
async function allOf<Result>(promises: readonly Promise<Result>[]): Promise<Result[]> {
  await Promise.allSettled(promises);
  return Promise.all(promises);
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
  ...REPLICATE_AT_ONCE,
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
  // Each pair, as it takes a while until nodes hear of one another.
  for (const [index, { client }] of nodes.entries()) {
    for (const { port } of nodes.slice(index + 1)) await client.cluster("MEET", HOST, port);
  }
  await waitUntil(async () => {
    const seen = await Promise.all(nodes.map(({ client }) => client.cluster("NODES")));
    return seen.every((text) => nodes.every(({ id }) => String(text).includes(id)));
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
