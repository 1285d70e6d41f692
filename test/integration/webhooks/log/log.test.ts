import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { Redis } from "ioredis";
import { describe, expect, inject, it, onTestFinished } from "vitest";
import { verify, type ReplayOptions, type Webhooks } from "sluice/webhooks";
import { rejectionOf } from "../../../support/async/rejection.ts";
import { waitUntil } from "../../../support/async/wait-until.ts";
import { realSluices } from "../../../support/setup/real-sluice.ts";
import { openHooks, put, startReceiver, untilIdle } from "../../../support/webhooks/open-hooks.ts";

const sluices = realSluices();
const REF = { tenant: "acme", id: "a" };
const EVENT = { tenant: "acme", type: "note.made", data: { n: 1 } };

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

  it.each<[string, (value: string) => string | Buffer]>([
    ["as Latin-1", (value) => Buffer.from(value, "latin1")],
    ["as JSON", (value) => JSON.stringify(JSON.stringify({ "x-key": value }))],
    ["in a query string", (value) => encodeURIComponent(value)],
    ["as base64", (value) => Buffer.from(`x-key: ${value}`).toString("base64")],
    ["cut", (value) => value.slice(0, 900)],
  ])("has no part of a long header that an endpoint repeats %s", async (_how, repeat) => {
    const hooks = openHooks(sluices, { scheduleMs: [0] });
    const receiver = createServer((request, response) => {
      request.resume();
      response.writeHead(400).end(repeat(request.headers["x-key"] as string));
    });
    await new Promise<void>((resolve) => receiver.listen(0, "127.0.0.1", resolve));
    onTestFinished(() => void receiver.close());
    const url = `http://127.0.0.1:${(receiver.address() as AddressInfo).port}`;
    const secret = `"${"Äÿ\\<q7Zp4Wm9Xk2Vb8>".repeat(150)}`;
    await put(hooks, { ...REF, url, headers: { "x-key": secret } });
    hooks.worker();

    const { id } = await hooks.send(EVENT);
    await untilIdle(hooks);

    const [attempt] = (await hooks.attempts.list({ tenant: "acme", message: id })).entries;
    expect(attempt!.status).toBe(400);
    expect(attempt!.answer).not.toBe("");
    const decoded = Buffer.from(attempt!.answer, "base64").toString("latin1");
    expect(attempt!.answer + decoded).not.toMatch(/q7Zp|4Wm9|Xk2V/);
  });

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
    expect((await hooks.endpoints.get(REF))?.disabled).toMatchObject({ reason: "by hand" });
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
