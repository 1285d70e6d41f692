import { randomUUID } from "node:crypto";
import { Webhook } from "standardwebhooks";
import Stripe from "stripe";
import { describe, expect, inject, it } from "vitest";
import { budget, type Bucket } from "sluice";
import type { Arrival } from "sluice/testing";
import { createKeyPair, createWebhooks, verify } from "sluice/webhooks";
import { waitUntil } from "../../support/async/wait-until.ts";
import { scriptProcesses } from "../../support/children/script-process.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import {
  KEYS,
  LOCAL,
  openHooks,
  put,
  SILENT,
  startReceiver,
} from "../../support/webhooks/open-hooks.ts";

const sluices = realSluices();
const scripts = scriptProcesses();
const idOf = ({ headers }: Arrival): unknown => headers["webhook-id"];

describe("send()", () => {
  it("sends an event to each endpoint of its tenant that wants it, and to no other", async () => {
    const hooks = openHooks(sluices);
    const receiver = await startReceiver();
    const wants: Record<string, object> = {
      all: {},
      invoices: { types: ["invoice.*"] },
      paid: { types: ["invoice.paid", "invoice.voided"] },
      orders: { types: ["order.*"] },
      large: { filter: { amount: { gt: 1_000 }, "customer.country": { in: ["DE", "AT"] } } },
      small: { filter: { amount: { lt: 1_000 } } },
      inherited: { filter: { "constructor.name": { exists: true } } },
    };
    for (const [id, wanted] of Object.entries(wants)) {
      await put(hooks, { tenant: "acme", id, url: `${receiver.url}/${id}`, ...wanted });
    }
    await put(hooks, { tenant: "other", id: "all", url: `${receiver.url}/other` });
    hooks.worker();

    const data = { amount: 1_200, customer: { country: "DE" } };
    const sent = await hooks.send({ tenant: "acme", type: "invoice.paid", data });

    expect(sent.endpoints.toSorted()).toEqual(["all", "invoices", "large", "paid"]);
    await waitUntil(() => receiver.arrivals.length >= 4, "they have arrived");
    await waitUntil(async () => (await hooks.queue.counts()).active === 0, "no more is sent");
    expect(receiver.arrivals.map(({ path }) => path).toSorted()).toEqual([
      "/all",
      "/invoices",
      "/large",
      "/paid",
    ]);
  });

  it("signs what it sends, so that the official library and verify() accept it", async () => {
    const hooks = openHooks(sluices);
    const receiver = await startReceiver();
    const secret = await put(hooks, { tenant: "acme", id: "a", url: receiver.url });
    hooks.worker();

    const data = { text: "Ünïcode ☃ 🎉" };
    const { id } = await hooks.send({ tenant: "acme", type: "note.made", data });

    await waitUntil(() => receiver.arrivals.length === 1, "it has arrived");
    const [{ body, headers }] = receiver.arrivals as [Arrival];
    const payload = new Webhook(secret).verify(body, headers as Record<string, string>);
    expect(payload).toMatchObject({ type: "note.made", data });
    expect(verify({ body, headers, secret })).toMatchObject({ id, payload: { data } });
  });

  it("signs as Stripe does, and with ed25519, for receivers that want it so", async () => {
    const hooks = openHooks(sluices);
    const receiver = await startReceiver();
    const { secret: pair, publicKey } = createKeyPair();
    const of = (id: string): object => ({ tenant: "acme", id, url: `${receiver.url}/${id}` });
    const stripe = "the secret of a receiver like Stripe's";
    await put(hooks, { ...of("stripe"), secret: stripe, signature: "stripe" } as never);
    await put(hooks, { ...of("pair"), secret: pair, headerPrefix: "svix" } as never);
    hooks.worker();

    await hooks.send({ tenant: "acme", type: "note.made", data: { id: "evt_1", object: "event" } });

    await waitUntil(() => receiver.arrivals.length === 2, "both have arrived");
    const to = (path: string): Arrival => receiver.arrivals.find((each) => each.path === path)!;
    const { body, headers } = to("/stripe");
    const signature = headers["stripe-signature"] as string;
    // The receiver knows nothing of Standard Webhooks: it gets the data alone.
    expect(new Stripe("sk_test_none").webhooks.constructEvent(body, signature, stripe)).toEqual({
      id: "evt_1",
      object: "event",
    });
    const { body: text, headers: own } = to("/pair");
    const received = { body: text, headers: own, secret: publicKey, headerPrefix: "svix" };
    expect(verify(received).payload).toMatchObject({
      type: "note.made",
    });
  });

  it("sends an endpoint's own headers, and its data alone to who knows GitHub's webhooks", async () => {
    const hooks = openHooks(sluices);
    const receiver = await startReceiver();
    const headers = { Authorization: "Bearer abc", "User-Agent": "acme" };
    const at = { tenant: "acme", id: "a", url: receiver.url, headers };
    await put(hooks, { ...at, signature: "github", secret: "0123456789abcdef" });
    hooks.worker();

    await hooks.send({ tenant: "acme", type: "invoice.paid", data: { n: 1 } });

    await waitUntil(() => receiver.arrivals.length === 1, "it has arrived");
    const [arrived] = receiver.arrivals as [Arrival];
    expect(arrived.body).toBe('{"n":1}');
    expect(arrived.headers).toMatchObject({
      authorization: "Bearer abc",
      "user-agent": "acme",
      "x-github-event": "invoice.paid",
      "content-type": "application/json",
    });
  });

  it("sends the same bytes and id on each attempt, signed when it leaves", async () => {
    const hooks = openHooks(sluices, { scheduleMs: [0, 1_100, 1_100] });
    let left = 2;
    const receiver = await startReceiver({ answer: () => (left-- > 0 ? 500 : undefined) });
    const secret = await put(hooks, { tenant: "acme", id: "a", url: receiver.url });
    hooks.worker();

    await hooks.send({ tenant: "acme", type: "note.made", data: { at: 1 }, id: "m-1" });

    await waitUntil(() => receiver.arrivals.length === 3, "it has arrived three times");
    expect(new Set(receiver.arrivals.map(({ body }) => body)).size).toBe(1);
    expect(receiver.arrivals.map(idOf)).toEqual(["m-1", "m-1", "m-1"]);
    const times = receiver.arrivals.map(({ headers }) => headers["webhook-timestamp"]);
    expect(new Set(times).size).toBeGreaterThan(1);
    for (const { body, headers } of receiver.arrivals) {
      expect(verify({ body, headers, secret }).id).toBe("m-1");
    }
  });

  it("is not stale by a long wait for its turn", async () => {
    const hooks = openHooks(sluices);
    const receiver = await startReceiver();
    const secret = await put(hooks, { tenant: "acme", id: "a", url: receiver.url });
    await hooks.send({ tenant: "acme", type: "note.made", data: {} });
    const sentS = Math.floor(Date.now() / 1_000);
    await waitUntil(() => Date.now() / 1_000 > sentS + 2, "two seconds are over");

    hooks.worker();

    await waitUntil(() => receiver.arrivals.length === 1, "it has arrived");
    const { body, headers } = receiver.arrivals[0]!;
    expect(Number(headers["webhook-timestamp"])).toBeGreaterThanOrEqual(sentS + 2);
    expect(verify({ body, headers, secret, toleranceMs: 1_500 }).payload).toBeDefined();
  });

  it("sends a message once, however often it is sent with its id, and by two processes at once", async () => {
    const hooks = openHooks(sluices);
    const receiver = await startReceiver();
    for (const id of ["a", "b"]) await put(hooks, { tenant: "acme", id, url: receiver.url });
    hooks.worker();
    const env = {
      REDIS_URL: inject("redisUrl"),
      SLUICE_PREFIX: sluices.prefix(),
      SLUICE_WEBHOOK_KEYS: KEYS,
    };
    const file = "test/support/processes/webhook-sender.ts";

    const senders = [0, 1].map(() => scripts.start(file, { env, args: ["100"] }));

    expect(await Promise.all(senders.map(({ ended }) => ended))).toEqual([0, 0]);
    const answers = senders.flatMap(({ stdout }) => stdout.trim().split("\n"));
    expect(answers.filter((line) => line.endsWith("true"))).toHaveLength(100);
    expect(answers).toHaveLength(200);
    await waitUntil(() => receiver.arrivals.length >= 200, "all have arrived");
    await waitUntil(async () => {
      const { waiting, active, delayed } = await hooks.queue.counts();
      return waiting + active + delayed === 0;
    }, "nothing waits");
    expect(receiver.arrivals).toHaveLength(200);
    expect(new Set(receiver.arrivals.map(idOf)).size).toBe(100);
  });

  it("takes the same id of two tenants for two messages", async () => {
    const hooks = openHooks(sluices);
    const receiver = await startReceiver();
    for (const tenant of ["acme", "other"]) {
      await put(hooks, { tenant, id: "a", url: `${receiver.url}/${tenant}` });
    }
    hooks.worker();

    for (const tenant of ["acme", "other"]) {
      const sent = await hooks.send({ tenant, type: "note.made", data: tenant, id: "m-1" });
      expect(sent.isNew).toBe(true);
    }

    await waitUntil(() => receiver.arrivals.length === 2, "both have arrived");
    for (const { path, body } of receiver.arrivals) {
      expect(JSON.parse(body)).toMatchObject({ data: path.slice(1) });
    }
  });

  it("completes with its id what a sender left that died between the message and its jobs", async () => {
    const hooks = openHooks(sluices);
    const receiver = await startReceiver();
    await put(hooks, { tenant: "acme", id: "a", url: receiver.url });
    const message = { tenant: "acme", type: "note.made", data: 1, id: "m-1" };
    await hooks.queue.pause();
    await hooks.send(message);
    // As if it had died before: its jobs are not there, and nothing says that they were stored.
    await hooks.queue.drain();
    const redis = new (await import("ioredis")).Redis(inject("redisUrl"));
    const key = `${sluices.prefix()}:{webhooks}:hooks:message:acme:m-1`;
    expect(await redis.hdel(key, "sent")).toBe(1);
    await redis.quit();

    const sent = await hooks.send(message);
    await hooks.queue.resume();
    hooks.worker();

    expect(sent).toEqual({ id: "m-1", isNew: false, endpoints: ["a"] });
    await waitUntil(() => receiver.arrivals.length === 1, "it has arrived");
  });

  it("sends to one endpoint whatever it wants, and refuses one that is not there or is disabled", async () => {
    const hooks = openHooks(sluices);
    const receiver = await startReceiver();
    await put(hooks, { tenant: "acme", id: "a", url: receiver.url, types: ["order.*"] });
    await put(hooks, { tenant: "acme", id: "off", url: receiver.url });
    await hooks.endpoints.disable({ tenant: "acme", id: "off", why: "asked for" });
    const event = { tenant: "acme", type: "note.made", data: 1 };

    expect((await hooks.send({ ...event, endpoint: "a" })).endpoints).toEqual(["a"]);
    await expect(hooks.send({ ...event, endpoint: "none" })).rejects.toMatchObject({
      code: "ERR_ENDPOINT_MISSING",
    });
    await expect(hooks.send({ ...event, endpoint: "off" })).rejects.toMatchObject({
      code: "ERR_ENDPOINT_DISABLED",
      reason: "asked for",
      why: "asked for",
    });
    expect((await hooks.send(event)).endpoints).toEqual([]);
  });

  it("sends nothing that is too large, and warns of what some receivers refuse", async () => {
    const warned: string[] = [];
    const logger = { warn: (_facts: object, text: string) => warned.push(text), error: () => {} };
    const hooks = openHooks(sluices, {}, logger);
    const event = { tenant: "acme", type: "note.made" };

    await hooks.send({ ...event, data: "x".repeat(256 * 1_024 - 2) });
    const most = `${"\u20ac".repeat(87_380)}xx`;
    await hooks.send({ ...event, data: most });
    await expect(hooks.send({ ...event, data: `${most}x` })).rejects.toMatchObject({
      option: "data",
      message: expect.stringContaining("262145 bytes"),
    });
    // Of text that is not ASCII, the bytes count.
    await openHooks(sluices, {}, logger).send({ ...event, data: "\u20ac".repeat(7_000) });
    await expect(hooks.send({ ...event, data: "x".repeat(256 * 1_024) })).rejects.toMatchObject({
      option: "data",
    });

    expect(warned.filter((text) => text.includes("20000 bytes"))).toHaveLength(2);
  });

  it.each([
    ["no tenant", { tenant: undefined }, "tenant"],
    ["a tenant with a slash", { tenant: "a/b" }, "tenant"],
    ["a tenant of nothing", { tenant: "" }, "tenant"],
    ["a type with spaces", { type: "note made" }, "type"],
    ["a type with a wildcard", { type: "note.*" }, "type"],
    ["no type", { type: undefined }, "type"],
    ["no data", { data: undefined }, "data"],
    ["data that is no JSON", { data: 1n }, "data"],
    ["data that nobody has awaited", { data: Promise.resolve(1) }, "data"],
    ["an id with a dot", { id: "m.1" }, "id"],
    ["an endpoint that is none", { endpoint: "a/b" }, "endpoint"],
    ["an unknown option", { event: "note.made" }, "event"],
  ])("refuses %s, and stores nothing", async (_what, wrong, option) => {
    const hooks = openHooks(sluices);
    const id = randomUUID();

    const given = { tenant: "acme", type: "note.made", data: 1, id, ...wrong } as never;

    await expect(hooks.send(given)).rejects.toMatchObject({ code: "ERR_INVALID_OPTION", option });
    expect((await hooks.send({ tenant: "acme", type: "note.made", data: 1, id })).isNew).toBe(true);
  });
});

describe("sendBudgetWarnings()", () => {
  const usd = budget({ unit: "usd", amount: 10, per: "year", warnAt: [0.5, 1] });

  it("sends one message for each part of a budget, although several processes draw", async () => {
    const receiver = await startReceiver();
    const buckets: Bucket[] = [];
    for (let process = 0; process < 3; process++) {
      const hooks = openHooks(sluices, { operator: "ops" });
      if (process === 0) await put(hooks, { tenant: "ops", id: "a", url: receiver.url });
      const bucket = sluices.open().bucket("llm", { limits: [usd] });
      // Twice, as a module that is loaded twice does.
      hooks.sendBudgetWarnings(bucket);
      hooks.sendBudgetWarnings(bucket);
      hooks.worker();
      buckets.push(bucket);
    }
    const { resetsAt } = (await buckets[0]!.budgets())[0]!;

    await Promise.all(
      buckets.flatMap((bucket) =>
        [1, 1, 1, 1].map((cost) => bucket.draw({ cost: { usd: cost } }).catch(String)),
      ),
    );

    await waitUntil(() => receiver.arrivals.length >= 2, "both have arrived");
    await waitUntil(async () => (await buckets[0]!.budgets())[0]!.spent === 10, "it is spent");
    const messages = receiver.arrivals.map(({ body }) => JSON.parse(body) as { type: string });
    expect(messages.map(({ type }) => type).toSorted()).toEqual(["budget.spent", "budget.warning"]);
    expect(messages.find(({ type }) => type === "budget.spent")).toMatchObject({
      data: {
        bucket: "llm",
        budget: "10/year usd",
        unit: "usd",
        part: 1,
        spent: 10,
        amount: 10,
        resetsAt: resetsAt.toISOString(),
      },
    });
  });

  it("sends warnings of a key to the tenant that a function names, until it is stopped", async () => {
    const hooks = openHooks(sluices);
    const receiver = await startReceiver();
    for (const tenant of ["acme", "globex", "last"]) {
      await put(hooks, { tenant, id: "a", url: `${receiver.url}/${tenant}` });
    }
    const bucket = sluices.open().bucket("llm", { limits: [usd], perKey: { limits: [usd] } });
    const stop = hooks.sendBudgetWarnings(bucket, {
      tenant: ({ key }) => (typeof key === "string" ? key : undefined),
    });
    hooks.worker();

    await bucket.draw({ key: "acme", cost: { usd: 5 } });
    await waitUntil(() => receiver.arrivals.length === 1, "it has arrived");
    stop();
    await bucket.draw({ key: "globex", cost: { usd: 5 } });
    await hooks.send({ tenant: "last", type: "done", data: {} });
    await waitUntil(() => receiver.arrivals.length === 2, "the last has arrived");

    // The bucket's budget had no tenant, and the warning of globex came after the stop.
    expect(receiver.arrivals.map(({ path }) => path)).toEqual(["/acme", "/last"]);
  });

  it("sends the warning of a process that was killed before it could send it, once", async () => {
    const receiver = await startReceiver();
    const setup = openHooks(sluices, { operator: "ops" });
    await put(setup, { tenant: "ops", id: "a", url: receiver.url });
    const prefix = sluices.prefix();
    const env = { REDIS_URL: inject("redisUrl"), SLUICE_PREFIX: prefix, SLUICE_WEBHOOK_KEYS: KEYS };
    const killed = scripts.start("test/support/processes/dying-spender.ts", { env });
    expect(await killed.ended).toBe(null);
    expect(receiver.arrivals).toHaveLength(0);

    for (let process = 0; process < 2; process++) {
      const sluice = sluices.open({ logger: SILENT });
      const hooks = createWebhooks(sluice, { ...LOCAL, operator: "ops" });
      hooks.sendBudgetWarnings(sluice.bucket("llm", { perKey: { limits: [usd] } }));
      hooks.worker();
    }

    await waitUntil(() => receiver.arrivals.length === 1, "it has arrived");
    await setup.send({ tenant: "ops", type: "done", data: {} });
    await waitUntil(() => receiver.arrivals.length === 2, "the last has arrived");
    const [warning, last] = receiver.arrivals.map(({ body }) => JSON.parse(body) as object);
    expect(warning).toMatchObject({
      type: "budget.warning",
      data: { bucket: "llm", key: "acme", budget: "10/year usd", part: 0.5, spent: 6, amount: 10 },
    });
    expect(last).toMatchObject({ type: "done" });
    expect(idOf(receiver.arrivals[0]!)).toMatch(/^budget_/);
  });

  it("sends the warnings of the last minute to a tenant that is named later", async () => {
    const receiver = await startReceiver();
    const sluice = sluices.open({ logger: SILENT });
    const hooks = createWebhooks(sluice, LOCAL);
    await put(hooks, { tenant: "ops", id: "a", url: receiver.url });
    hooks.worker();
    const bucket = sluice.bucket("llm", { limits: [usd] });
    await bucket.draw({ cost: { usd: 6 } });

    hooks.sendBudgetWarnings(bucket, { tenant: "ops" });

    await waitUntil(() => receiver.arrivals.length === 1, "it has arrived");
    expect(receiver.arrivals[0]!.body).toContain("budget.warning");
  });

  it("logs that a function cannot name a tenant, and goes on with the next warning", async () => {
    const receiver = await startReceiver();
    const logged: string[] = [];
    const log = (_facts: object, text: string): void => void logged.push(text);
    const sluice = sluices.open({ logger: { warn: log, error: log } });
    const hooks = createWebhooks(sluice, LOCAL);
    await put(hooks, { tenant: "ops", id: "a", url: receiver.url });
    hooks.worker();
    const bucket = sluice.bucket("llm", { limits: [usd] });
    hooks.sendBudgetWarnings(bucket, {
      tenant({ part }) {
        if (part === 1) return "ops";
        throw new Error("no such tenant");
      },
    });

    await bucket.draw({ cost: { usd: 10 } });

    await waitUntil(() => receiver.arrivals.length === 1, "the second has arrived");
    expect(receiver.arrivals[0]!.body).toContain("budget.spent");
    expect(logged).toContainEqual(expect.stringMatching(/"llm" was not sent: .*no such tenant/));
  });

  it("refuses what can never work, by name", () => {
    const hooks = openHooks(sluices);
    const single = openHooks(sluices, { singleTenant: true });
    const bucket = sluices.open().bucket("llm", { limits: [usd] });
    const refused: [() => unknown, string][] = [
      [() => hooks.sendBudgetWarnings(bucket), "tenant"],
      [() => hooks.sendBudgetWarnings(bucket, { tenant: "a/b" }), "tenant"],
      [() => hooks.sendBudgetWarnings(bucket, { tenants: "a" } as never), "tenants"],
      [() => hooks.sendBudgetWarnings("llm" as never, { tenant: "ops" }), "bucket"],
      [() => single.sendBudgetWarnings(bucket, { tenant: "ops" }), "tenant"],
      [() => single.sendBudgetWarnings(bucket, { tenant: () => "ops" }), "tenant"],
    ];

    for (const [call, option] of refused) {
      expect(call).toThrow(expect.objectContaining({ code: "ERR_INVALID_OPTION", option }));
    }
    expect(single.sendBudgetWarnings(bucket)).toBeTypeOf("function");
  });
});
