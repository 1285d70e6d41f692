/**
 * Why each patch of `src/stores/redis/ioredis/` is there, shown on ioredis as it is without them. Such a test
 * fails when an upgrade mends the fault, or renames what the patch takes hold of: then the patch can go, or must follow.
 */
import { createServer, type AddressInfo } from "node:net";
import { Redis, type Command } from "ioredis";
import { describe, expect, it, onTestFinished } from "vitest";
import { block } from "../../support/async/block.ts";
import { startFakeSentinel } from "../../support/redis/fake-sentinel.ts";
import { rejectionOf } from "../../support/async/rejection.ts";
import {
  closeAfterTest,
  isSettled,
  nextEvent,
  openUnpatched,
  startSharedProxy,
} from "../../support/servers/unpatched.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const HOST = "127.0.0.1";

describe("closing.ts", () => {
  it("rejectWhenClosed: a client that is closed between two attempts never ends", async () => {
    const proxy = await startSharedProxy();
    const redis = openUnpatched({ port: proxy.port, retryStrategy: () => 3_600_000 });
    await redis.ping();
    let hasEnded = false;
    redis.on("end", () => (hasEnded = true));

    proxy.set("stall");
    const blocked = redis.blpop("none", 0);
    await waitUntil(() => proxy.kept > 0, "it is sent");
    proxy.cut();
    await nextEvent(redis, "reconnecting");
    redis.disconnect();

    expect(await isSettled(blocked)).toBe(false);
    expect([redis.status, hasEnded]).toEqual(["reconnecting", false]);
  });

  it("rejectWhenClosed: what is sent on a connection that is lost before it is ready is forgotten", async () => {
    const proxy = await startSharedProxy();
    proxy.set("stall");
    const redis = openUnpatched({
      port: proxy.port,
      retryStrategy: () => 1,
      disableClientInfo: true,
    });
    await nextEvent(redis, "connect");
    const sent = redis.time();
    await waitUntil(() => proxy.kept > 0, "it is sent");

    proxy.set("pass");
    proxy.cut();
    await nextEvent(redis, "ready");
    redis.disconnect();
    await nextEvent(redis, "end");

    expect(await isSettled(sent)).toBe(false);
  });

  it("rejectWhenClosed: the members that it takes hold of are there", async () => {
    const redis = openUnpatched();
    await redis.ping();

    const pending = redis.ping();

    const command = redis.commandQueue.peekBack()?.command as Command | undefined;
    expect(command).toMatchObject({ name: "ping", promise: expect.any(Promise) });
    expect(typeof command?.reject).toBe("function");
    expect(typeof Reflect.get(redis, "flushQueue")).toBe("function");
    redis.disconnect();
    expect(Reflect.get(redis, "manuallyClosing")).toBe(true);
    await pending.catch(() => undefined);
  });

  it("rejectWhenClosed: a new connection asks these commands by itself", async () => {
    const redis = openUnpatched({ db: 1, connectionName: "mine", lazyConnect: true });
    const asked: string[] = [];
    const send = redis.sendCommand.bind(redis);
    redis.sendCommand = (command, stream) => {
      asked.push([command.name, ...command.args.slice(0, 1)].join(" "));
      return send(command, stream);
    };

    await redis.connect();

    expect(asked.toSorted()).toEqual([
      "client SETINFO",
      "client SETINFO",
      "client setname",
      "info",
      "select 1",
    ]);
  });
});

describe("per-server.ts", () => {
  it("gatherWrites: ioredis writes each command by itself", async () => {
    const redis = openUnpatched();
    await redis.ping();
    const waiting: number[] = [];

    const answers = Array.from({ length: 10 }, async () => {
      const answer = redis.ping();
      waiting.push(redis.stream.writableLength);
      return answer;
    });
    await Promise.all(answers);

    expect(waiting).toEqual(waiting.map(() => 0));
  });

  it("requireDatabase: ioredis goes on in database 0 when another one is refused", async () => {
    const redis = openUnpatched({ db: 99 });

    const facts = await redis.client("INFO");

    expect(facts).toMatch(/ db=0 /);
  });
});

describe("readiness.ts", () => {
  it("untilReady: a connection that is being closed is called ready", async () => {
    const redis = openUnpatched();
    await redis.ping();

    redis.disconnect();

    expect([redis.status, redis.stream.writable]).toEqual(["ready", false]);
  });

  it("explainError: a connection that takes too long is reported so", async () => {
    const proxy = await startSharedProxy();
    proxy.set("stall");

    // The proxy takes the connection, and leaves the handshake without an answer.
    const redis = new Redis({ host: HOST, port: proxy.port, tls: {}, connectTimeout: 50 });
    const error = await new Promise<Error>((resolve) => void redis.once("error", resolve));
    redis.disconnect();

    expect(error.message).toBe("connect ETIMEDOUT");
  });
});

describe("refusals.ts", () => {
  it("nameRefusals: ioredis emits nothing of why a server takes no more clients", async () => {
    const server = createServer((socket) => {
      socket.on("error", () => undefined).resume();
      socket.end("-ERR max number of clients reached\r\n");
    });
    await new Promise<void>((resolve) => server.listen(0, HOST, resolve));
    onTestFinished(() => void server.close());
    const { port } = server.address() as AddressInfo;
    const redis = new Redis({ host: HOST, port, retryStrategy: () => null });
    const errors: string[] = [];
    redis.on("error", ({ message }) => void errors.push(message));

    await nextEvent(redis, "end");

    expect(errors.filter((message) => message.includes("max number"))).toEqual([]);
    const connector: unknown = Reflect.get(redis, "connector");
    expect(connector).toHaveProperty("connect", expect.any(Function));
  });
});

describe("sentinel.ts", () => {
  /** A client whose connection is lost, and which waits for a sentinel's answer. */
  async function search() {
    const primary = await startSharedProxy();
    const sentinel = await startFakeSentinel(primary.port);
    onTestFinished(() => sentinel.close());
    const sentinels = [{ host: HOST, port: sentinel.port }];
    const redis = closeAfterTest(new Redis({ sentinels, name: "p", failoverDetector: true }));
    await waitUntil(() => redis.status === "ready" && sentinel.listening === 1, "it is connected");
    sentinel.hold();
    primary.cut();
    await waitUntil(() => sentinel.asking === 1, "the sentinel is asked");
    return { redis, sentinel };
  }

  it("PatientConnector: a failover ends the search for the primary", async () => {
    const { redis, sentinel } = await search();

    sentinel.announce();
    await waitUntil(() => sentinel.listening === 0, "it is heard");
    sentinel.answer();

    await waitUntil(() => redis.status === "end", "the search is over");
    expect(await rejectionOf(redis.ping())).toEqual(new Error("Connection is closed."));
  });

  it("searchUntilClosed: disconnect(true) ends the search for the primary", async () => {
    const { redis, sentinel } = await search();

    redis.disconnect(true);
    sentinel.answer();

    await waitUntil(() => redis.status === "end", "the search is over");
    expect(await rejectionOf(redis.ping())).toEqual(new Error("Connection is closed."));
  });
});

describe("silent-servers.ts", () => {
  it("dropSilentServers: a freeze of the process uses up the time limit of ioredis", async () => {
    const redis = openUnpatched();
    await redis.ping();
    redis.options.commandTimeout = 200;

    const asked = redis.ping();
    block(500);

    expect(await rejectionOf(asked)).toEqual(new Error("Command timed out"));
  });

  it("dropSilentServers: ioredis keeps a connection whose commands get no answer", async () => {
    const proxy = await startSharedProxy();
    const redis = openUnpatched({ port: proxy.port });
    await redis.ping();
    redis.options.commandTimeout = 50;
    const { stream } = redis;

    proxy.set("stall");
    await rejectionOf(redis.ping());
    await rejectionOf(redis.ping());

    expect([redis.status, redis.stream === stream, stream.writable]).toEqual(["ready", true, true]);
  });

  it("dropSilentServers: the timer of socketTimeout outlives its connection", async () => {
    const proxy = await startSharedProxy();
    const redis = openUnpatched({
      port: proxy.port,
      socketTimeout: 3_600_000,
      retryStrategy: () => 3_600_000,
    });
    await redis.ping();

    proxy.set("stall");
    redis.ping().catch(() => undefined);
    proxy.cut();
    await nextEvent(redis, "reconnecting");

    const timer: unknown = Reflect.get(redis, "socketTimeoutTimer");
    expect(timer).toBeDefined();
    clearTimeout(timer as NodeJS.Timeout);
  });
});
