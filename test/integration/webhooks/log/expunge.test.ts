import { Redis } from "ioredis";
import { describe, expect, inject, it, onTestFinished } from "vitest";
import type { Webhooks } from "sluice/webhooks";
import { waitUntil } from "../../../support/async/wait-until.ts";
import { everythingOf, type StoredKey } from "../../../support/redis/everything.ts";
import { realSluices } from "../../../support/setup/real-sluice.ts";
import {
  openHooks,
  put,
  startHolding,
  startReceiver,
  untilIdle,
} from "../../../support/webhooks/open-hooks.ts";

const sluices = realSluices();
const REF = { tenant: "acme", id: "a" };
const EVENT = { tenant: "acme", type: "note.made", data: { n: 1 } };

function openRedis(): Redis {
  const redis = new Redis(inject("redisUrl"));
  onTestFinished(() => redis.disconnect());
  return redis;
}

describe("expunge()", () => {
  it("forgets a message, and does not send its pending deliveries", async () => {
    const hooks = openHooks(sluices);
    const receiver = await startReceiver();
    await put(hooks, { ...REF, url: receiver.url });
    await hooks.send({ ...EVENT, id: "m-1", data: "a secret of a person" });

    expect(await hooks.expunge({ tenant: "acme", message: "m-1" })).toBe(1);
    hooks.worker();
    await untilIdle(hooks);

    expect(receiver.arrivals).toEqual([]);
    expect(await hooks.messages.get({ tenant: "acme", id: "m-1" })).toBeUndefined();
    expect((await hooks.messages.list({ tenant: "acme" })).entries).toEqual([]);
    expect((await hooks.queue.failed())[0]?.reason).toContain("no longer stored");
  });

  it("is noticed by a sender that has cached the endpoints", async () => {
    const [hooks, other] = [openHooks(sluices), openHooks(sluices)];
    await put(hooks, { ...REF, url: "http://127.0.0.1:9/" });
    await other.send(EVENT);

    await hooks.expunge({ tenant: "acme" });
    await put(hooks, { ...REF, id: "b", url: "http://127.0.0.1:9/" });

    expect((await other.send(EVENT)).endpoints).toEqual(["b"]);
  });

  it("forgets what is kept for longer than others, since it may still be tried", async () => {
    const hooks = openHooks(sluices, { keepMs: 86_400_000 });
    await put(hooks, { ...REF, url: "http://127.0.0.1:9/" });
    await hooks.send({ ...EVENT, id: "m-1" });
    const redis = openRedis();
    const base = `${sluices.prefix()}:{webhooks}:hooks`;
    // It came two days ago, and its schedule takes three.
    await redis.zadd(`${base}:messages:acme`, Date.now() - 2 * 86_400_000, "m-1");
    await hooks.send({ ...EVENT, id: "m-2" });

    const { entries } = await hooks.messages.list({ tenant: "acme" });

    expect(entries.map(({ id }) => id)).toEqual(["m-2", "m-1"]);
    expect(await hooks.expunge({ tenant: "acme" })).toBe(2);
    expect(await redis.keys(`${base}:*acme*`)).toEqual([]);
  });

  it("has nothing to forget of a message whose time is over, which no list has", async () => {
    const hooks = openHooks(sluices);
    await put(hooks, { ...REF, url: "http://127.0.0.1:9/" });
    await hooks.send({ ...EVENT, id: "m-1" });
    const redis = openRedis();
    const base = `${sluices.prefix()}:{webhooks}:hooks`;
    await redis.zadd(`${base}:ends:acme`, Date.now() - 1, "m-1");

    await hooks.send({ ...EVENT, id: "m-2" });

    expect(await redis.zrange(`${base}:messages:acme`, 0, -1)).toEqual(["m-2"]);
    expect(await redis.zrange(`${base}:ends:acme`, 0, -1)).toEqual(["m-2"]);
  });

  it("leaves nothing of a tenant in Redis, and all of another", async () => {
    const hooks = openHooks(sluices);
    const receiver = await startReceiver();
    for (const tenant of ["acme", "other"]) {
      await put(hooks, { tenant, id: "a", url: receiver.url, rate: "100/s" });
      await hooks.send({ ...EVENT, tenant, id: "m-1" });
    }
    hooks.worker();
    await untilIdle(hooks);

    expect(await hooks.expunge({ tenant: "acme" })).toBe(1);

    const redis = openRedis();
    const left = await redis.keys(`${sluices.prefix()}:{webhooks}:hooks:*`);
    expect(left.filter((key) => key.includes(":acme"))).toEqual([]);
    expect(await hooks.messages.get({ tenant: "other", id: "m-1" })).toBeDefined();
    expect((await hooks.endpoints.list({ tenant: "other" })).endpoints).toHaveLength(1);
  });
});

describe("what is left after expunge()", () => {
  it("is nothing of messages that were expunged while they were being sent", async () => {
    const hooks = openHooks(sluices);
    await put(hooks, { ...REF, url: "http://127.0.0.1:9/" });
    await put(hooks, { ...REF, id: "b", ordered: true, url: "http://127.0.0.1:9/" });
    const ids = Array.from({ length: 300 }, (_, at) => `m-${at}`);

    await Promise.all(
      ids.flatMap((id) => [
        hooks.send({ ...EVENT, id, data: "a secret of a person" }),
        hooks.expunge({ tenant: "acme", message: id }),
      ]),
    );
    const kept = await hooks.messages.list({ tenant: "acme", limit: 1_000 });
    const all = await everythingOf(openRedis(), sluices.prefix());

    const messages = all.filter(({ key }) => key.includes(":hooks:message:"));
    expect(messages.map(({ key }) => key.split(":").at(-1))).toEqual(
      expect.arrayContaining(kept.entries.map(({ id }) => id)),
    );
    expect(messages).toHaveLength(kept.entries.length);
    expect(messages.filter(({ ttlMs }) => ttlMs < 0)).toEqual([]);
    await hooks.expunge({ tenant: "acme" });
    expect(traces(await everythingOf(openRedis(), sluices.prefix()))).toEqual([]);
  });

  it("is nothing of a tenant whose messages are sent at the same time", async () => {
    const hooks = openHooks(sluices);
    for (const id of ["a", "b"]) {
      await put(hooks, { ...REF, id, ordered: id === "b", url: "http://127.0.0.1:9/" });
    }
    await hooks.send({ ...EVENT, id: "before" });

    await Promise.all([
      ...Array.from({ length: 200 }, (_, at) => hooks.send({ ...EVENT, id: `m-${at}` })),
      hooks.expunge({ tenant: "acme" }),
    ]);

    expect(traces(await everythingOf(openRedis(), sluices.prefix()))).toEqual([]);
  });

  it("is nothing of a tenant, wherever its names and data were", async () => {
    const hooks = openHooks(sluices, { scheduleMs: [0, 3_600_000], breaker: { failures: 2 } });
    const sluice = sluices.open();
    const receiver = await startReceiver({ answer: ({ path }) => (path === "/ok" ? 200 : 429) });
    const endpoint = {
      description: "the billing of acme",
      headers: { "x-acme-header": "of acme" },
      metadata: { of: "acme" },
      rate: "100/s",
    } as const;
    await put(hooks, { ...REF, ...endpoint, url: `${receiver.url}/ok` });
    await put(hooks, { ...REF, ...endpoint, id: "b", url: `${receiver.url}/bad` });
    await put(hooks, { ...REF, ...endpoint, id: "c:d", ordered: true, url: `${receiver.url}/bad` });
    await put(hooks, { ...REF, ...endpoint, id: "gone", url: `${receiver.url}/bad` });
    await put(hooks, { tenant: "acme2", id: "a", url: `${receiver.url}/ok`, rate: "50/s" });
    await hooks.tenants.setLimits({ tenant: "acme", rate: "50/s" }, { by: "ann" });
    const worker = hooks.worker();
    for (let at = 0; at < 5; at++) await hooks.send({ ...EVENT, id: `m-${at}`, data: "of acme" });
    await hooks.send({ ...EVENT, tenant: "acme2", id: "m-0" });
    await hooks.broadcast({ type: "status.changed", data: "of acme", tenants: ["acme"] });
    await waitUntil(async () => (await hooks.queue.counts()).active === 0, "all were tried");
    await hooks.endpoints.remove({ ...REF, id: "gone" });
    await hooks.endpoints.disable(REF, { by: "ann", reason: "acme asked for it" });
    await hooks.replay({ tenant: "acme", message: "m-1", by: "ann of acme" });
    await hooks.queue.pause({ key: "acme", by: "ann" });
    await worker.close();

    await hooks.expunge({ tenant: "acme" });

    const left = await everythingOf(openRedis(), sluices.prefix());
    // What limits count of a key ends by itself.
    const named = traces(left, /\bacme\b/).filter(({ key, ttlMs }) => !isLimitState(key, ttlMs));
    expect(named).toEqual([]);
    expect(
      (await sluice.changes({ queue: "webhooks" })).map((each) => each.endpoint?.tenant),
    ).toEqual(["acme2"]);
    expect(await hooks.messages.get({ tenant: "acme2", id: "m-0" })).toBeDefined();
    expect((await hooks.tenants.list()).tenants).toEqual(["acme2"]);
  });

  it("is no later attempt of what was under way", async () => {
    const hooks = openHooks(sluices, { scheduleMs: [0, 60_000] });
    const receiver = await startHolding();
    await put(hooks, { ...REF, url: receiver.url });
    await put(hooks, { ...REF, id: "b", ordered: true, url: receiver.url });
    hooks.worker();
    await hooks.send(EVENT);
    await waitUntil(() => receiver.held.length === 2, "both are under way");

    await hooks.expunge({ tenant: "acme" });
    for (const response of receiver.held) response.writeHead(429).end();
    await waitUntil(async () => (await hooks.queue.counts()).active === 0, "both have ended");

    expect(await hooks.queue.counts()).toMatchObject({ waiting: 0, delayed: 0, failed: 0 });
    const left = traces(await everythingOf(openRedis(), `${sluices.prefix()}:{webhooks}:hooks`));
    expect(left).toEqual([]);
  });

  it("are no limits of a tenant, also where a process knew them", async () => {
    const [hooks, other] = [openHooks(sluices), openHooks(sluices)];
    const receiver = await startReceiver();
    await put(other, { ...REF, url: receiver.url, rate: "1/h" });
    hooks.worker();
    await waitUntil(async () => {
      const { limits } = await hooks.queue.bucket.peek({ key: ["acme", "a"] });
      return JSON.stringify(limits).includes("1/h");
    }, "the worker knows its limits");

    await other.expunge({ tenant: "acme" });
    await put(other, { ...REF, url: receiver.url });
    for (let at = 0; at < 5; at++) await other.send(EVENT);

    await waitUntil(() => receiver.arrivals.length === 5, "all have arrived");
    expect((await hooks.tenants.get({ tenant: "acme" })).endpoints).toBe(1);
  });
});

/** What has a name or the data of a tenant in it. */
function traces(all: readonly StoredKey[], name: RegExp = /acme|secret of a person/): StoredKey[] {
  return all.filter(({ key, value }) => name.test(key) || name.test(value));
}

/** Whether it is what limits count of a key: that expires by itself. */
function isLimitState(key: string, ttlMs: number): boolean {
  return key.includes(":{webhooks}:key:") && ttlMs > 0;
}

describe("a message id that comes again", () => {
  /** Sends a message, and has it end in some way. */
  const ended: [string, (hooks: Webhooks) => Promise<unknown>, { status?: number }][] = [
    [
      "was delivered and expunged",
      (hooks) => hooks.expunge({ tenant: "acme", message: "m-1" }),
      {},
    ],
    [
      "failed for good and was expunged",
      (hooks) => hooks.expunge({ tenant: "acme", message: "m-1" }),
      { status: 410 },
    ],
    [
      "was expunged with its tenant",
      async (hooks) => {
        await hooks.expunge({ tenant: "acme" });
      },
      {},
    ],
    ["is over keepMs", async () => forget("message:acme:m-1"), {}],
    [
      "failed for good, and is over keepMs",
      async () => forget("message:acme:m-1"),
      { status: 410 },
    ],
  ];

  async function forget(key: string): Promise<void> {
    await openRedis().del(`${sluices.prefix()}:{webhooks}:hooks:${key}`);
  }

  it.each(ended)("is sent where the earlier message %s", async (_what, end, { status = 200 }) => {
    const hooks = openHooks(sluices, { scheduleMs: [0] });
    let answer = status;
    const receiver = await startReceiver({ answer: () => answer });
    const secret = await put(hooks, { ...REF, url: receiver.url });
    hooks.worker();
    await hooks.send({ ...EVENT, id: "m-1" });
    await untilIdle(hooks);
    await end(hooks);
    answer = 200;
    await hooks.endpoints.put({ ...REF, url: receiver.url, secret });
    await hooks.endpoints.enable(REF);

    const sent = await hooks.send({ ...EVENT, id: "m-1", data: "again" });
    await untilIdle(hooks);

    expect(sent).toEqual({ id: "m-1", isNew: true, endpoints: ["a"] });
    expect(receiver.arrivals).toHaveLength(2);
    expect(receiver.arrivals[1]!.body).toContain("again");
    expect(await hooks.messages.get({ tenant: "acme", id: "m-1" })).toMatchObject({
      endpoints: { a: "delivered" },
    });
  });

  it("is sent once where the earlier message still waited", async () => {
    const hooks = openHooks(sluices);
    const receiver = await startReceiver();
    await put(hooks, { ...REF, url: receiver.url });
    await put(hooks, { ...REF, id: "ordered", ordered: true, url: `${receiver.url}/ordered` });
    await hooks.send({ ...EVENT, id: "m-1", data: "old" });
    await hooks.replay({ tenant: "acme", message: "m-1" });
    await hooks.expunge({ tenant: "acme", message: "m-1" });

    await hooks.send({ ...EVENT, id: "m-1", data: "new" });
    hooks.worker();
    await untilIdle(hooks);

    expect(receiver.arrivals.map(({ path, body }) => [path, body.includes("new")])).toEqual(
      expect.arrayContaining([
        ["/", true],
        ["/ordered", true],
      ]),
    );
    expect(receiver.arrivals).toHaveLength(2);
  });

  it("keeps the log of its own message, whatever an attempt at the earlier one comes to", async () => {
    const hooks = openHooks(sluices, { scheduleMs: [0, 3_600_000] });
    const receiver = await startHolding();
    await put(hooks, { ...REF, url: receiver.url });
    hooks.worker();
    await hooks.send({ ...EVENT, id: "m-1", data: "old" });
    await waitUntil(() => receiver.held.length === 1, "the first one is under way");
    await hooks.expunge({ tenant: "acme", message: "m-1" });
    await hooks.send({ ...EVENT, id: "m-1", data: "new" });
    await waitUntil(() => receiver.held.length === 2, "the second one has arrived");

    receiver.held[1]!.writeHead(200).end();
    receiver.held[0]!.writeHead(500).end();
    await waitUntil(async () => (await hooks.queue.counts()).active === 0, "both have ended");

    expect(await hooks.messages.get({ tenant: "acme", id: "m-1" })).toMatchObject({
      data: "new",
      endpoints: { a: "delivered" },
    });
    const { entries } = await hooks.attempts.list({ tenant: "acme", message: "m-1" });
    expect(entries.map(({ status }) => status)).toEqual([200]);
  });
});
