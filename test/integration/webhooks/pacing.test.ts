import { subscribe } from "node:diagnostics_channel";
import { Redis } from "ioredis";
import { describe, expect, inject, it, onTestFinished, vi } from "vitest";
import type { Webhooks } from "sluice/webhooks";
import { waitUntil } from "../../support/async/wait-until.ts";
import { worstWindow } from "../../../src/entries/testing/worst-window.ts";
import { startHostile } from "../../support/servers/hostile-endpoints.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import {
  LOCAL,
  openHooks,
  put,
  startReceiver,
  untilIdle,
} from "../../support/webhooks/open-hooks.ts";

const sluices = realSluices();
const REF = { tenant: "acme", id: "a" };
const EVENT = { tenant: "acme", type: "note.made", data: 1 };

/** Where this process has sent requests, and what was answered. */
const answered: string[] = [];
subscribe("undici:request:headers", (message) => {
  const { request, response } = message as {
    readonly request: { readonly origin: string };
    readonly response: { readonly statusCode: number };
  };
  answered.push(`${request.origin} ${response.statusCode}`);
});

describe("the first webhook of a process", () => {
  it("is not the first request, which would take longer: it has sent some to itself", async () => {
    // Other tests of this process have sent webhooks.
    vi.resetModules();
    const { createSluice } = await import("sluice");
    const { createWebhooks } = await import("sluice/webhooks");
    const sluice = createSluice({ redis: inject("redisUrl"), prefix: sluices.prefix() });
    onTestFinished(() => sluice.close());
    const hooks = createWebhooks(sluice, LOCAL);
    const receiver = await startReceiver();
    await put(hooks, { ...REF, url: receiver.url });

    hooks.worker();
    await hooks.send(EVENT);
    await untilIdle(hooks);

    const toItself = Array.from({ length: 20 }, () => "http://warm-up 200");
    expect(answered).toEqual([...toItself, `${receiver.url} 200`]);
  });
});

describe("the pace of an endpoint", () => {
  it("is its own, and kept by retries and tests too", async () => {
    const hooks = openHooks(sluices, { scheduleMs: [0, 1, 1], breaker: { failures: 1_000 } });
    let count = 0;
    const receiver = await startReceiver({ answer: () => (count++ % 3 === 0 ? 500 : undefined) });
    await put(hooks, { ...REF, url: receiver.url, rate: "20/s" });
    hooks.worker();

    for (let at = 0; at < 20; at++) {
      await hooks.send({ ...EVENT, data: at });
      if (at % 5 === 0) await hooks.test(REF);
    }
    await untilIdle(hooks);

    expect(receiver.arrivals.length).toBeGreaterThanOrEqual(30);
    expect(receiver.worst(1_000)).toBeLessThanOrEqual(27);
  });

  it("is changed while messages wait for it", async () => {
    const hooks = openHooks(sluices);
    const receiver = await startReceiver();
    await put(hooks, { ...REF, url: receiver.url, rate: "1/h" });
    hooks.worker();
    for (let at = 0; at < 10; at++) await hooks.send(EVENT);
    await waitUntil(() => receiver.arrivals.length === 1, "the first has arrived");

    await put(hooks, { ...REF, url: receiver.url, rate: "1000/s" });

    await waitUntil(() => receiver.arrivals.length >= 10, "all have arrived");
    expect(receiver.arrivals).toHaveLength(10);
  });

  it("lets first attempts go before retries and tests", async () => {
    const hooks = openHooks(sluices, { scheduleMs: [0, 1_500] });
    let isWell = false;
    const receiver = await startReceiver({ answer: () => (isWell ? undefined : 500) });
    await put(hooks, { ...REF, url: receiver.url, concurrency: 1 });
    const worker = hooks.worker();
    for (let at = 0; at < 3; at++) await hooks.send({ ...EVENT, id: `old-${at}` });
    await waitUntil(() => receiver.arrivals.length >= 3, "three have failed");
    await worker.close();
    const closedMs = performance.now();
    await waitUntil(() => performance.now() > closedMs + 1_600, "their retries are due");
    isWell = true;
    const before = receiver.arrivals.length;
    await hooks.test(REF);
    for (let at = 0; at < 20; at++) await hooks.send({ ...EVENT, id: `new-${at}` });

    hooks.worker();
    await untilIdle(hooks);

    const ids = receiver.arrivals.slice(before).map(({ headers }) => String(headers["webhook-id"]));
    expect(ids).toHaveLength(24);
    // They were there first, so without a priority they would lead. A job that its worker gave back may come a little late.
    const early = ids.slice(0, 10).filter((id) => !id.startsWith("new-"));
    expect(early.length).toBeLessThanOrEqual(2);
  });
});

describe("limits of one's own", () => {
  it("hold in a process that knew others, after Redis has lost all", async () => {
    const hooks = openHooks(sluices);
    const receiver = await startReceiver();
    for (const rate of ["1/s", "2/s", "1/h"]) await put(hooks, { ...REF, url: receiver.url, rate });
    const worker = hooks.worker();
    await hooks.send(EVENT);
    await waitUntil(() => receiver.arrivals.length === 1, "the worker knows the limits");
    const redis = new Redis(inject("redisUrl"));
    onTestFinished(() => redis.disconnect());
    for (const key of await redis.keys(`${sluices.prefix()}*`)) await redis.unlink(key);

    await put(hooks, { ...REF, url: receiver.url, rate: "1000/s" });
    for (let at = 0; at < 10; at++) await hooks.send(EVENT);

    await waitUntil(() => receiver.arrivals.length >= 11, "all have arrived");
    await worker.close();
    expect(receiver.arrivals).toHaveLength(11);
  });
});

describe("a ceiling", () => {
  it("that is lowered holds for endpoints that had more before, and not for their tenants", async () => {
    const receiver = await startReceiver();
    const other = await startReceiver();
    const before = openHooks(sluices);
    await put(before, { ...REF, url: receiver.url, rate: "1000/s", concurrency: 9 });
    await put(before, { tenant: "globex", id: "a", url: other.url });
    await before.tenants.setLimits({ tenant: "globex", rate: "1000/s" });
    const hooks = openHooks(sluices, { ceiling: { rate: "1/h", concurrency: 2 } });
    for (let at = 0; at < 5; at++) {
      await hooks.send({ ...EVENT, data: at });
      await hooks.send({ ...EVENT, tenant: "globex", data: at });
    }

    hooks.worker();

    await waitUntil(() => other.arrivals.length === 5, "the other tenant has got all");
    await waitUntil(() => receiver.arrivals.length > 0, "one has arrived");
    expect(receiver.arrivals).toHaveLength(1);
    const { limits } = await hooks.queue.bucket.peek({ key: ["acme", "a"] });
    expect(JSON.stringify(limits)).toContain("1/h");
  });
});

describe("the pace of a tenant", () => {
  const AT = ["a", "b", "c"];

  async function putAll(hooks: Webhooks, tenant: string, url: string): Promise<void> {
    for (const id of AT) await put(hooks, { tenant, id, url: `${url}/${tenant}` });
  }

  it("holds for all its endpoints together, and for each tenant by itself", async () => {
    const hooks = openHooks(sluices, { perTenant: { rate: "10/s" } });
    const receivers = await Promise.all([startReceiver(), startReceiver()]);
    await putAll(hooks, "acme", receivers[0].url);
    await putAll(hooks, "globex", receivers[1].url);
    for (let at = 0; at < 10; at++) {
      await hooks.send(EVENT);
      await hooks.send({ ...EVENT, tenant: "globex" });
    }

    hooks.worker();
    await untilIdle(hooks);

    for (const receiver of receivers) {
      expect(receiver.arrivals).toHaveLength(30);
      expect(receiver.worst(1_000)).toBeLessThanOrEqual(15);
    }
    const all = receivers.flatMap(({ arrivals }) => arrivals.map(({ atMs }) => atMs));
    // Together they are faster than one may be.
    expect(
      worstWindow(
        all.toSorted((one, other) => one - other),
        1_000,
      ),
    ).toBeGreaterThan(15);
  });

  it("bounds how many calls it has at once, of which a slow endpoint of its takes all, and none of others'", async () => {
    const hooks = openHooks(sluices, { perTenant: { concurrency: 2 }, timeoutMs: 3_000 });
    const slow = await startHostile("silence");
    const receiver = await startReceiver();
    const url = `http://127.0.0.1:${slow.port}`;
    await putAll(hooks, "acme", url);
    await put(hooks, { ...REF, tenant: "globex", url: receiver.url });
    hooks.worker();
    for (let at = 0; at < 3; at++) await hooks.send(EVENT);
    await waitUntil(() => slow.came === 2, "two calls hang");

    await hooks.send({ ...EVENT, tenant: "globex" });

    await waitUntil(() => receiver.arrivals.length === 1, "the other's has arrived");
    expect(slow.came).toBe(2);
  });

  it("may be its own, and is changed while messages wait for it", async () => {
    const hooks = openHooks(sluices, { perTenant: { rate: "1/h" } });
    const other = openHooks(sluices, { perTenant: { rate: "1/h" } });
    const receiver = await startReceiver();
    await putAll(hooks, "acme", receiver.url);
    await put(hooks, { ...REF, tenant: "globex", url: `${receiver.url}/globex` });
    hooks.worker();
    for (let at = 0; at < 5; at++) {
      await hooks.send(EVENT);
      await hooks.send({ ...EVENT, tenant: "globex" });
    }
    await waitUntil(() => receiver.arrivals.length === 2, "one of each has arrived");

    await other.tenants.setLimits({ tenant: "acme", rate: "1000/s" });

    await waitUntil(() => receiver.arrivals.length >= 16, "all of one have arrived");
    expect(receiver.arrivals.filter(({ path }) => path === "/globex")).toHaveLength(1);
    expect(await hooks.tenants.get({ tenant: "acme" })).toEqual({
      tenant: "acme",
      rate: "1000/s",
      concurrency: undefined,
      endpoints: 3,
    });
    await other.tenants.setLimits({ tenant: "acme" });
    expect(await hooks.tenants.get({ tenant: "acme" })).toMatchObject({ rate: undefined });
  });

  it("ends when it is taken back, where the sender has none for tenants", async () => {
    const hooks = openHooks(sluices);
    const receiver = await startReceiver();
    await put(hooks, { ...REF, url: receiver.url });
    await hooks.tenants.setLimits({ tenant: "acme", rate: "1/h" });
    hooks.worker();
    for (let at = 0; at < 5; at++) await hooks.send(EVENT);
    await waitUntil(() => receiver.arrivals.length === 1, "the first has arrived");

    await hooks.tenants.setLimits({ tenant: "acme" });

    await waitUntil(() => receiver.arrivals.length === 5, "all have arrived");
    expect(await hooks.queue.counts()).toMatchObject({ failed: 0 });
  });

  it("takes turns with that of others, however many endpoints it has", async () => {
    const hooks = openHooks(sluices, { rate: "100/s" });
    const receiver = await startReceiver();
    for (let at = 0; at < 20; at++) {
      await put(hooks, { tenant: "many", id: `e-${at}`, url: `${receiver.url}/many` });
    }
    await put(hooks, { tenant: "one", id: "a", url: `${receiver.url}/one` });
    for (let at = 0; at < 20; at++) await hooks.send({ ...EVENT, tenant: "many" });
    for (let at = 0; at < 20; at++) await hooks.send({ ...EVENT, tenant: "one" });

    hooks.worker({ concurrency: 10 });

    const ofOne = (): number => receiver.arrivals.filter(({ path }) => path === "/one").length;
    await waitUntil(() => ofOne() === 20, "all of one have arrived");
    // Turns by endpoints would let one of 21 be its.
    expect(receiver.arrivals.length).toBeLessThan(150);
  });

  it("is no way around a sender with one tenant, nor bad input", async () => {
    const hooks = openHooks(sluices);
    const single = openHooks(sluices, { name: "single", singleTenant: true });
    const refused = (option: string): object => ({ code: "ERR_INVALID_OPTION", option });

    await expect(hooks.tenants.setLimits({ tenant: "a", rate: "fast" })).rejects.toMatchObject(
      refused("rate"),
    );
    await expect(hooks.tenants.setLimits({ tenant: "a/b" })).rejects.toMatchObject(
      refused("tenant"),
    );
    await expect(single.tenants.get({ tenant: "a" })).rejects.toMatchObject(
      refused("singleTenant"),
    );
    expect(() => openHooks(sluices, { singleTenant: true, perTenant: { rate: "1/s" } })).toThrow(
      expect.objectContaining(refused("perTenant")),
    );
    expect(() => openHooks(sluices, { perTenant: { rate: "fast" } })).toThrow(
      expect.objectContaining(refused("rate")),
    );
  });
});

describe("the operator", () => {
  it("is notified by webhooks of what happens to endpoints", async () => {
    const hooks = openHooks(sluices, { operator: "ops" });
    const gone = await startReceiver({ answer: () => 410 });
    const operator = await startReceiver();
    await put(hooks, { ...REF, url: gone.url });
    await put(hooks, { tenant: "ops", id: "a", url: operator.url, types: ["endpoint.*"] });
    hooks.worker();

    await hooks.send(EVENT);

    await waitUntil(() => operator.arrivals.length === 1, "the operator is told");
    expect(JSON.parse(operator.arrivals[0]!.body)).toMatchObject({
      type: "endpoint.disabled",
      data: { tenant: "acme", endpoint: "a", reason: "gone" },
    });
  });

  it("is not notified about its own endpoints, which would cause an endless loop", async () => {
    const hooks = openHooks(sluices, { operator: "ops" });
    const gone = await startReceiver({ answer: () => 410 });
    await put(hooks, { tenant: "ops", id: "a", url: gone.url });
    await put(hooks, { tenant: "ops", id: "b", url: gone.url, types: ["endpoint.*"] });
    const heard: unknown[] = [];
    hooks.on("disabled", (event) => heard.push(event));
    hooks.worker();

    await hooks.send({ ...EVENT, tenant: "ops" });
    await waitUntil(() => heard.length === 1, "it is disabled");
    await hooks.send({ ...EVENT, tenant: "ops", type: "note.later" });

    const { entries } = await hooks.messages.list({ tenant: "ops" });
    expect(entries.map(({ type }) => type)).toEqual(["note.later", "note.made"]);
  });
});
