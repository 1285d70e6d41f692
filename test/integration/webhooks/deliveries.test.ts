import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { Redis } from "ioredis";
import { describe, expect, inject, it, onTestFinished } from "vitest";
import type { Arrival } from "sluice/testing";
import type { WebhookEvents, Webhooks } from "sluice/webhooks";
import { waitUntil } from "../../support/async/wait-until.ts";
import { closedUrl } from "../../support/servers/closed-url.ts";
import { startHostile } from "../../support/servers/hostile-endpoints.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { openHooks, put, startReceiver, untilIdle } from "../../support/webhooks/open-hooks.ts";

const sluices = realSluices();
const REF = { tenant: "acme", id: "a" };
const EVENT = { tenant: "acme", type: "note.made", data: 1 };

/** The events of a sender, in their order. */
function hear(hooks: Webhooks): (readonly [keyof WebhookEvents, object])[] {
  const heard: (readonly [keyof WebhookEvents, object])[] = [];
  for (const name of ["failing", "disabled", "recovered", "blocked", "exhausted"] as const) {
    hooks.on(name, (event) => heard.push([name, event]));
  }
  return heard;
}

/** An endpoint that answers as many requests as it is let to. */
async function startSlow(): Promise<{ url: string; held: ServerResponse[]; isOpen: boolean }> {
  const slow = { url: "", held: [] as ServerResponse[], isOpen: false };
  const server = createServer((_request, response) => {
    if (slow.isOpen) response.end();
    else slow.held.push(response);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  slow.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return slow;
}

const pausedMs = async ({ queue }: Webhooks): Promise<number> =>
  (await queue.bucket.peek({ key: ["acme", "a"] })).pausedForMs;

describe("a message", () => {
  it("is tried by the schedule of its endpoint, and is a dead letter after the last wait", async () => {
    const hooks = openHooks(sluices, { breaker: { failures: 100 } });
    const heard = hear(hooks);
    const receiver = await startReceiver({ answer: () => 500 });
    await put(hooks, { ...REF, url: receiver.url, scheduleMs: [0, 50, 100] });
    hooks.worker();

    const { id } = await hooks.send(EVENT);

    await waitUntil(() => heard.length === 1, "it is given up");
    await untilIdle(hooks);
    expect(receiver.arrivals).toHaveLength(3);
    const [first, second, third] = receiver.arrivals.map(({ atMs }) => atMs) as [
      number,
      number,
      number,
    ];
    // A fifth less than the wait at the least.
    expect(second - first).toBeGreaterThanOrEqual(39);
    expect(third - second).toBeGreaterThanOrEqual(79);
    const exhausted = { tenant: "acme", endpoint: "a", message: id };
    expect(heard).toEqual([["exhausted", expect.objectContaining(exhausted)]]);
    const failed = await hooks.queue.failed();
    expect(failed.map(({ reason }) => reason)).toEqual([
      "Not delivered after 3 of 3 attempts. The endpoint failed (status 500).",
    ]);
  });

  it.each([
    ["a redirect", { status: 302, headers: { location: "/else" } }],
    ["a client's error", { status: 404 }],
    ["a server's error", { status: 503 }],
  ])("is tried again after %s", async (_what, answer) => {
    const hooks = openHooks(sluices, { scheduleMs: [0, 1] });
    let left = 1;
    const receiver = await startReceiver({ answer: () => (left-- > 0 ? answer : undefined) });
    await put(hooks, { ...REF, url: receiver.url });
    hooks.worker();

    await hooks.send(EVENT);

    await waitUntil(() => receiver.arrivals.length === 2, "it has arrived twice");
    await untilIdle(hooks);
    expect(receiver.arrivals.map(({ status, path }) => [status, path])).toEqual([
      [answer.status, "/"],
      [200, "/"],
    ]);
  });

  it("ends with its endpoint, while its next attempt waits, also if another has its name by then", async () => {
    const hooks = openHooks(sluices, { scheduleMs: [0, 200] });
    const receiver = await startReceiver({ answer: () => 500 });
    const other = await startReceiver();
    await put(hooks, { ...REF, url: receiver.url });
    hooks.worker();
    await hooks.send(EVENT);
    await waitUntil(async () => (await hooks.queue.counts()).delayed === 1, "a retry waits");

    expect(await hooks.endpoints.remove(REF)).toBe(true);
    await put(hooks, { ...REF, url: other.url });

    await untilIdle(hooks);
    expect([receiver.arrivals.length, other.arrivals.length]).toEqual([1, 0]);
    expect(await hooks.queue.counts()).toMatchObject({ failed: 0 });
  });

  it("waits no more, by its log, once its endpoint is removed", async () => {
    const hooks = openHooks(sluices);
    const receiver = await startReceiver();
    const kept = { tenant: REF.tenant, id: "kept" };
    for (const endpoint of [REF, kept]) await put(hooks, { ...endpoint, url: receiver.url });
    const { id } = await hooks.send(EVENT);

    await hooks.endpoints.remove(REF);

    const message = await hooks.messages.get({ tenant: REF.tenant, id });
    const { entries } = await hooks.messages.list({ tenant: REF.tenant });
    const states = { [REF.id]: "removed", [kept.id]: "waiting" };
    expect(message?.endpoints).toEqual(states);
    expect(entries.map(({ endpoints }) => endpoints)).toEqual([states]);
  });

  it.each([{ ordered: false }, { ordered: true }])(
    "waits no more once its endpoint is removed, although another of the same id follows: %j",
    async (options) => {
      const hooks = openHooks(sluices, { scheduleMs: [0, 1_000] });
      const receiver = await startReceiver({ answer: () => 503 });
      await put(hooks, { ...REF, url: receiver.url, ...options });
      hooks.worker();
      const tried = await hooks.send(EVENT);
      await waitUntil(async () => (await hooks.queue.counts()).delayed === 1, "a retry waits");
      await hooks.queue.pause();
      const untried = await hooks.send(EVENT);

      await hooks.endpoints.remove(REF);
      await put(hooks, { ...REF, url: receiver.url, ...options });
      await hooks.queue.resume();

      const stateOf = async (id: string) =>
        (await hooks.messages.get({ tenant: REF.tenant, id }))?.endpoints[REF.id];
      await untilIdle(hooks);
      expect([await stateOf(tried.id), await stateOf(untried.id)]).toEqual(["removed", "removed"]);
      expect(receiver.arrivals).toHaveLength(1);
      await hooks.replay({ tenant: REF.tenant, message: untried.id });
      await waitUntil(() => receiver.arrivals.length === 2, "a replay is sent");
    },
  );

  it("of an id that was used before is not marked by a job of the earlier message", async () => {
    const hooks = openHooks(sluices, { scheduleMs: [0, 1_000] });
    const receiver = await startReceiver({ answer: () => 503 });
    await put(hooks, { ...REF, url: receiver.url });
    hooks.worker();
    const { id } = await hooks.send(EVENT);
    await waitUntil(async () => (await hooks.queue.counts()).delayed === 1, "a retry waits");
    await hooks.queue.pause();

    await hooks.expunge({ tenant: REF.tenant, message: id });
    await hooks.endpoints.remove(REF);
    await put(hooks, { ...REF, url: receiver.url, types: ["another.type"] });
    expect((await hooks.send({ ...EVENT, id })).endpoints).toEqual([]);
    await hooks.queue.resume();

    await untilIdle(hooks);
    expect((await hooks.messages.get({ tenant: REF.tenant, id }))?.endpoints).toEqual({});
  });

  it("is not tried again after 410, and its endpoint is disabled", async () => {
    const hooks = openHooks(sluices);
    const heard = hear(hooks);
    const receiver = await startReceiver({ answer: () => 410 });
    await put(hooks, { ...REF, url: receiver.url });
    hooks.worker();

    await hooks.send(EVENT);

    await untilIdle(hooks);
    await waitUntil(() => heard.length === 2, "it is heard");
    expect(heard[0]).toEqual([
      "disabled",
      { tenant: "acme", endpoint: "a", reason: "gone", why: "gone" },
    ]);
    expect((await hooks.endpoints.get(REF))?.disabled).toMatchObject({
      reason: "gone",
      why: "gone",
    });
    expect((await hooks.send(EVENT)).endpoints).toEqual([]);
    expect(receiver.arrivals).toHaveLength(1);
  });

  it("that answers 410 says nothing of an endpoint that was changed while it was under way", async () => {
    const hooks = openHooks(sluices, { scheduleMs: [0] });
    const heard = hear(hooks);
    const slow = await startSlow();
    await put(hooks, { ...REF, url: slow.url });
    hooks.worker();
    await hooks.send(EVENT);
    await waitUntil(() => slow.held.length === 1, "a request is under way");

    await put(hooks, { ...REF, url: "https://example.com/else" });
    slow.held[0]!.writeHead(410).end();
    await untilIdle(hooks);

    expect((await hooks.endpoints.get(REF))?.disabled).toBeUndefined();
    expect(heard.map(([name]) => name)).toEqual(["exhausted"]);
  });

  it("fails, and is kept, where its endpoint was disabled before its turn", async () => {
    const hooks = openHooks(sluices);
    const receiver = await startReceiver();
    await put(hooks, { ...REF, url: receiver.url });
    await hooks.send(EVENT);
    await hooks.endpoints.disable(REF);
    hooks.worker();

    await waitUntil(async () => (await hooks.queue.counts()).failed === 1, "it is a dead letter");

    expect((await hooks.queue.failed())[0]?.reason).toContain("disabled (by hand)");
    expect(receiver.arrivals).toEqual([]);
  });

  it("counts no attempt when the sender itself is at fault", async () => {
    const away = (): Promise<never> =>
      Promise.reject(Object.assign(new Error("no resolver"), { code: "EAI_AGAIN" }));
    let resolve: (host: string) => Promise<readonly string[]> = away;
    const options = { scheduleMs: [0], resolve: (host: string) => resolve(host) };
    const hooks = openHooks(sluices, options);
    const receiver = await startReceiver();
    await put(hooks, { ...REF, url: receiver.url.replace("127.0.0.1", "hooks.example.com") });
    hooks.worker();
    await hooks.send(EVENT);
    await waitUntil(async () => (await hooks.queue.counts()).delayed === 1, "it waits");

    resolve = () => Promise.resolve(["127.0.0.1"]);

    await waitUntil(() => receiver.arrivals.length === 1, "it has arrived");
    await untilIdle(hooks);
    expect(await hooks.queue.counts()).toMatchObject({ failed: 0 });
  });

  it("may go to private addresses and without TLS only where the log says so", () => {
    const warned: string[] = [];
    const logger = { warn: (_facts: object, text: string) => warned.push(text), error: () => {} };

    openHooks(sluices, { allow: undefined, http: undefined }, logger);
    expect(warned).toEqual([]);
    openHooks(sluices, { allow: ["10.0.0.0/8"], http: true }, logger);

    expect(warned).toEqual([
      expect.stringContaining("private addresses: 10.0.0.0/8"),
      expect.stringContaining("without TLS"),
    ]);
  });

  it("does not say to its tenant where an address is that is blocked, but to the operator", async () => {
    const warned: string[] = [];
    const logger = { warn: (_facts: object, text: string) => warned.push(text), error: () => {} };
    const hooks = openHooks(sluices, { allow: [], scheduleMs: [0] }, logger);
    const heard = hear(hooks);
    const receiver = await startReceiver();
    // It was put while the sender allowed the address.
    await put(openHooks(sluices), { ...REF, url: receiver.url });
    hooks.worker();

    await hooks.send(EVENT);

    await waitUntil(() => heard.length === 2, "it is heard");
    expect(heard[0]).toEqual(["blocked", expect.objectContaining({ endpoint: "a" })]);
    expect(heard[1]).toEqual([
      "exhausted",
      expect.objectContaining({ reason: "The endpoint could not be reached." }),
    ]);
    expect(warned.some((text) => text.includes("127.0.0.1"))).toBe(true);
    expect(receiver.arrivals).toEqual([]);
  });
});

describe("an endpoint that asks for less", () => {
  it.each([
    ["429 with Retry-After", { status: 429, headers: { "retry-after": "1" } }, 950],
    ["503 with Retry-After", { status: 503, headers: { "retry-after": "1" } }, 950],
    ["502", { status: 502 }, 950],
    ["504", { status: 504 }, 950],
  ])("by %s gets nothing for that time, of other messages neither", async (_what, answer, ms) => {
    const hooks = openHooks(sluices, { scheduleMs: [0, 1] });
    let left = 1;
    const receiver = await startReceiver({ answer: () => (left-- > 0 ? answer : undefined) });
    await put(hooks, { ...REF, url: receiver.url });
    hooks.worker();
    await hooks.send(EVENT);
    await waitUntil(async () => (await pausedMs(hooks)) > 0, "it is left alone");

    await hooks.send(EVENT);

    await waitUntil(() => receiver.arrivals.length === 3, "all have arrived");
    const [first, second] = receiver.arrivals as [Arrival, Arrival, Arrival];
    expect(second.atMs - first.atMs).toBeGreaterThanOrEqual(ms);
  });

  it("is left alone no longer than the ceiling, whatever it asks for", async () => {
    const hooks = openHooks(sluices, { scheduleMs: [0, 1], maxRetryAfterMs: 1_000 });
    const answer = { status: 429, headers: { "retry-after": "86400" } };
    let left = 1;
    const receiver = await startReceiver({ answer: () => (left-- > 0 ? answer : undefined) });
    await put(hooks, { ...REF, url: receiver.url });
    hooks.worker();

    await hooks.send(EVENT);

    await waitUntil(() => receiver.arrivals.length === 2, "it has arrived");
    expect(receiver.arrivals.map(({ status }) => status)).toEqual([429, 200]);
  });
});

describe("an endpoint that fails", () => {
  it("is left alone after some failures, tried by one message at a time, and then gets all", async () => {
    const hooks = openHooks(sluices, {
      scheduleMs: [0, ...Array<number>(30).fill(1)],
      breaker: { failures: 3, coolMs: 300 },
      perEndpoint: { concurrency: 1 },
    });
    const heard = hear(hooks);
    let isWell = false;
    const receiver = await startReceiver({ answer: () => (isWell ? undefined : 500) });
    await put(hooks, { ...REF, url: receiver.url });
    hooks.worker();
    for (let at = 0; at < 6; at++) await hooks.send({ ...EVENT, id: `m-${at}` });
    await waitUntil(() => receiver.arrivals.length >= 5, "it was tried twice since");

    const [third, fourth, fifth] = receiver.arrivals.slice(2, 5).map(({ atMs }) => atMs) as [
      number,
      number,
      number,
    ];
    isWell = true;

    await untilIdle(hooks);
    expect(fourth - third).toBeGreaterThanOrEqual(290);
    expect(fifth - fourth).toBeGreaterThanOrEqual(590);
    const arrived = receiver.arrivals.filter(({ status }) => status === 200);
    expect(new Set(arrived.map(({ headers }) => headers["webhook-id"])).size).toBe(6);
    expect(heard.at(-1)).toEqual(["recovered", { tenant: "acme", endpoint: "a" }]);
  });

  it("is tried by one message at a time, of two replicas, however long one may take there", async () => {
    const breaker = { failures: 1, coolMs: 1 };
    const options = { scheduleMs: [0], breaker, timeoutMs: 100 };
    const hooks = openHooks(sluices, options);
    const slow = await startSlow();
    await put(hooks, { ...REF, url: slow.url, timeoutMs: 30_000 });
    for (const replica of [hooks, openHooks(sluices, options)]) replica.worker();
    await hooks.send(EVENT);
    await waitUntil(() => slow.held.length === 1, "it was asked");
    slow.held[0]!.writeHead(500).end();
    await waitUntil(async () => (await hooks.queue.counts()).failed === 1, "it has failed");
    await hooks.send(EVENT);
    await waitUntil(() => slow.held.length === 2, "a message tries whether it is back");

    await hooks.send(EVENT);

    await waitUntil(async () => (await pausedMs(hooks)) > 20_000, "the next one is told");
    expect(slow.held).toHaveLength(2);
    await waitUntil(async () => {
      const { waiting, active } = await hooks.queue.counts();
      return waiting === 1 && active === 1;
    }, "it holds no place, and waits in its line");
    slow.isOpen = true;
    slow.held[1]!.end();
    await untilIdle(hooks);
  });

  it("gets messages at once when it is enabled by hand, however long it was to be left alone", async () => {
    const hooks = openHooks(sluices, {
      scheduleMs: [0],
      breaker: { failures: 1, coolMs: 300_000 },
    });
    let left = 1;
    const receiver = await startReceiver({ answer: () => (left-- > 0 ? 500 : undefined) });
    await put(hooks, { ...REF, url: receiver.url });
    hooks.worker();
    await hooks.send(EVENT);
    await waitUntil(async () => (await hooks.queue.counts()).failed === 1, "it has failed");

    await hooks.endpoints.enable(REF);
    await hooks.send(EVENT);

    await waitUntil(() => receiver.arrivals.length === 2, "it gets messages again");
    expect(await hooks.endpoints.enable(REF)).toBe(false);
  });

  it("is warned of, and disabled after the time; and well again once it is enabled", async () => {
    const hooks = openHooks(sluices, {
      scheduleMs: [0, ...Array.from({ length: 49 }, () => 2_000)],
      breaker: { failures: 1_000 },
      disableAfterMs: 60_000,
    });
    const heard = hear(hooks);
    let isWell = false;
    const receiver = await startReceiver({ answer: () => (isWell ? undefined : 500) });
    await put(hooks, { ...REF, url: receiver.url });
    hooks.worker();
    await hooks.send(EVENT);
    await waitUntil(() => receiver.arrivals.length === 1, "it was tried");
    const redis = new Redis(inject("redisUrl"));
    onTestFinished(() => redis.disconnect());
    const health = `${sluices.prefix()}:{webhooks}:hooks:health:acme:a`;
    await waitUntil(async () => (await redis.hget(health, "since")) !== null, "it is noted");

    // It fails since long ago.
    for (const shareOfAll of [0.55, 0.75, 0.95, 1.05]) {
      const before = heard.length;
      await redis.hset(health, "since", Date.now() - Math.round(60_000 * shareOfAll));
      await waitUntil(() => heard.length > before, "it is heard");
    }

    await waitUntil(() => heard.some(([name]) => name === "disabled"), "it is disabled");
    const names = heard.slice(0, 4).map(([name]) => name);
    expect(names.join(" ")).toBe("failing failing failing disabled");
    expect((await hooks.endpoints.get(REF))?.disabled).toMatchObject({ reason: "failing" });
    isWell = true;
    expect(await hooks.endpoints.enable(REF)).toBe(true);
    const before = receiver.arrivals.length;
    await hooks.send(EVENT);
    await waitUntil(() => receiver.arrivals.length > before, "it gets messages again");
    expect(await hooks.endpoints.enable(REF)).toBe(false);
  });

  it("delays no other endpoint, whether it hangs or is unreachable", async () => {
    const hooks = openHooks(sluices, { perEndpoint: { concurrency: 2 }, timeoutMs: 30_000 });
    const slow = await startSlow();
    const receiver = await startReceiver();
    await put(hooks, { ...REF, id: "slow", url: slow.url });
    await put(hooks, { ...REF, id: "away", url: await closedUrl() });
    await put(hooks, { ...REF, id: "well", url: receiver.url });
    hooks.worker({ concurrency: 5 });

    for (let at = 0; at < 50; at++) await hooks.send({ ...EVENT, data: at });

    await waitUntil(() => receiver.arrivals.length === 50, "the one that is well has got all");
    expect(slow.held.length).toBe(2);
    slow.isOpen = true;
    for (const response of slow.held) response.end();
  });

  it("by timeouts is given up at its own time", async () => {
    const hooks = openHooks(sluices, { scheduleMs: [0] });
    const heard = hear(hooks);
    const drip = await startHostile("a slow drip");
    await put(hooks, { ...REF, url: `http://127.0.0.1:${drip.port}/`, timeoutMs: 100 });
    hooks.worker();

    await hooks.send(EVENT);

    await waitUntil(() => heard.length === 1, "it is given up");
    expect(heard[0]![1]).toMatchObject({ reason: expect.stringContaining("in time") });
  });
});
