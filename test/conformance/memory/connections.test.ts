import { once } from "node:events";
import { connect } from "node:net";
import type { Redis } from "ioredis";
import { describe, expect, it, onTestFinished } from "vitest";
import { bothRedis } from "../../support/redis/both-redis.ts";

const { real, inMemory } = bothRedis();

/** Another connection to the same server, until the test ends. */
function another(redis: Redis): Redis {
  const client = redis.duplicate();
  onTestFinished(() => client.disconnect());
  return client;
}

describe.each([
  ["Redis", real],
  ["the server in memory", inMemory],
])("connections of %s", (_, redis) => {
  it("give an item to the command that waited first", async () => {
    const key = `wait:${Math.random()}`;
    const first = another(redis()).bzpopmin(key, 20);
    const second = another(redis());
    await second.ping();
    const later = second.blpop(`${key}:list`, key, 20);

    await redis().rpush(`${key}:list`, "item");
    await redis().zadd(key, 7, "member");

    expect(await later).toEqual([`${key}:list`, "item"]);
    expect(await first).toEqual([key, "member", "7"]);
  });

  it("end at an HTTP request, and run no command in its body", async () => {
    const key = `http:${Math.random()}`;
    const { host, port } = redis().options;
    for (const method of ["POST", "PUT"]) {
      const socket = connect({ host: host!, port: port! });
      const closed = once(socket.resume(), "close");
      socket.write(`${method} / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nSET ${key} 1\r\n`);
      await closed;
    }

    expect(await redis().exists(key)).toBe(0);
  });

  it("run many commands that come at once, in their order", async () => {
    const key = `many:${Math.random()}`;
    const client = another(redis());
    const pipeline = client.pipeline();
    for (let count = 0; count < 150_000; count++) pipeline.incr(key);

    const replies = await pipeline.exec();

    expect(replies!.at(-1)).toEqual([null, 150_000]);
  });

  it("end a wait with nothing, and then run the commands behind it", async () => {
    const waiting = another(redis());

    const replies = Promise.all([
      waiting.bzpopmin(`none:${Math.random()}`, 0.01),
      waiting.echo("x"),
    ]);

    expect(await replies).toEqual([null, "x"]);
  });

  it("pass new entries of a stream to a reader", async () => {
    const key = `stream:${Math.random()}`;
    const reader = another(redis());
    await reader.ping();
    const read = reader.xread("BLOCK", 20_000, "STREAMS", key, "$");

    await redis().xadd(key, "1-1", "name", "value");

    expect(await read).toEqual([[key, [["1-1", ["name", "value"]]]]]);
  });

  it("run a transaction, or nothing of it if a watched key has changed", async () => {
    const key = `watched:${Math.random()}`;
    const client = another(redis());
    await client.watch(key);
    const unchanged = await client.multi().incr(key).lpush(key, "x").get(key).exec();
    await client.watch(key);
    await redis().set(key, "other");
    const changed = await client.multi().incr(key).exec();

    expect(unchanged!.map(([error, reply]) => error?.message.split(" ")[0] ?? reply)).toEqual([
      1,
      "WRONGTYPE",
      "1",
    ]);
    expect(changed).toBeNull();
    expect(await redis().get(key)).toBe("other");
  });

  it("deliver messages by channel and by pattern", async () => {
    const channel = `news:${Math.random()}`;
    const subscriber = another(redis());
    await subscriber.subscribe(channel);
    await subscriber.psubscribe(`${channel}*`);
    const byChannel = once(subscriber, "message");
    const byPattern = once(subscriber, "pmessage");

    const receivers = await redis().publish(channel, "é");

    expect(receivers).toBe(2);
    expect(await byChannel).toEqual([channel, "é"]);
    expect(await byPattern).toEqual([`${channel}*`, channel, "é"]);
  });

  it("name a command that is unknown or incomplete", async () => {
    await expect(redis().call("NOSUCH")).rejects.toThrow(/^ERR unknown command 'NOSUCH'/);
    await expect(redis().call("HGET", "key")).rejects.toThrow(
      "ERR wrong number of arguments for 'hget' command",
    );
    await expect(redis().evalsha("0".repeat(40), 0)).rejects.toThrow(/^NOSCRIPT /);
  });
});
