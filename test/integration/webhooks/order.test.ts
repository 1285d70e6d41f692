import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { Redis } from "ioredis";
import { describe, expect, inject, it, onTestFinished } from "vitest";
import type { Codec } from "sluice/codec";
import type { Arrival, FakeDownstream } from "sluice/testing";
import { verify, type PutEndpoint, type Webhooks } from "sluice/webhooks";
import { deferred } from "../../support/async/deferred.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { scriptProcesses } from "../../support/children/script-process.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import {
  KEYS,
  openHooks,
  put,
  startReceiver,
  untilIdle,
} from "../../support/webhooks/open-hooks.ts";

const sluices = realSluices();
const scripts = scriptProcesses();
const REF = { tenant: "acme", id: "a" };
const EVENT = { tenant: "acme", type: "note.made" };

const idOf = ({ headers }: Arrival): string => String(headers["webhook-id"]);
const idsOf = ({ arrivals }: FakeDownstream): string[] => arrivals.map(idOf);
const ids = (count: number): string[] => Array.from({ length: count }, (_each, at) => `m-${at}`);

/** Sends messages without waiting for one before the next. */
async function sendAll(hooks: Webhooks, all: readonly string[]): Promise<void> {
  await Promise.all(all.map((id, n) => hooks.send({ ...EVENT, id, data: { n } })));
}

async function putOrdered(
  hooks: Webhooks,
  url: string,
  more: Partial<PutEndpoint> = {},
): Promise<string> {
  return put(hooks, { ...REF, url, ordered: true, ...more });
}

/** A receiver that answers each call when Redis has answered it twice, and counts the calls that it has at once. */
async function startMeeting() {
  const redis = new Redis(inject("redisUrl"));
  onTestFinished(() => redis.disconnect());
  const ids: string[] = [];
  let [running, most] = [0, 0];
  const server = createServer((request, response) => {
    most = Math.max(most, ++running);
    ids.push(String(request.headers["webhook-id"]));
    request.resume();
    void redis
      .ping()
      .then(() => redis.ping())
      .then(() => {
        running -= 1;
        response.end();
      });
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  onTestFinished(() => {
    server.close();
    server.closeAllConnections();
  });
  const { port } = server.address() as AddressInfo;
  return { url: `http://127.0.0.1:${port}`, ids, most: () => most };
}

/** Of the messages in their order, those that came again. */
function withoutRepeats(all: readonly string[]): string[] {
  return all.filter((id, at) => id !== all[at - 1]);
}

describe("an ordered endpoint", () => {
  it("gets messages in the order in which they were sent, one at a time, of several processes", async () => {
    const hooks = openHooks(sluices);
    const receiver = await startMeeting();
    await putOrdered(hooks, receiver.url);
    for (let count = 0; count < 3; count++) openHooks(sluices).worker();

    await sendAll(hooks, ids(60));

    await waitUntil(() => receiver.ids.length >= 60, "all have arrived");
    expect(receiver.ids).toEqual(ids(60));
    expect(receiver.most()).toBe(1);
    const isEmpty = async (): Promise<boolean> => (await hooks.endpoints.get(REF))?.waiting === 0;
    await waitUntil(isEmpty, "nothing waits in its line");
  });

  it("gets them in that order, however long it took to find who wants one", async () => {
    const hooks = openHooks(sluices);
    const receiver = await startReceiver();
    await putOrdered(hooks, receiver.url);
    // Of the first, this process has to read what the tenant has; an endpoint that is named is found sooner.
    const named = { ...EVENT, data: 1, endpoint: "a" };

    await Promise.all([
      hooks.send({ ...EVENT, id: "m-0", data: 1 }),
      hooks.send({ ...named, id: "m-1" }),
      hooks.send({ ...named, endpoint: "none" }).catch(() => undefined),
      hooks.send({ ...EVENT, id: "m-2", data: 1 }),
    ]);

    hooks.worker();
    await waitUntil(() => receiver.arrivals.length === 3, "all have arrived");
    expect(idsOf(receiver)).toEqual(ids(3));
  });

  it("gets them in that order, however long it took to encode one", async () => {
    const isSlow = deferred();
    const codec: Codec = {
      name: "test",
      async encode(bytes) {
        if (Buffer.from(bytes).includes("slow")) await isSlow.promise;
        return undefined;
      },
      decode: (bytes) => bytes,
    };
    const hooks = openHooks(sluices, { codec });
    const receiver = await startReceiver();
    await putOrdered(hooks, receiver.url);

    const sends = [
      hooks.send({ ...EVENT, id: "m-0", data: "slow" }),
      hooks.send({ ...EVENT, id: "m-1", data: "fast" }),
    ];
    await put(hooks, { ...REF, id: "b", url: receiver.url, types: ["none"] });
    isSlow.resolve();
    await Promise.all(sends);

    hooks.worker();
    await waitUntil(() => receiver.arrivals.length === 2, "all have arrived");
    expect(idsOf(receiver)).toEqual(ids(2));
  });

  it("gets nothing else while its first message is tried again, and others go on", async () => {
    const hooks = openHooks(sluices, { scheduleMs: [0, 300, 300], breaker: { failures: 100 } });
    let left = 2;
    const receiver = await startReceiver({ answer: () => (left-- > 0 ? 500 : undefined) });
    const other = await startReceiver();
    await putOrdered(hooks, receiver.url);
    await put(hooks, { ...REF, id: "b", url: other.url });
    hooks.worker();

    await sendAll(hooks, ids(5));

    await waitUntil(() => other.arrivals.length === 5, "the other has all");
    expect(new Set(idsOf(receiver))).toEqual(new Set(["m-0"]));
    await waitUntil(() => receiver.arrivals.length === 7, "all have arrived");
    expect(idsOf(receiver)).toEqual(["m-0", "m-0", ...ids(5)]);
    await untilIdle(hooks);
    const { entries } = await hooks.attempts.list({ tenant: "acme", endpoint: "a" });
    expect(entries.map(({ message, attempt }) => `${message} ${attempt}`).toReversed()).toEqual([
      "m-0 1",
      "m-0 2",
      "m-0 3",
      ...ids(5)
        .slice(1)
        .map((id) => `${id} 1`),
    ]);
  });

  it("goes on with the next message when one is given up, and gets that again behind the others", async () => {
    const hooks = openHooks(sluices, { scheduleMs: [0, 1], breaker: { failures: 100 } });
    let isWell = false;
    const receiver = await startReceiver({
      answer: ({ headers }) =>
        !isWell && /m-[12]$/.test(String(headers["webhook-id"])) ? 500 : 200,
    });
    await putOrdered(hooks, receiver.url);
    const heard: string[] = [];
    hooks.on("exhausted", ({ message }) => heard.push(message));
    hooks.worker();
    await sendAll(hooks, ids(4));
    await untilIdle(hooks);

    expect(withoutRepeats(idsOf(receiver))).toEqual(ids(4));
    expect(heard).toEqual(["m-1", "m-2"]);
    const failed = await hooks.queue.failed();
    expect(failed.map(({ reason }) => reason).toSorted()).toEqual([
      expect.stringContaining("Message m-1: Not delivered after 2 of 2 attempts."),
      expect.stringContaining("Message m-2: Not delivered after 2 of 2 attempts."),
    ]);
    isWell = true;
    expect(await hooks.recover({ tenant: "acme", endpoint: "a" })).toBe(2);
    await waitUntil(() => receiver.arrivals.length === 8, "they have arrived");
    expect(idsOf(receiver).slice(6)).toEqual(["m-1", "m-2"]);
  });

  it("gets replays in the order of their messages, behind pending ones", async () => {
    const hooks = openHooks(sluices);
    const receiver = await startReceiver();
    await putOrdered(hooks, receiver.url);
    const worker = hooks.worker();
    await sendAll(hooks, ids(20));
    await waitUntil(() => receiver.arrivals.length === 20, "all have arrived");
    await worker.close();
    await hooks.send({ ...EVENT, id: "new", data: 1 });

    expect(await hooks.replay({ tenant: "acme", since: 0, by: "Ann" })).toBe(21);
    expect(await hooks.endpoints.get(REF)).toMatchObject({ waiting: 22 });
    hooks.worker();

    await waitUntil(() => receiver.arrivals.length === 42, "all have arrived again");
    expect(idsOf(receiver).slice(20)).toEqual(["new", ...ids(20), "new"]);
    const { entries } = await hooks.attempts.list({ tenant: "acme", message: "m-0" });
    expect(entries.map(({ purpose, by }) => [purpose, by])).toEqual([
      ["replay", "Ann"],
      ["send", undefined],
    ]);
  });

  it("gets all in order, also when workers are killed in the middle of it", async () => {
    const hooks = openHooks(sluices);
    const receiver = await startReceiver({ latencyMs: 20 });
    await putOrdered(hooks, receiver.url);
    const env = {
      REDIS_URL: inject("redisUrl"),
      SLUICE_PREFIX: sluices.prefix(),
      SLUICE_WEBHOOK_KEYS: KEYS,
    };
    const file = "test/support/processes/webhook-worker.ts";
    const start = (): ReturnType<typeof scripts.start> => scripts.start(file, { env });
    let workers = [start(), start()];
    await sendAll(hooks, ids(80));

    for (let kills = 0; kills < 2; kills++) {
      const before = receiver.arrivals.length;
      await waitUntil(() => receiver.arrivals.length > before + 10, "it goes on");
      // One of them has a request under way.
      for (const worker of workers) worker.signal("SIGKILL");
      await Promise.all(workers.map(({ ended }) => ended));
      workers = [start(), start()];
    }

    await waitUntil(() => idsOf(receiver).includes("m-79"), "the last has arrived");
    expect(withoutRepeats(idsOf(receiver))).toEqual(ids(80));
    // What was under way when a worker was killed may come again.
    expect(receiver.arrivals.length).toBeLessThanOrEqual(82);
  });

  it("gets batches, the same on each attempt", async () => {
    const hooks = openHooks(sluices, { scheduleMs: [0, 1, 1], breaker: { failures: 100 } });
    let left = 2;
    const receiver = await startReceiver({ answer: () => (left-- > 0 ? 500 : undefined) });
    const secret = await putOrdered(hooks, receiver.url, { batch: 4 });
    await sendAll(hooks, ids(10));

    hooks.worker();
    await waitUntil(() => receiver.arrivals.length >= 3, "the first batch has arrived");
    await untilIdle(hooks);

    expect(new Set(receiver.arrivals.slice(0, 3).map(({ body }) => body)).size).toBe(1);
    const batches = receiver.arrivals.slice(2).map(({ body, headers }) => {
      const { payload } = verify({ body, headers, secret });
      expect(payload).toMatchObject({ type: "webhook.batch" });
      return (payload as { data: { id: string; type: string; data: { n: number } }[] }).data;
    });
    expect(batches.map(({ length }) => length)).toEqual([4, 4, 2]);
    expect(batches.flat().map(({ id }) => id)).toEqual(ids(10));
    expect(batches.flat().map(({ type, data }) => `${type} ${data.n}`)).toEqual(
      ids(10).map((_id, n) => `note.made ${n}`),
    );
    for (const id of ["m-0", "m-3"]) {
      const { entries } = await hooks.attempts.list({ tenant: "acme", message: id });
      expect(entries.map(({ outcome }) => outcome)).toEqual([
        "success",
        "server-error",
        "server-error",
      ]);
      expect((await hooks.messages.get({ tenant: "acme", id }))?.endpoints).toEqual({
        a: "delivered",
      });
    }
  });

  it("gets the rest of a batch of which one message was expunged before it was tried again", async () => {
    const hooks = openHooks(sluices, { scheduleMs: [0, 500], breaker: { failures: 100 } });
    let left = 1;
    const receiver = await startReceiver({ answer: () => (left-- > 0 ? 500 : undefined) });
    await putOrdered(hooks, receiver.url, { batch: 3 });
    await sendAll(hooks, ids(4));
    hooks.worker();
    await waitUntil(async () => {
      const { entries } = await hooks.attempts.list({ tenant: "acme", message: "m-2" });
      return entries.length === 1;
    }, "the first attempt has failed");

    await hooks.expunge({ tenant: "acme", message: "m-1" });

    await waitUntil(() => receiver.arrivals.length === 3, "both batches have arrived");
    const batches = receiver.arrivals.map(({ body }) =>
      (JSON.parse(body) as { data: { id: string }[] }).data.map(({ id }) => id),
    );
    expect(batches).toEqual([["m-0", "m-1", "m-2"], ["m-0", "m-2"], ["m-3"]]);
  });

  it("gets its pending messages in order after it becomes unordered, and later ones beside them", async () => {
    const hooks = openHooks(sluices);
    const receiver = await startReceiver();
    await putOrdered(hooks, receiver.url);
    await sendAll(hooks, ids(5));
    await put(hooks, { ...REF, url: receiver.url });
    await hooks.send({ ...EVENT, id: "later", data: 1 });

    hooks.worker();

    await waitUntil(() => receiver.arrivals.length === 6, "all have arrived");
    expect(idsOf(receiver).filter((id) => id !== "later")).toEqual(ids(5));
  });

  it("gets batches of no more than a message may have, and their data alone where it wants that", async () => {
    const hooks = openHooks(sluices);
    const receiver = await startReceiver();
    const secret = "a secret of sixteen";
    await putOrdered(hooks, receiver.url, { batch: 10, signature: "github", secret });
    for (const id of ids(4)) await hooks.send({ ...EVENT, id, data: id + "x".repeat(100_000) });

    hooks.worker();

    await waitUntil(() => receiver.arrivals.length === 2, "two batches have arrived");
    const data = receiver.arrivals.map(({ body }) => JSON.parse(body) as string[]);
    expect(data.map((texts) => texts.map((text) => text.slice(0, 3)))).toEqual([
      ["m-0", "m-1"],
      ["m-2", "m-3"],
    ]);
  });

  it("waits for no message of a line that was longer than what is removed at a time", async () => {
    const hooks = openHooks(sluices);
    await putOrdered(hooks, "http://127.0.0.1:1/");
    const all = ids(2_100);
    await sendAll(hooks, all);

    expect(await hooks.endpoints.remove(REF)).toBe(true);
    expect(await hooks.endpoints.remove(REF)).toBe(false);
    await putOrdered(hooks, "http://127.0.0.1:1/");

    const states = await Promise.all(
      [all[0]!, all[1_500]!, all.at(-1)!].map(async (id) => {
        const message = await hooks.messages.get({ tenant: REF.tenant, id });
        return message?.endpoints[REF.id];
      }),
    );
    expect(states).toEqual(["removed", "removed", "removed"]);
  });

  it("fails its pending messages when it is disabled, and gets them in order when it is recovered", async () => {
    const hooks = openHooks(sluices);
    const receiver = await startReceiver();
    await putOrdered(hooks, receiver.url);
    await sendAll(hooks, ids(10));
    await hooks.endpoints.disable(REF);
    const worker = hooks.worker();
    await untilIdle(hooks);
    expect(receiver.arrivals).toEqual([]);
    expect(await hooks.queue.counts()).toMatchObject({ failed: 10 });

    expect(await hooks.recover({ tenant: "acme", endpoint: "a" })).toBe(10);
    await hooks.endpoints.enable(REF);

    await waitUntil(() => receiver.arrivals.length === 10, "all have arrived");
    expect(idsOf(receiver)).toEqual(ids(10));
    await worker.close();
  });

  it("continues when it is enabled, or sent to, although a tool has removed its queued messages", async () => {
    const hooks = openHooks(sluices);
    const receiver = await startReceiver();
    await putOrdered(hooks, receiver.url);
    await sendAll(hooks, ids(3));
    await hooks.queue.drain();
    hooks.worker();

    await hooks.endpoints.enable(REF);

    await waitUntil(() => receiver.arrivals.length === 3, "all have arrived");
    expect(idsOf(receiver)).toEqual(ids(3));
  });

  it("passes over what was expunged, and ends with its endpoint", async () => {
    const hooks = openHooks(sluices);
    const receiver = await startReceiver();
    await putOrdered(hooks, receiver.url);
    await sendAll(hooks, ids(4));
    await hooks.expunge({ tenant: "acme", message: "m-1" });
    hooks.worker();
    await waitUntil(() => receiver.arrivals.length === 3, "the others have arrived");
    expect(idsOf(receiver)).toEqual(["m-0", "m-2", "m-3"]);
    await hooks.queue.pause();
    await sendAll(hooks, ["late-0", "late-1"]);

    await hooks.endpoints.remove(REF);
    await putOrdered(hooks, receiver.url);
    await hooks.queue.resume();
    await hooks.send({ ...EVENT, id: "fresh", data: 1 });

    await waitUntil(() => receiver.arrivals.length === 4, "what is for the new one has arrived");
    await untilIdle(hooks);
    expect(idsOf(receiver).slice(3)).toEqual(["fresh"]);
  });

  it("goes on where a worker died between the end of one step and the job of the next", async () => {
    const hooks = openHooks(sluices);
    const receiver = await startReceiver();
    await putOrdered(hooks, receiver.url);
    await sendAll(hooks, ids(3));
    const redis = new Redis(inject("redisUrl"));
    onTestFinished(() => redis.disconnect());
    // The step has ended, and its job is still there: nothing says that the next one was stored.
    await redis.hincrby(`${sluices.prefix()}:{webhooks}:hooks:line:state:acme:a`, "step", 1);

    hooks.worker();

    await waitUntil(() => receiver.arrivals.length === 3, "all have arrived");
    expect(idsOf(receiver)).toEqual(ids(3));
  });

  it("takes batches only in order", async () => {
    const hooks = openHooks(sluices);

    const given = { ...REF, url: "https://example.com/", batch: 5 };

    await expect(hooks.endpoints.put(given)).rejects.toMatchObject({
      code: "ERR_INVALID_OPTION",
      option: "batch",
    });
  });
});
