import { Redis } from "ioredis";
import { Pool } from "pg";
import { expect, inject, it, onTestFinished } from "vitest";
import { encryption } from "sluice/codec";
import { createOutbox } from "sluice/outbox";
import { findWebhooks } from "sluice/webhooks";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { newKey, storedText } from "../../support/jobs/open-encoded.ts";
import { postgresForFile } from "../../support/postgres/local-postgres.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import {
  LOCAL,
  openHooks,
  put,
  SILENT,
  startReceiver,
  untilIdle,
} from "../../support/webhooks/open-hooks.ts";
import { createWebhooks } from "sluice/webhooks";

const postgres = postgresForFile();
const sluices = realSluices();
const SECRET = "4000-0566-5566-5556";
const codec = encryption({ keys: { current: "k1", k1: newKey() } });

it("a sender with a codec delivers, lists and broadcasts messages that Redis cannot read", async () => {
  const hooks = openHooks(sluices, { codec });
  const receiver = await startReceiver();
  await put(hooks, { tenant: "acme", id: "a", url: `${receiver.url}/a` });
  await put(hooks, { tenant: "acme", id: "lined", url: `${receiver.url}/lined`, ordered: true });
  const data = { card: SECRET };

  const { id } = await hooks.send({ tenant: "acme", type: "card.used", data });
  await hooks.broadcast({ type: "card.lost", data });
  const stored = await storedText(sluices.prefix());
  hooks.worker();
  await waitUntil(() => receiver.arrivals.length === 4, "all have arrived");
  await untilIdle(hooks);

  expect(stored).toContain("aes-256-gcm:k1");
  expect(stored).not.toContain(SECRET);
  expect(await storedText(sluices.prefix())).not.toContain(SECRET);
  for (const { body } of receiver.arrivals) expect(JSON.parse(body)).toMatchObject({ data });
  expect(await hooks.messages.get({ tenant: "acme", id })).toMatchObject({ data });
  const found = await findWebhooks(sluices.open());
  expect(await found!.messages.get({ tenant: "acme", id })).toMatchObject({
    data: undefined,
    unreadable: { code: "ERR_CODEC", id },
  });
});

it.each([
  ["an endpoint", {}, ["bad"]],
  ["an ordered endpoint", { ordered: true }, ["bad"]],
  ["an ordered endpoint with batches", { ordered: true, batch: 5 }, ["good", "bad"]],
])(
  "a message that cannot be decoded fails after the last try at %s, which then goes on",
  async (_what, options, first) => {
    const name = { tenant: "acme", endpoint: "a" };
    const hooks = openHooks(sluices, { codec });
    const receiver = await startReceiver();
    await put(hooks, { tenant: "acme", id: "a", url: receiver.url, ...options });
    for (const id of first) await hooks.send({ tenant: "acme", type: "card.used", id, data: {} });
    const redis = new Redis(inject("redisUrl"));
    onTestFinished(() => redis.disconnect());
    const [bad] = await redis.keys(`${sluices.prefix()}*acme*:bad`);
    const readable = (await redis.hget(bad!, "body"))!;
    await redis.hset(bad!, "body", readable.replace("aes-256-gcm:k1", "aes-256-gcm:k9"));
    const exhausted: object[] = [];
    hooks.on("exhausted", (event) => void exhausted.push(event));
    hooks.worker();
    await waitUntil(async () => (await hooks.queue.counts()).delayed === 1, "it was tried");
    await hooks.send({ tenant: "acme", type: "card.used", id: "next", data: {} });
    await waitUntil(async () => {
      // As if it had been tried for hours.
      const [tried] = (await hooks.queue.jobs({ state: "delayed" })).jobs;
      const [key] = tried === undefined ? [] : await redis.keys(`${sluices.prefix()}*:${tried.id}`);
      if (key !== undefined) await redis.hset(key, "atm", 19);
      return exhausted.length === 1;
    }, "the message is given up");
    await waitUntil(() => receiver.arrivals.length === first.length, "the others have arrived");
    await untilIdle(hooks);

    const stateOf = async (id: string) =>
      (await hooks.messages.get({ tenant: "acme", id }))?.endpoints;
    expect(await stateOf("bad")).toEqual({ a: "failed" });
    for (const id of [...first, "next"].filter((each) => each !== "bad"))
      expect(await stateOf(id)).toEqual({ a: "delivered" });
    const reason = expect.stringContaining('there is no key "k9"') as string;
    expect(exhausted).toEqual([{ ...name, message: "bad", reason }]);

    await redis.hset(bad!, "body", readable);
    await hooks.recover(name);
    await waitUntil(async () => (await stateOf("bad"))?.["a"] === "delivered", "it was recovered");
  },
);

it("rows of an outbox are encoded in Postgres, and a relay without the key keeps them", async () => {
  const table = "encoded";
  const open = (given: typeof codec | undefined) => {
    const sluice = sluices.open({ logger: SILENT });
    const bucket = sluice.bucket("downstream", { rate: "1000/s" });
    const jobs = sluice.queue<object>("jobs", { bucket, codec: given });
    const webhooks = createWebhooks(sluice, { ...LOCAL, codec: given });
    const parts = { sluice, queues: [jobs], webhooks, database: postgres.url, table };
    return { jobs, webhooks, outbox: createOutbox(parts) };
  };
  const pool = new Pool({ connectionString: postgres.url });
  onTestFinished(() => pool.end());
  const { jobs, webhooks, outbox } = open(codec);
  await outbox.migrate();
  const receiver = await startReceiver();
  await put(webhooks, { tenant: "acme", id: "a", url: receiver.url });
  const data = { card: SECRET };

  const job = await outbox.enqueue(pool, jobs, data, { key: "acme" });
  await outbox.webhook(pool, { tenant: "acme", type: "card.used", data });
  const { rows } = await pool.query<{ data: unknown }>(`SELECT data FROM ${table}`);
  const behind = open(undefined);
  const relay = behind.outbox.startRelay({ pollMs: 20, maxAttempts: 1 });
  await waitUntil(async () => (await outbox.status()).rejected.length === 2, "both are rejected");
  await relay.close();
  const { rejected } = await outbox.status();
  outbox.startRelay({ pollMs: 20 });
  await outbox.retry();
  webhooks.worker();
  await waitUntil(() => receiver.arrivals.length === 1, "the webhook has arrived");
  await waitUntil(async () => (await jobs.job(job.id)) !== undefined, "the job is stored");

  expect(rows).toHaveLength(2);
  expect(JSON.stringify(rows)).not.toContain(SECRET);
  for (const { error } of rejected) expect(error).toContain("cannot be decoded");
  expect((await jobs.job(job.id))?.data).toEqual(data);
  expect(JSON.parse(receiver.arrivals[0]!.body)).toMatchObject({ data });
  expect(await storedText(sluices.prefix())).not.toContain(SECRET);
});

it("codecs of a sender that can never work are refused by name", async () => {
  const refusal = await rejectionOf(
    Promise.resolve().then(() => openHooks(sluices, { codec: {} as never })),
  );

  expect(refusal).toMatchObject({ code: "ERR_INVALID_OPTION", option: "codec" });
});
