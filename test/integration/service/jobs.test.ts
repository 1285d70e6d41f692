import { Redis } from "ioredis";
import { describe, expect, inject, it, onTestFinished } from "vitest";
import { Discard, type Queue, type Sluice } from "sluice";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { ask, openServers } from "../../support/server/open-server.ts";
import { services, type Service } from "../../support/server/service.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const sluices = realSluices();
const servers = services();
const guarded = openServers();

const MAIL = "/v1/queues/mail/jobs";

function redisOfTest(): Redis {
  const redis = new Redis(inject("redisUrl"));
  onTestFinished(() => redis.disconnect());
  return redis;
}

/** The notes of requests that may come again. */
const notesIn = (redis: Redis): Promise<string[]> =>
  redis.keys(`${sluices.prefix()}:{mail}:request:*`);

/** A queue that one process has declared, and a server that has not its code. */
async function open(rate = "100/s"): Promise<{
  readonly owner: Sluice;
  readonly queue: Queue<unknown>;
  readonly service: Service;
}> {
  const owner = sluices.open();
  const queue = owner.queue("mail", { bucket: owner.bucket("mail", { rate }) });
  await queue.bucket.draw();
  const sluice = sluices.open();
  await waitUntil(async () => (await sluice.findQueue("mail")) !== undefined, "it is told of");
  return { owner, queue, service: await servers.start(sluice) };
}

describe("POST /v1/queues/:queue/jobs", () => {
  it("stores a job, and says how many are before it and when it is expected to start", async () => {
    const { owner, queue, service } = await open("2/s");
    const seen: unknown[] = [];
    const stored = await service.post(MAIL, { data: { to: "ann" }, key: "acme", attempts: 3 });
    await service.post(MAIL, { data: { to: "bob" } });
    const waiting = await service.get(stored.headers.location!);
    owner.worker(queue, async ({ data }) => {
      seen.push(data);
      return "sent";
    });
    await waitUntil(() => seen.length === 2, "both are done");
    await waitUntil(
      async () => (await service.get(stored.headers.location!)).json.state === "done",
      "it is told of",
    );
    const done = await service.get(`${stored.headers.location}?data=true`);

    expect(stored.status).toBe(202);
    expect(stored.json).toMatchObject({ isNew: true, position: 0, noStart: "no worker" });
    expect(stored.headers.location).toBe(`${MAIL}/${stored.json.id}`);
    expect(waiting.json).toMatchObject({ state: "waiting", key: "acme", attempts: 3 });
    expect(waiting.json).not.toHaveProperty("data");
    expect(done.json).toMatchObject({ state: "done", data: { to: "ann" }, result: "sent" });
    expect(seen).toContainEqual({ to: "bob" });
  });

  it("stores a job that runs after other jobs, and says that it awaits them", async () => {
    const { owner, queue, service } = await open();
    const parent = await service.post(MAIL, { data: "first" });
    const after = [{ queue: "mail", id: parent.json.id }];
    const child = await service.post(MAIL, { data: "then", after });
    const waiting = await service.get(child.headers.location!);
    const seen: unknown[] = [];

    owner.worker(queue, ({ data }) => void seen.push(data));
    await waitUntil(() => seen.length === 2, "both are done");

    expect(child.status).toBe(202);
    expect(waiting.json).toMatchObject({ state: "delayed", waitsFor: "parents" });
    expect(seen).toEqual(["first", "then"]);
  });

  it("stores no job that awaits jobs of a queue that the token is not for", async () => {
    const { owner, queue } = await open();
    const secret = owner.queue("secret", { bucket: queue.bucket });
    const { id } = await secret.enqueue("salaries");
    const token = "only-for-mail-0123456789";
    const { url } = await guarded.open(owner, {
      tokens: [{ token, role: "call", queues: ["mail"] }],
    });
    const job = { data: 1, after: [{ queue: "secret", id }] };

    for (const body of [job, [job]]) {
      const type = Array.isArray(body) ? "application/x-ndjson" : "application/json";
      const text = Array.isArray(body) ? JSON.stringify(job) : body;
      const refused = await ask(url + MAIL, {
        token,
        method: "POST",
        body: text,
        headers: { "content-type": type },
      });
      expect(refused.status).toBe(403);
    }
    expect(await queue.counts()).toMatchObject({ waiting: 0, delayed: 0 });
  });

  it("says when it starts, where a worker is alive", async () => {
    const { owner, queue, service } = await open("1/h");
    owner.worker(queue, async () => undefined);
    await waitUntil(async () => (await queue.status()).workers > 0, "the worker is known");

    await service.post(MAIL, { data: 1 });
    const { json } = await service.post(MAIL, { data: 2 });

    expect(json.startsInMs).toBeGreaterThan(1_800_000);
    expect(json.startsAtMs).toBeGreaterThan(Date.now() + 1_800_000);
  });

  it("stores one job for each line, and names the line that is wrong", async () => {
    const { queue, service } = await open();
    const type = { "content-type": "application/x-ndjson" };
    const lines = ['{"data":1,"key":"a"}', '{"data":2,"priority":"high"}', "", '{"data":3}'];

    const stored = await service.post(MAIL, lines.join("\n"), type);
    const broken = await service.post(MAIL, '{"data":1}\n{"data":', type);
    const wrong = await service.post(MAIL, '{"data":1}\n{"data":2,"prio":"high"}', type);

    expect(stored.status).toBe(202);
    expect(stored.json.jobs).toHaveLength(3);
    expect(broken).toMatchObject({ status: 400 });
    expect(broken.json.detail).toContain("Line 2");
    expect(wrong).toMatchObject({ status: 400, json: { option: "1.prio" } });
    expect((await queue.counts()).waiting).toBe(3);
  });

  it("stores nothing of another request with the Idempotency-Key of one before", async () => {
    const { queue, service } = await open();
    const other = await servers.start(sluices.open());
    const lines = { "content-type": "application/x-ndjson" };
    const first = '{"data":{"a":1,"b":2}}\n{"data":2}\n';
    const ask = (body: string, key: string, headers = lines) =>
      other.post(MAIL, body, { ...headers, "idempotency-key": key });
    await service.post(MAIL, first, { ...lines, "idempotency-key": "k" });

    const others = [
      await ask(`{"data":{"a":9}}\n${first}`, "k"),
      await ask(`${first}{"data":3}\n`, "k"),
      await ask('{"data":{"a":1,"b":2}}\n', "k"),
      await ask(first.replace('"data":2', '"data":2,"priority":"high"'), "k"),
      await ask('{"data":{"a":1,"b":2}}', "k", { "content-type": "application/json" }),
    ];
    const same = await ask('{"data":{"b":2,"a":1}}\r\n\r\n{"data":2}', "k");
    const refused = await ask('{"data":1}\n{"data":2,"cost":{"tokens":1}}\n', "m");
    const mended = await ask('{"data":1}\n{"data":2}\n', "m");
    const atOnce = await Promise.all(
      [1, 2, 3, 4].map((data) => ask(`{"data":${data}}\n{"data":${data}}\n`, "n")),
    );

    expect(others.map(({ status }) => status)).toEqual(others.map(() => 422));
    expect(same).toMatchObject({
      status: 202,
      json: { jobs: [{ isNew: false }, { isNew: false }] },
    });
    expect([refused.status, mended.status]).toEqual([400, 202]);
    expect(atOnce.map(({ status }) => status).toSorted((a, b) => a - b)).toEqual([
      202, 422, 422, 422,
    ]);
    expect((await queue.counts()).waiting).toBe(6);
  });

  it("stores and drops no other data where the note of the first request is gone", async () => {
    const { queue, service } = await open();
    const redis = redisOfTest();
    const key = { "idempotency-key": "k" };
    await service.post(MAIL, { data: { a: 1, b: 2 } }, key);
    await redis.del(...(await notesIn(redis)));

    const other = await service.post(MAIL, { data: { a: 9, b: 2 } }, key);
    const same = await service.post(MAIL, { data: { b: 2, a: 1 } }, key);

    expect(other.status).toBe(422);
    expect(same).toMatchObject({ status: 202, json: { isNew: false } });
    expect((await queue.counts()).waiting).toBe(1);
  });

  it("keeps the note of a request for as long after it came again", async () => {
    const { service } = await open();
    const redis = redisOfTest();
    const key = { "idempotency-key": "k" };
    await service.post(MAIL, { data: 1 }, key);
    const [note] = await notesIn(redis);
    await redis.pexpire(note!, 60_000);

    await service.post(MAIL, { data: 1 }, key);

    expect(await redis.pttl(note!)).toBeGreaterThan(24 * 3_600_000);
  });

  it("keeps the note of a stored request when a repeat of it is refused", async () => {
    const owner = sluices.open();
    let takes = true;
    const schema = {
      "~standard": {
        version: 1,
        vendor: "test",
        validate: (value: unknown) => (takes ? { value } : { issues: [{ message: "is no more" }] }),
      },
    } as const;
    const bucket = owner.bucket("mail", { rate: "100/s" });
    const queue = owner.queue<unknown>("mail", { bucket, schema });
    const service = await servers.start(owner);
    const key = { "idempotency-key": "k" };
    const first = await service.post(MAIL, { data: 1 }, key);
    takes = false;
    const refused = await service.post(MAIL, { data: 1 }, key);
    takes = true;

    const other = await service.post(MAIL, { data: 2 }, key);

    expect([first.status, refused.status, other.status]).toEqual([202, 400, 422]);
    expect(await notesIn(redisOfTest())).toHaveLength(1);
    expect((await queue.counts()).waiting).toBe(1);
  });

  it("says that a job is stored though its state cannot be read", async () => {
    const { service } = await open();
    await redisOfTest().set(`${sluices.prefix()}:{mail}:failed`, "no list of jobs");

    const { status, json, headers } = await service.post(MAIL, { data: 1 });

    expect(status).toBe(202);
    expect(json).toEqual({ id: expect.any(String), isNew: true });
    expect(headers.location).toBe(`${MAIL}/${json.id}`);
  });

  it("reads lines however they end, and after a byte order mark", async () => {
    const { queue, service } = await open();
    const lines = { "content-type": "application/x-ndjson; charset=utf-8" };

    const { status } = await service.post(MAIL, '\ufeff{"data":1}\r\n\r\n{"data":2}', lines);

    expect(status).toBe(202);
    expect((await queue.counts()).waiting).toBe(2);
  });

  it("stores the jobs of one Idempotency-Key once, also after they are done, by any server", async () => {
    const { owner, queue, service } = await open();
    const other = await servers.start(sluices.open());
    const key = { "idempotency-key": "5f0c" };
    const lines = { ...key, "content-type": "application/x-ndjson" };
    let done = 0;
    owner.worker(queue, async () => void (done += 1));

    const all = await Promise.all(
      [service, other, service, other].map((each) => each.post(MAIL, { data: "once" }, key)),
    );
    await waitUntil(() => done === 1, "it is done");
    const later = await other.post(MAIL, { data: "once" }, key);
    const changed = await service.post(MAIL, { data: "else" }, key);
    const many = [
      await service.post(MAIL, '{"data":1}\n{"data":2}', { ...lines, "idempotency-key": "b" }),
      await other.post(MAIL, '{"data":1}\n{"data":2}', { ...lines, "idempotency-key": "b" }),
    ];
    await waitUntil(() => done === 3, "those are done");

    const ids = new Set([...all, later].map(({ json }) => json.id as string));
    expect(ids.size).toBe(1);
    expect(all.filter(({ json }) => json.isNew)).toHaveLength(1);
    expect(later).toMatchObject({ status: 202, json: { isNew: false } });
    expect(changed).toMatchObject({ status: 422 });
    expect(many[1]!.json.jobs.map(({ id }: { id: string }) => id)).toEqual(
      many[0]!.json.jobs.map(({ id }: { id: string }) => id),
    );
    expect((await queue.counts()).done).toBe(3);
  });

  it.each([
    ["no data", {}, "data"],
    ["an unknown option", { data: 1, delay: 5 }, "delay"],
    ["a time that has no form", { data: 1, at: "tomorrow" }, "at"],
    ["an id that Redis cannot have", { data: 1, id: "a:b" }, "id"],
    ["both a schedule and no name for it", { data: 1, every: 1_000 }, "dedupeId"],
  ])("refuses %s by its name, and stores nothing", async (_what, body, option) => {
    const { queue, service } = await open();

    const { status, json } = await service.post(MAIL, body);

    expect(status).toBe(400);
    expect(json).toMatchObject({ code: "ERR_INVALID_OPTION" });
    expect(json.option).toBe(option);
    expect((await queue.counts()).waiting).toBe(0);
  });

  it("is for tokens that may enqueue into this queue alone", async () => {
    const { service } = await open();
    const guarded = await servers.start(sluices.open(), {
      tokens: [
        { token: "token-for-mail", role: "call", queues: ["mail"] },
        { token: "token-for-other", role: "call", queues: ["other"] },
        { token: "token-to-look", role: "view" },
      ],
    });
    const post = async (token: string, path = MAIL): Promise<number> =>
      (await guarded.post(path, { data: 1 }, { authorization: `Bearer token-${token}` })).status;

    expect((await service.post("/v1/queues/none/jobs", { data: 1 })).status).toBe(404);
    expect(await post("for-mail")).toBe(202);
    expect(await post("for-other")).toBe(403);
    expect(await post("to-look")).toBe(403);
    expect(await post("for-mail", `${MAIL}/1/cancel`)).toBe(403);
  });
});

describe("the other routes of jobs", () => {
  it("cancel a job, list dead letters, and put them back", async () => {
    const { owner, queue, service } = await open();
    const { json: job } = await service.post(MAIL, { data: 1, delayMs: 3_600_000 });
    const cancelled = await service.post(`${MAIL}/${job.id}/cancel`);
    const gone = await service.get(`${MAIL}/${job.id}`);
    let isBroken = true;
    owner.worker(queue, async () => {
      if (isBroken) throw new Discard("no such address");
    });
    const { json: bad } = await service.post(MAIL, { data: "secret", key: "acme" });
    await waitUntil(async () => (await queue.counts()).failed === 1, "it has failed");
    const path = "/v1/queues/mail/dead-letters";

    const listed = await service.get(`${path}?key=acme&limit=5`);
    const others = await service.get(`${path}?key=other`);
    const shown = await service.get(`${path}?data=true`);
    isBroken = false;
    const replayed = await service.post(`${path}/replay`, { id: bad.id });
    await waitUntil(async () => (await queue.counts()).done === 1, "it is done");

    expect(cancelled.json).toEqual({ id: job.id, cancelled: true });
    expect(gone.status).toBe(404);
    expect(listed.json.jobs).toMatchObject([{ id: bad.id, key: "acme" }]);
    expect(listed.json.jobs[0].reason).toContain("no such address");
    expect(listed.text).not.toContain("secret");
    expect(others.json.jobs).toEqual([]);
    expect(shown.json.jobs[0].data).toBe("secret");
    expect(replayed.json).toEqual({ replayed: 1 });
  });
});
