import { Redis } from "ioredis";
import { describe, expect, inject, it, onTestFinished } from "vitest";
import { verify } from "sluice/webhooks";
import { waitUntil } from "../../support/async/wait-until.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import {
  openHooks,
  put,
  startHolding,
  startReceiver,
  untilIdle,
} from "../../support/webhooks/open-hooks.ts";

const sluices = realSluices();
const REF = { tenant: "acme", id: "billing" };
const URL_ = "https://example.com/hooks";
const EVENT = { tenant: "acme", type: "note.made", data: { n: 1 } };

describe("a tenant", () => {
  it("reaches nothing of another's, by any method", async () => {
    const hooks = openHooks(sluices);
    const receiver = await startReceiver();
    const secret = await put(hooks, { ...REF, url: receiver.url });
    const theirs = { tenant: "mallory", id: "billing" };
    const missing = { code: "ERR_ENDPOINT_MISSING" };
    hooks.worker();

    expect(await hooks.endpoints.get(theirs)).toBeUndefined();
    expect((await hooks.endpoints.list({ tenant: "mallory" })).endpoints).toEqual([]);
    expect(await hooks.endpoints.remove(theirs)).toBe(false);
    await expect(hooks.endpoints.disable(theirs)).rejects.toMatchObject(missing);
    await expect(hooks.endpoints.enable(theirs)).rejects.toMatchObject(missing);
    await expect(hooks.endpoints.rotateSecret(theirs)).rejects.toMatchObject(missing);
    await expect(hooks.endpoints.setLimits({ ...theirs, rate: "1/h" })).rejects.toMatchObject(
      missing,
    );
    await hooks.tenants.setLimits({ tenant: "mallory", rate: "1/h" });
    await expect(hooks.test(theirs)).rejects.toMatchObject(missing);
    const event = { tenant: "mallory", type: "note.made", data: "theirs" };
    expect((await hooks.send(event)).endpoints).toEqual([]);
    await expect(hooks.send({ ...event, endpoint: "billing" })).rejects.toMatchObject(missing);
    const { type, data } = event;
    expect(await hooks.broadcast({ type, data, tenants: ["mallory"] })).toMatchObject({
      tenants: 0,
      endpoints: 0,
    });
    // An endpoint of the same id is another one.
    await put(hooks, { ...theirs, url: URL_ });
    await hooks.endpoints.remove(theirs);

    await hooks.send({ ...EVENT, data: 1 });
    await waitUntil(() => receiver.arrivals.length === 1, "it has arrived");
    const { body, headers } = receiver.arrivals[0]!;
    expect(verify({ body, headers, secret }).payload).toMatchObject({ data: 1 });
  });

  it.each(["__proto__", "constructor", "toString"])(
    "and an endpoint may have the name %s, as any other",
    async (name) => {
      const hooks = openHooks(sluices);
      const receiver = await startReceiver();
      const ref = { tenant: name, id: name };
      const metadata = { constructor: "b", toString: "c" } as unknown as Record<string, string>;
      const headers = { constructor: "b", toString: "c" } as unknown as Record<string, string>;
      const { endpoint } = await hooks.endpoints.put({
        ...ref,
        url: receiver.url,
        metadata,
        headers,
      });
      await hooks.endpoints.put({ ...ref, id: "ordered", url: receiver.url, ordered: true });
      hooks.worker();

      const { endpoints } = await hooks.send({
        ...EVENT,
        tenant: name,
        id: name.replaceAll("_", ""),
      });

      expect(endpoints.toSorted()).toEqual([name, "ordered"].toSorted());
      await waitUntil(() => receiver.arrivals.length === 2, "both have arrived");
      await untilIdle(hooks);
      expect(new Map(Object.entries(endpoint.metadata!))).toEqual(
        new Map(Object.entries(metadata)),
      );
      expect(endpoint.headers.toSorted()).toEqual(["constructor", "toString"]);
      const message = await hooks.messages.get({ tenant: name, id: name.replaceAll("_", "") });
      expect(new Map(Object.entries(message!.endpoints))).toEqual(
        new Map([
          [name, "delivered"],
          ["ordered", "delivered"],
        ]),
      );
      expect((await hooks.attempts.list({ tenant: name, endpoint: name })).entries).toHaveLength(1);
      expect((await hooks.endpoints.list({ tenant: name })).endpoints).toHaveLength(2);
      await hooks.endpoints.disable(ref);
      expect((await hooks.send({ ...EVENT, tenant: name })).endpoints).toEqual(["ordered"]);
    },
  );

  it("is listed as long as it has endpoints", async () => {
    const hooks = openHooks(sluices);
    for (const tenant of ["c", "a", "b"]) {
      for (const id of ["one", "two"]) await put(hooks, { tenant, id, url: URL_ });
    }

    const first = await hooks.tenants.list({ limit: 2 });
    const second = await hooks.tenants.list({ limit: 2, cursor: first.cursor! });

    expect([first.tenants, second]).toEqual([["a", "b"], { tenants: ["c"], cursor: undefined }]);
    await hooks.endpoints.remove({ tenant: "a", id: "one" });
    expect((await hooks.tenants.list()).tenants).toEqual(["a", "b", "c"]);
    await hooks.endpoints.remove({ tenant: "a", id: "two" });
    await hooks.expunge({ tenant: "b" });
    expect((await hooks.tenants.list()).tenants).toEqual(["c"]);
  });

  it("cannot use a secret of another that was copied to it in Redis", async () => {
    const hooks = openHooks(sluices, { scheduleMs: [0] });
    const receiver = await startReceiver();
    await put(hooks, { ...REF, url: URL_ });
    await put(hooks, { tenant: "mallory", id: "billing", url: receiver.url });
    const redis = new Redis(inject("redisUrl"));
    onTestFinished(() => redis.disconnect());
    const base = `${sluices.prefix()}:{webhooks}:hooks:endpoints:`;
    const record = (await redis.hget(`${base}acme`, "billing"))!.replace(URL_, receiver.url);
    await redis.hset(`${base}mallory`, "billing", record);
    hooks.worker();

    const { id } = await hooks.send({ tenant: "mallory", type: "a", data: 1, endpoint: "billing" });

    const isTried = async (): Promise<boolean> =>
      (await hooks.queue.jobs()).jobs.some(({ attemptsMade }) => attemptsMade > 0);
    await waitUntil(isTried, `${id} was tried`);
    expect(receiver.arrivals).toEqual([]);
  });

  it("is not named where the sender has only one", async () => {
    const hooks = openHooks(sluices, { singleTenant: true });
    const receiver = await startReceiver();

    const { endpoint } = await hooks.endpoints.put({ id: "a", url: receiver.url });
    hooks.worker();
    await hooks.send({ type: "note.made", data: 1 });

    expect(endpoint.tenant).toBeUndefined();
    await waitUntil(() => receiver.arrivals.length === 1, "it has arrived");
    await expect(hooks.endpoints.get({ tenant: "only", id: "a" })).rejects.toMatchObject({
      option: "tenant",
    });
  });

  it("shares nothing with one whose names look the same beside those of its endpoints", async () => {
    const hooks = openHooks(sluices, {
      scheduleMs: [0],
      breaker: { failures: 1, coolMs: 300_000 },
    });
    const failing = await startReceiver({ answer: () => 500 });
    const receiver = await startReceiver();
    await put(hooks, { tenant: "a", id: "b:c", url: failing.url });
    await put(hooks, { tenant: "a:b", id: "c", url: receiver.url });
    hooks.worker();
    await hooks.send({ ...EVENT, tenant: "a", id: "m-1" });
    await waitUntil(async () => (await hooks.queue.counts()).failed === 1, "it has failed");

    await hooks.send({ ...EVENT, tenant: "a:b", id: "m-1" });

    await waitUntil(() => receiver.arrivals.length === 1, "it has arrived");
    await untilIdle(hooks);
    const { entries } = await hooks.attempts.list({ tenant: "a:b", endpoint: "c" });
    expect(entries.map(({ outcome }) => outcome)).toEqual(["success"]);
  });

  it("reaches nothing of another's log", async () => {
    const hooks = openHooks(sluices);
    const receiver = await startReceiver();
    await put(hooks, { ...REF, url: receiver.url });
    await put(hooks, { ...REF, tenant: "mallory", url: receiver.url });
    hooks.worker();
    const { id } = await hooks.send(EVENT);
    await untilIdle(hooks);
    const tenant = "mallory";
    const missing = { code: "ERR_MESSAGE_MISSING" };

    expect(await hooks.messages.get({ tenant, id })).toBeUndefined();
    expect((await hooks.messages.list({ tenant })).entries).toEqual([]);
    expect((await hooks.attempts.list({ tenant, message: id })).entries).toEqual([]);
    expect((await hooks.attempts.list({ tenant, endpoint: "billing" })).entries).toEqual([]);
    await expect(hooks.replay({ tenant, message: id })).rejects.toMatchObject(missing);
    await expect(hooks.replay({ tenant, message: id, endpoint: "billing" })).rejects.toMatchObject(
      missing,
    );
    expect(await hooks.replay({ tenant, since: 0 })).toBe(0);
    expect(await hooks.recover({ tenant, endpoint: "billing" })).toBe(0);
    expect(await hooks.expunge({ tenant, message: id })).toBe(0);
    expect(await hooks.expunge({ tenant })).toBe(0);
    expect(await hooks.messages.get({ tenant: "acme", id })).toBeDefined();
    expect(receiver.arrivals).toHaveLength(1);
  });
});

describe("the log of changes beside a tenant", () => {
  it("has nothing of what answers and limits did, and what a person did", async () => {
    const hooks = openHooks(sluices, { scheduleMs: [0, 60_000], breaker: { failures: 2 } });
    const sluice = sluices.open();
    const receiver = await startReceiver({
      answer: () => ({ status: 429, headers: { "retry-after": "1" } }),
    });
    const cooled: unknown[] = [];
    hooks.queue.bucket.on("cooldown", (event) => void cooled.push(event));
    await put(hooks, { ...REF, url: receiver.url, rate: "100/s" });
    hooks.worker();
    await hooks.endpoints.setLimits({ ...REF, rate: "50/s" }, { by: "ann" });
    await hooks.send(EVENT);
    await waitUntil(() => cooled.length > 0, "the endpoint is left alone");
    await hooks.tenants.setLimits({ tenant: "acme", rate: "20/s" }, { by: "ann" });
    await waitUntil(async () => {
      const { limits } = await hooks.queue.bucket.peek({ key: ["acme", "billing"] });
      return JSON.stringify(limits).includes("20/s");
    }, "the worker knows the new limits");

    const changes = await sluice.changes();

    expect(changes.map(({ action, by }) => [action, by === "ann"])).toEqual([
      ["setLimits", true],
      ["setLimits", true],
      ["put", false],
    ]);
    expect(cooled).toContainEqual({ key: ["acme", "billing"], forMs: expect.any(Number) });
  });

  it.each([
    ["without a by", undefined],
    ["with a by", { by: "a user of acme" }],
  ])("keeps what a person did, whatever one tenant changes by code %s", async (_what, byHand) => {
    const hooks = openHooks(sluices);
    const redis = new Redis(inject("redisUrl"));
    onTestFinished(() => redis.disconnect());
    await put(hooks, { ...REF, url: URL_ });
    await hooks.endpoints.disable(REF, { by: "ann", reason: "abuse" });
    const [disabled] = await sluices.open().changes({ limit: 1 });

    for (let at = 0; at < 1_100; at += 10) {
      const some = Array.from({ length: 10 });
      await Promise.all(some.map(() => hooks.endpoints.setLimits({ ...REF, rate: "5/s" }, byHand)));
    }

    const changes = `${sluices.prefix()}:{:fleet}:changes:endpoints`;
    const [byPeople, byCode] = [await redis.xlen(changes), await redis.xlen(`${changes}:code`)];
    // Of 10,000 that each of these logs keeps.
    expect([byPeople, byCode]).toEqual(byHand === undefined ? [1, 1_000] : [1_001, 1]);
    const [first] = await redis.xrange(changes, "-", "+", "COUNT", 1);
    expect(JSON.stringify(first)).toContain("abuse");
    expect(await hooks.endpoints.undo({ id: disabled!.id })).toMatchObject({ by: "ann" });
  });

  it("does not end a pause that a person made", async () => {
    const hooks = openHooks(sluices, { scheduleMs: [0, 60_000] });
    const receiver = await startHolding();
    const { bucket } = hooks.queue;
    const key = ["acme", "billing"];
    await put(hooks, { ...REF, url: receiver.url });
    hooks.worker();
    await hooks.send(EVENT);
    await waitUntil(() => receiver.held.length === 1, "it is under way");
    await bucket.pause({ key, by: "ann" });

    receiver.held[0]!.writeHead(429, { "retry-after": "1" }).end();
    await waitUntil(async () => (await hooks.queue.counts()).delayed === 1, "it is tried later");

    expect((await bucket.peek({ key })).pausedForMs).toBe(Infinity);
  });
});

it("a tenant's new limit holds within the second, beside 3,000 endpoints of another", async () => {
  const hooks = openHooks(sluices);
  const other = openHooks(sluices);
  const receiver = await startReceiver();
  await put(hooks, { ...REF, url: receiver.url, rate: "1/h" });
  hooks.worker();
  const isKnown = async (tenant: string, rate: string): Promise<boolean> => {
    const { limits } = await hooks.queue.bucket.peek({ key: [tenant, "billing"] });
    return JSON.stringify(limits).includes(rate);
  };
  await waitUntil(() => isKnown("acme", "1/h"), "the worker knows the first limit");
  const redis = new Redis(inject("redisUrl"));
  onTestFinished(() => redis.disconnect());
  // As if another tenant had put so many since the worker looked.
  const base = `${sluices.prefix()}:{webhooks}:hooks:limits`;
  const many = Array.from({ length: 3_000 }, (_, at) => `mallory\u001Fe-${at}`);
  const number = await redis.incrby(`${base}:version`, many.length);
  const scored = many.flatMap((key, at) => [number - many.length + at + 1, key]);
  await redis.hset(base, ...many.flatMap((key) => [key, '{"rate":"7/s"}']));
  await redis.zadd(`${base}:changed`, ...scored);
  await other.endpoints.setLimits({ ...REF, rate: "900/s" });
  await waitUntil(() => isKnown("acme", "900/s"), "the worker knows the new limit");
  await hooks.send(EVENT);
  await hooks.send(EVENT);

  await waitUntil(() => receiver.arrivals.length === 2, "both have arrived");
  expect((await hooks.queue.counts()).waiting).toBe(0);
});
