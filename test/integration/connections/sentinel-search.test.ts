import type { Redis, RedisOptions } from "ioredis";
import { describe, expect, inject, it, onTestFinished } from "vitest";
import { connect } from "../../../src/stores/redis/connection.ts";
import { startFakeSentinel, type FakeSentinel } from "../../support/redis/fake-sentinel.ts";
import { startTcpProxy, type TcpProxy } from "../../support/servers/tcp-proxy.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

interface Parts {
  readonly client: Redis;
  readonly sentinel: FakeSentinel;
  readonly primary: TcpProxy;
}

type Open = (redis: RedisOptions) => Redis;

async function start(open: Open): Promise<Parts> {
  const primary = await startTcpProxy(Number(new URL(inject("redisUrl")).port));
  onTestFinished(() => primary.close());
  const sentinel = await startFakeSentinel(primary.port);
  onTestFinished(() => sentinel.close());
  const redis = { sentinels: [{ host: "127.0.0.1", port: sentinel.port }], name: "p" };
  const client = open(redis);
  onTestFinished(() => client.disconnect());
  return { client, sentinel, primary };
}

/** Until a connection that was lost looks for its primary again, and gets no answer yet. */
async function search({ client, sentinel, primary }: Parts): Promise<void> {
  if (client.status === "wait") await client.connect();
  await waitUntil(() => client.status === "ready" && sentinel.listening === 1, "it is connected");
  sentinel.hold();
  primary.cut();
  await waitUntil(() => sentinel.asking === 1, "the sentinel is asked");
}

async function isAnswered(client: Redis): Promise<boolean> {
  return client.ping().then(
    () => true,
    () => false,
  );
}

const connections: [string, Open][] = [
  ["the store", (redis) => connect(redis, "store") as Redis],
  ["a producer", (redis) => connect(redis, "producer") as Redis],
  ["a listener", (redis) => connect(redis, "subscriber") as Redis],
  ["a worker", (redis) => connect(redis, "worker") as Redis],
  [
    "a copy, as BullMQ makes one to block on,",
    (redis) => copyOf(connect(redis, "subscriber") as Redis),
  ],
];

/** Of a connection that stays unused. */
function copyOf(client: Redis): Redis {
  onTestFinished(() => client.disconnect());
  return client.duplicate();
}

const interruptions: [string, (parts: Parts) => Promise<void>][] = [
  [
    "word of a failover",
    async ({ sentinel }) => {
      sentinel.announce();
      // What comes after the announcement is read after it.
      await waitUntil(() => sentinel.listening === 0, "nobody listens");
    },
  ],
  ["who gives up the last connection", async ({ client }) => client.disconnect(true)],
];

describe.each(connections)(
  "behind Sentinel, a connection of %s that looks for its primary",
  (_name, open) => {
    it.each(interruptions)("survives %s", async (_what, interrupt) => {
      const parts = await start(open);
      await search(parts);

      await interrupt(parts);
      parts.sentinel.answer();

      await waitUntil(() => isAnswered(parts.client), "it answers again");
      expect(parts.client.status).toBe("ready");
    });

    it("is ended by a close", async () => {
      const parts = await start(open);
      await search(parts);

      parts.client.disconnect();
      parts.sentinel.answer();

      await waitUntil(() => parts.client.status === "end", "it has ended");
      expect(parts.primary.clients.size).toBe(0);
    });
  },
);
