import { Cluster, Redis } from "ioredis";
import { expect, it, onTestFinished, vi } from "vitest";
import { connect } from "../../../src/stores/redis/connection.ts";
import { createNotifications } from "../../../src/stores/redis/pubsub.ts";
import { startOwnCluster } from "../../support/redis/cluster.ts";
import { openSluice, startProxy } from "../../support/redis/for-one-test.ts";
import { ownRedisServers } from "../../support/redis/own-redis.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const servers = ownRedisServers();

/** The connections that listen to channels, each as its server knows it. */
async function subscribers(operators: readonly Redis[]): Promise<string[]> {
  const lists = await Promise.all(operators.map((operator) => operator.client("LIST")));
  return lists.flatMap((list, server) => {
    const lines = String(list).split("\n");
    const listening = lines.filter((line) => / sub=[1-9]/.test(line));
    return listening.map((line) => `${server}: ${/^id=\d+/.exec(line)?.[0]}`);
  });
}

it("a listener of a bucket's changes listens again once its Redis user has the right again", async () => {
  const redis = await servers.start();
  const { operator } = redis;
  await operator.acl("SETUSER", "u", "on", ">p", "~*", "&*", "+@all");
  const sluice = redis.open({ redis: `redis://u:p@127.0.0.1:${redis.port}` });
  await sluice.bucket("b", { rate: "100/s" }).draw();
  await waitUntil(async () => (await subscribers([operator])).length === 1, "it listens");

  await operator.acl("SETUSER", "u", "resetchannels");
  await waitUntil(
    async () => String(await operator.acl("LOG")).includes("channel"),
    "it is refused",
  );
  await operator.acl("SETUSER", "u", "allchannels");

  await waitUntil(async () => (await subscribers([operator])).length === 1, "it listens again");
  expect(await operator.pubsub("NUMSUB", "sluice:changes")).toEqual(["sluice:changes", 1]);
});

it("a connection makes subscriptions from before its readiness once the server is ready", async () => {
  // The look of every few seconds does not come.
  vi.useFakeTimers({ toFake: ["setInterval"] });
  onTestFinished(() => void vi.useRealTimers());
  const redis = await servers.start();
  const client = connect(redis.url, "subscriber");
  const first = [client];
  const calls = createNotifications(() => first.pop() ?? connect(redis.url, "subscriber"), "s");
  onTestFinished(() => calls.close());

  client.once("connect", () => calls.listen("asker", () => {}));
  client.connect().catch(() => undefined);

  // Those that were sent too early may be made for a moment, on a connection that breaks on it.
  const channels = (): Promise<unknown[]> => redis.operator.pubsub("CHANNELS");
  await waitUntil(
    async () => (await channels()).length === 2 && client.status === "ready",
    "it listens to both",
  );
  expect(await channels()).toContain("s:changes");
});

it("a listener of a bucket's changes abandons a cluster node that died silently", async () => {
  const { primaries, replicas } = await startOwnCluster();
  const nodes = [...primaries, ...replicas];
  const operators = nodes.map(({ client }) => client);
  const proxies = await Promise.all(nodes.map(({ server }) => startProxy(server)));
  const behind = proxies.map(({ port }) => ({ host: "127.0.0.1", port }));
  const natMap = Object.fromEntries(
    nodes.map(({ port }, index) => [`127.0.0.1:${port}`, behind[index]!]),
  );
  const client = new Cluster(behind.slice(0, 3), { natMap });
  onTestFinished(() => client.disconnect());
  const sluice = openSluice({ redis: client });
  await sluice.bucket("b", { rate: "100/s" }).draw();
  await waitUntil(async () => (await subscribers(operators)).length === 1, "it listens");
  const [dead] = await subscribers(operators);

  for (const proxy of proxies) proxy.abandon();

  const others = async (): Promise<string[]> =>
    (await subscribers(operators)).filter((each) => each !== dead);
  await waitUntil(async () => (await others()).length > 0, "it listens on another connection");
  expect(await others()).toHaveLength(1);
});
