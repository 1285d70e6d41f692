import { Redis } from "ioredis";
import { describe, expect, inject, it, onTestFinished } from "vitest";
import { verify, type ReplayOptions, type Webhooks } from "sluice/webhooks";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { everythingOf, type StoredKey } from "../../support/redis/everything.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import {
  openHooks,
  put,
  startHolding,
  startReceiver,
  untilIdle,
} from "../../support/webhooks/open-hooks.ts";

const sluices = realSluices();
const REF = { tenant: "acme", id: "a" };
const EVENT = { tenant: "acme", type: "note.made", data: { n: 1 } };

function openRedis(): Redis {
  const redis = new Redis(inject("redisUrl"));
  onTestFinished(() => redis.disconnect());
  return redis;
}

describe("the log", () => {
  it("has each attempt of a message, the newest first, with what the endpoint answered", async () => {
    const hooks = openHooks(sluices, { scheduleMs: [0, 1] });
    let left = 1;
    const receiver = await startReceiver({
      answer: () => (left-- > 0 ? { status: 500, body: "out of order\u001b[2J" } : undefined),
    });
    await put(hooks, { ...REF, url: receiver.url, headers: { authorization: "Bearer s3cret" } });
    hooks.worker();

    const { id } = await hooks.send(EVENT);
    await untilIdle(hooks);

    const { entries } = await hooks.attempts.list({ tenant: "acme", message: id });
    expect(entries).toEqual([
      expect.objectContaining({
        message: id,
        endpoint: "a",
        attempt: 2,
        outcome: "success",
        status: 200,
      }),
      expect.objectContaining({
        attempt: 1,
        outcome: "server-error",
        status: 500,
        purpose: "send",
        answer: "out of order\ufffd[2J",
        error: "The endpoint failed (status 500).",
      }),
    ]);
    expect((await hooks.attempts.list({ tenant: "acme", endpoint: "a" })).entries).toEqual(entries);
    expect(JSON.stringify(entries)).not.toMatch(/s3cret|whsec|v1,/);
    expect(await hooks.messages.get({ tenant: "acme", id })).toMatchObject({
      id,
      type: "note.made",
      data: { n: 1 },
      endpoints: { a: "delivered" },
    });
  });

  it.each(["standard", "github", "stripe"] as const)(
    "has nothing secret of what an endpoint repeats of a request, signed for %s",
    async (signature) => {
      const hooks = openHooks(sluices, { scheduleMs: [0] });
      // What echoes are like: all headers as JSON, and as lines.
      const receiver = await startReceiver({
        answer: ({ headers, body }) => {
          const lines = Object.entries(headers).map(([name, value]) => `${name}: ${String(value)}`);
          return {
            status: 400,
            body: `saw ${body} ${lines.join("\n")}\n${JSON.stringify(headers)}`,
          };
        },
      });
      const secret = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=";
      await put(hooks, {
        ...REF,
        url: receiver.url,
        signature,
        secret,
        headers: {
          authorization: "Bearer s3cret-of-ours",
          "x-custom": "very private",
          cookie: "a=b",
        },
      });
      hooks.worker();

      const { id } = await hooks.send(EVENT);
      await untilIdle(hooks);

      const [attempt] = (await hooks.attempts.list({ tenant: "acme", message: id })).entries;
      expect(attempt!.answer).toContain("saw {");
      expect(attempt!.answer).toContain("content-type: application/json");
      expect(attempt!.answer).not.toMatch(/s3cret|very private|a=b|v1,[A-Za-z0-9]|=[0-9a-f]{20}/);
      const signatures = Object.values(receiver.arrivals[0]!.headers)
        .map(String)
        .filter((value) => /^v1,|^sha256=|,v1=/.test(value));
      expect(signatures).toHaveLength(1);
      expect(attempt!.answer).not.toContain(signatures[0]!.slice(-20));
    },
  );

  it("keeps the last 1,000 attempts of a message", async () => {
    const hooks = openHooks(sluices);
    const receiver = await startReceiver();
    await put(hooks, { ...REF, url: receiver.url });
    hooks.worker();
    await hooks.send({ ...EVENT, id: "m-1" });
    await untilIdle(hooks);
    const redis = new Redis(inject("redisUrl"));
    onTestFinished(() => redis.disconnect());
    const message = `${sluices.prefix()}:{webhooks}:hooks:message:acme:m-1`;
    // As if it had been replayed that often.
    await redis.hset(message, "attempts", 1_000);

    await hooks.replay({ tenant: "acme", message: "m-1" });
    await untilIdle(hooks);

    const { entries } = await hooks.attempts.list({ tenant: "acme", message: "m-1" });
    expect(entries.map(({ purpose }) => purpose)).toEqual(["replay"]);
    const { entries: there } = await hooks.attempts.list({ tenant: "acme", endpoint: "a" });
    expect(there).toEqual(entries);
  });
});

describe("replay()", () => {
  it("sends a message again with its id and bytes and the secret of now, and notes who asked", async () => {
    const hooks = openHooks(sluices);
    const receiver = await startReceiver();
    await put(hooks, { ...REF, url: receiver.url });
    hooks.worker();
    const { id } = await hooks.send(EVENT);
    await untilIdle(hooks);
    const secret = await hooks.endpoints.rotateSecret({ ...REF, graceMs: 0 });

    expect(await hooks.replay({ tenant: "acme", message: id, by: "ann" })).toBe(1);
    await untilIdle(hooks);

    const [first, second] = receiver.arrivals;
    expect(receiver.arrivals).toHaveLength(2);
    expect(second!.body).toBe(first!.body);
    expect(verify({ body: second!.body, headers: second!.headers, secret }).id).toBe(id);
    const { entries } = await hooks.attempts.list({ tenant: "acme", message: id });
    expect(entries[0]).toMatchObject({ purpose: "replay", by: "ann", outcome: "success" });
    const [change] = await sluices.open().changes({ queue: "webhooks" });
    expect(change).toMatchObject({ action: "replay", by: "ann", jobs: 1, filter: { message: id } });
  });

  it("reaches an endpoint that is disabled, and leaves its health as it was", async () => {
    const hooks = openHooks(sluices, {
      scheduleMs: [0],
      breaker: { failures: 1, coolMs: 300_000 },
    });
    const receiver = await startReceiver({ answer: () => 500 });
    await put(hooks, { ...REF, url: receiver.url });
    const { id } = await hooks.send(EVENT);
    await hooks.endpoints.disable(REF);
    hooks.worker();
    await untilIdle(hooks);

    for (let at = 0; at < 3; at++) await hooks.replay({ tenant: "acme", message: id });
    await untilIdle(hooks);

    // A breaker that counted them would hold the second one back.
    expect(receiver.arrivals).toHaveLength(3);
    expect((await hooks.endpoints.get(REF))?.disabled).toMatchObject({ why: "by hand" });
  });

  it("leaves an endpoint as it was that is gone for a replay", async () => {
    const hooks = openHooks(sluices);
    let status = 200;
    const receiver = await startReceiver({ answer: () => status });
    await put(hooks, { ...REF, url: receiver.url });
    hooks.worker();
    const { id } = await hooks.send(EVENT);
    await untilIdle(hooks);

    status = 410;
    await hooks.replay({ tenant: "acme", message: id });
    await untilIdle(hooks);

    expect(receiver.arrivals.map((each) => each.status)).toEqual([200, 410]);
    expect((await hooks.endpoints.get(REF))?.disabled).toBeUndefined();
  });

  it("sends again what is of a time and of a type, to one endpoint", async () => {
    const hooks = openHooks(sluices);
    const receiver = await startReceiver();
    for (const id of ["a", "b"]) await put(hooks, { ...REF, id, url: `${receiver.url}/${id}` });
    hooks.worker();
    await hooks.send({ ...EVENT, id: "old" });
    await untilIdle(hooks);
    const { atMs } = (await hooks.messages.get({ tenant: "acme", id: "old" }))!;
    await waitUntil(() => Date.now() > atMs + 2, "some time is over");
    await hooks.send({ ...EVENT, id: "new" });
    await hooks.send({ ...EVENT, id: "other", type: "order.made" });
    await untilIdle(hooks);
    const before = receiver.arrivals.length;

    const span = { tenant: "acme", since: atMs + 1, endpoint: "b", types: ["note.*"] };
    expect(await hooks.replay(span)).toBe(1);
    await untilIdle(hooks);

    const again = receiver.arrivals.slice(before);
    expect(again.map(({ path, headers }) => [path, headers["webhook-id"]])).toEqual([
      ["/b", "new"],
    ]);
  });
});

describe("recover()", () => {
  it("sends again what has failed for good at an endpoint, once it is well", async () => {
    const hooks = openHooks(sluices, { scheduleMs: [0], breaker: { failures: 1_000 } });
    let isWell = false;
    const receiver = await startReceiver({ answer: () => (isWell ? undefined : 500) });
    await put(hooks, { ...REF, url: receiver.url });
    hooks.worker();
    for (let at = 0; at < 5; at++) await hooks.send({ ...EVENT, id: `m-${at}` });
    await untilIdle(hooks);
    isWell = true;
    await hooks.send({ ...EVENT, id: "fine" });
    await untilIdle(hooks);
    const before = receiver.arrivals.length;

    expect(await hooks.recover({ tenant: "acme", endpoint: "a", since: 0, by: "ann" })).toBe(5);
    await untilIdle(hooks);

    const ids = receiver.arrivals.slice(before).map(({ headers }) => headers["webhook-id"]);
    expect(ids).toHaveLength(5);
    expect(new Set(ids)).toEqual(new Set(["m-0", "m-1", "m-2", "m-3", "m-4"]));
    expect(await hooks.recover({ tenant: "acme", endpoint: "a" })).toBe(0);
    expect(await hooks.messages.get({ tenant: "acme", id: "m-0" })).toMatchObject({
      endpoints: { a: "delivered" },
    });
    const [second, first] = await sluices.open().changes({ queue: "webhooks" });
    expect(first).toMatchObject({ endpoint: REF, filter: { since: 0 }, by: "ann", jobs: 5 });
    expect(second).toMatchObject({ action: "recover", jobs: 0 });
    expect(await rejectionOf(hooks.endpoints.undo())).toMatchObject({ change: second!.id });
  });
});

describe("a message that the sender itself could not send", () => {
  it("fails after the last try, and is recovered once the sender can", async () => {
    let isAway = true;
    const resolve = (): Promise<readonly string[]> =>
      isAway
        ? Promise.reject(Object.assign(new Error("no resolver"), { code: "EAI_AGAIN" }))
        : Promise.resolve(["127.0.0.1"]);
    const hooks = openHooks(sluices, { resolve });
    const receiver = await startReceiver();
    await put(hooks, { ...REF, url: receiver.url.replace("127.0.0.1", "hooks.example.com") });
    hooks.worker();
    await hooks.send({ ...EVENT, id: "m-1" });
    await waitUntil(async () => (await hooks.queue.counts()).delayed === 1, "it was tried");
    // As if it had been tried for hours.
    const redis = new Redis(inject("redisUrl"));
    onTestFinished(() => redis.disconnect());
    const [job] = (await hooks.queue.jobs()).jobs;
    const [key] = await redis.keys(`${sluices.prefix()}*:${job!.id}`);
    await redis.hset(key!, "atm", 19);
    await waitUntil(async () => (await hooks.queue.counts()).failed === 1, "it is a dead letter");

    expect(await hooks.messages.get({ tenant: "acme", id: "m-1" })).toMatchObject({
      endpoints: { a: "failed" },
    });
    isAway = false;
    expect(await hooks.recover({ tenant: "acme", endpoint: "a" })).toBe(1);
    await waitUntil(() => receiver.arrivals.length === 1, "it has arrived");
  });
});

describe("expunge()", () => {
  it("forgets a message, and what waits of it is not sent", async () => {
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
    expect((await hooks.queue.failed())[0]?.reason).toContain("no longer kept");
  });

  it("is heard of by a sender that knew the endpoints of before", async () => {
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
    const redis = new Redis(inject("redisUrl"));
    onTestFinished(() => redis.disconnect());
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
    const redis = new Redis(inject("redisUrl"));
    onTestFinished(() => redis.disconnect());
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

    const redis = new Redis(inject("redisUrl"));
    onTestFinished(() => redis.disconnect());
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
    expect(messages.map(({ key }) => key.split(":").at(-1)).toSorted()).toEqual(
      kept.entries.map(({ id }) => id).toSorted(),
    );
    expect(messages.filter(({ ttlMs }) => ttlMs < 0)).toEqual([]);
    await hooks.expunge({ tenant: "acme" });
    expect(traces(await everythingOf(openRedis(), sluices.prefix()))).toEqual([]);
  });

  it("is nothing of a tenant whose messages are sent meanwhile", async () => {
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
  const ended: [string, (hooks: Webhooks) => Promise<unknown>, object][] = [
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

describe("bad input", () => {
  it.each<[string, (hooks: Webhooks) => Promise<unknown>, string]>([
    ["no message", (hooks) => hooks.messages.get({ tenant: "a" } as never), "id"],
    ["no tenant", (hooks) => hooks.messages.list({}), "tenant"],
    [
      "a cursor that is none",
      (hooks) => hooks.messages.list({ tenant: "a", cursor: "x" }),
      "cursor",
    ],
    ["a large page", (hooks) => hooks.messages.list({ tenant: "a", limit: 1_001 }), "limit"],
    ["neither message nor endpoint", (hooks) => hooks.attempts.list({ tenant: "a" }), "message"],
    [
      "both",
      (hooks) => hooks.attempts.list({ tenant: "a", message: "m", endpoint: "e" }),
      "message",
    ],
    [
      "a page of the attempts of a message",
      (hooks) => hooks.attempts.list({ tenant: "a", message: "m", limit: 1 }),
      "limit",
    ],
    ["a replay of everything", (hooks) => hooks.replay({ tenant: "a" }), "since"],
    [
      "a time for one message",
      (hooks) => hooks.replay({ tenant: "a", message: "m", since: 0 }),
      "since",
    ],
    [
      "a name of two lines",
      (hooks) => hooks.replay({ tenant: "a", message: "m", by: "a\nb" }),
      "by",
    ],
    ["no endpoint", (hooks) => hooks.recover({ tenant: "a" } as never), "endpoint"],
    [
      "a time that is none",
      (hooks) => hooks.recover({ tenant: "a", endpoint: "e", since: "now" as never }),
      "since",
    ],
    ["no tenant", (hooks) => hooks.expunge({} as never), "tenant"],
    [
      "an unknown option",
      (hooks) => hooks.replay({ tenant: "a", message: "m", to: "b" } as ReplayOptions),
      "to",
    ],
  ])("is refused: %s", async (_what, call, option) => {
    const hooks = openHooks(sluices);

    await expect(call(hooks)).rejects.toMatchObject({ code: "ERR_INVALID_OPTION", option });
  });
});
