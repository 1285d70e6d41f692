import { once } from "node:events";
import { expect, it, onTestFinished } from "vitest";
import { connect, type ConnectionUse } from "../../src/redis/connection.ts";
import { openSluice, portOf, startOwnRedis } from "../support/for-one-test.ts";
import { startTcpProxy, type TcpProxy } from "../support/tcp-proxy.ts";
import { waitUntil } from "../support/wait-until.ts";

async function startProxy(): Promise<TcpProxy> {
  const proxy = await startTcpProxy(portOf(await startOwnRedis()));
  onTestFinished(() => proxy.close());
  return proxy;
}

function open(proxy: TcpProxy, use: ConnectionUse, url = ""): ReturnType<typeof connect> {
  const client = connect(`redis://127.0.0.1:${proxy.port}${url}`, use);
  onTestFinished(() => client.disconnect());
  return client;
}

it("a command that was to be sent again is refused when its connection is closed", async () => {
  const proxy = await startProxy();
  const client = open(proxy, "worker").duplicate();
  await client.ping();
  const blocked = client.blpop("none", 0);
  proxy.set("stall");
  proxy.cut();
  // On this connection ioredis has yet to find out whether Redis is ready, and keeps the command for later.
  await waitUntil(() => proxy.kept > 0, "it is connected again");
  proxy.cut();
  await once(client, "reconnecting");

  client.disconnect();

  await expect(blocked).rejects.toThrow("Connection is closed.");
});

it("what a connection asks by itself may be refused when it is closed", async () => {
  const proxy = await startProxy();
  const client = open(proxy, "listener", "/1");
  await client.subscribe("news");
  proxy.cut();
  await once(client, "ready");

  // It has just asked for its database and its news; what nobody catches would fail this test.
  proxy.set("stall");
  client.disconnect();

  await once(client, "end");
  expect(proxy.kept).toBeGreaterThan(0);
});

it("a copy is closed together with what it was copied from", async () => {
  const proxy = await startProxy();
  const client = open(proxy, "worker");
  const copy = client.duplicate();
  await Promise.all([client.ping(), copy.ping()]);

  client.disconnect();

  await waitUntil(() => proxy.clients.size === 0, "both are gone");
  expect(copy.status).toBe("end");
});

it("events are heard although the first attempt to listen fails, and closing ends it", async () => {
  const proxy = await startProxy();
  const redis = `redis://127.0.0.1:${proxy.port}`;
  const sluice = openSluice({ redis, logger: { warn: () => {}, error: () => {} } });
  const queue = sluice.queue<number>("jobs", { bucket: sluice.bucket("b", { rate: "100/s" }) });
  await queue.counts();
  const heard: string[] = [];

  proxy.refuseNext();
  queue.on("waiting", ({ jobId }) => heard.push(jobId));
  const { id } = await queue.enqueue(1);

  await waitUntil(() => heard.length > 0, "it is heard of");
  expect(heard).toEqual([id]);
  await sluice.close();
  await waitUntil(() => proxy.clients.size === 0, "nobody is left");
});
