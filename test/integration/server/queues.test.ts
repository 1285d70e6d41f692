import { Redis } from "ioredis";
import { beforeEach, describe, expect, inject, it, onTestFinished } from "vitest";
import type { Queue, Sluice } from "sluice";
import type { SluiceServer } from "sluice/server";
import { partsOf } from "../../../src/sluice/parts.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { askAsDescribed, routesOf } from "../../support/server/described.ts";
import { ACT, ask, openServers, VIEW, type Asking } from "../../support/server/open-server.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const servers = openServers();
const SECRET = "4111 1111 1111 1111";

let service: Sluice;
let queue: Queue<{ readonly card: string; readonly fails?: boolean }>;
let server: SluiceServer;
let url: string;
const asked = new Set<string>();

beforeEach(async () => {
  service = sluices.open({ logger: { warn() {}, error() {} } });
  const bucket = service.bucket("stripe", { rate: "1000/s" });
  queue = service.queue("charges", { bucket });
  await queue.enqueue({ card: SECRET }, { key: "acme", delayMs: 3_600_000, name: "charge" });
  await queue.enqueue({ card: SECRET }, { every: 3_600_000, dedupeId: "hourly" });
  const isKnown = async (): Promise<boolean> => (await service.overview()).queues.length === 1;
  await waitUntil(isKnown, "it is told of");
  // It has not the code of the queue.
  ({ server, url } = await servers.open(sluices.open()));
});

function call(route: string, given: Asking & { readonly path?: string } = {}) {
  asked.add(route);
  const path = given.path ?? route.split(" ")[1]!.replace("{queue}", "charges");
  return askAsDescribed({ server, url }, route, { token: ACT, ...given, path });
}

/** A job that fails for the last time. */
async function deadLetter(): Promise<string> {
  const job = await queue.enqueue({ card: SECRET, fails: true }, { attempts: 1, key: "acme" });
  const worker = service.worker(queue, async ({ data }) => {
    if (data.fails === true) throw new Error("card declined");
  });
  await waitUntil(async () => (await queue.counts()).failed === 1, "it has failed");
  await worker.close();
  return job.id;
}

describe("/api/v1/queues", () => {
  it("answers how queues of other processes are, and who works on them", async () => {
    const worker = service.worker(queue, async () => {}, { concurrency: 3 });
    const isKnown = async (): Promise<boolean> => (await service.overview()).workers.length === 1;
    await waitUntil(isKnown, "the worker is told of");

    const page = await call("GET /api/v1/queues", { token: VIEW });
    const one = await call("GET /api/v1/queues/{queue}", { token: VIEW });
    const workers = await call("GET /api/v1/workers", { token: VIEW });

    expect(page.json.queues).toMatchObject([
      {
        name: "charges",
        bucket: "stripe",
        workers: 1,
        totalConcurrency: 3,
        status: { unexplainedMs: 0 },
      },
    ]);
    expect(page.json.next).toBeUndefined();
    expect(one.json).toMatchObject({
      bucket: "stripe",
      status: { name: "charges", jobs: { failed: 0 } },
      pauses: [],
      schedules: [{ dedupeId: "hourly", every: 3_600_000 }],
    });
    expect(workers.json.workers).toMatchObject([{ queue: "charges", concurrency: 3 }]);
    await worker.close();
  });

  it("lists jobs without their data, unless it is asked for", async () => {
    const jobs = "/api/v1/queues/charges/jobs";
    const page = await call("GET /api/v1/queues/{queue}/jobs", {
      path: `${jobs}?state=delayed&key=acme`,
    });
    const [{ id }] = page.json.jobs as [{ id: string }];
    const one = await call("GET /api/v1/queues/{queue}/jobs/{id}", { path: `${jobs}/${id}` });
    const whole = await call("GET /api/v1/queues/{queue}/jobs/{id}", {
      path: `${jobs}/${id}?data=true`,
    });
    const missing = await call("GET /api/v1/queues/{queue}/jobs/{id}", { path: `${jobs}/99` });

    expect(page.json.jobs).toMatchObject([{ name: "charge", key: "acme", attemptsMade: 0 }]);
    expect(one.json).toMatchObject({ state: "delayed", why: { waitsFor: "delay" } });
    expect(page.text + one.text).not.toContain(SECRET);
    expect(whole.json.job.data).toEqual({ card: SECRET });
    for (const path of [jobs, `${jobs}/${id}`, "/api/v1/queues/charges/failed"]) {
      const refused = await ask(`${url}${path}?data=true`, { token: VIEW });
      expect(refused.status).toBe(403);
      expect(refused.json.detail).toContain('"act"');
    }
    expect(missing.status).toBe(404);
  });

  it("shows dead letters, and puts one or all back", async () => {
    const id = await deadLetter();

    const failed = await call("GET /api/v1/queues/{queue}/failed", { token: VIEW });
    const whole = await ask(`${url}/api/v1/queues/charges/failed?data=true`, { token: ACT });
    const refused = await call("POST /api/v1/queues/{queue}/replay", { token: VIEW, body: { id } });
    const one = await call("POST /api/v1/queues/{queue}/replay", { body: { id } });
    const again = await call("POST /api/v1/queues/{queue}/replay", { body: {} });

    expect(failed.json.failed).toMatchObject([{ id, key: "acme", reason: "card declined" }]);
    expect(failed.text).not.toContain(SECRET);
    expect(whole.text).toContain(SECRET);
    expect(refused.status).toBe(403);
    expect(one.json.replayed).toBe(1);
    expect(again.json.replayed).toBe(0);
    expect((await queue.counts()).failed).toBe(0);
  });

  it("shows the flow above a job, without jobs of queues that the token is not for", async () => {
    const secret = service.queue("secret", { bucket: queue.bucket });
    const parent = await secret.enqueue("salaries");
    const { id } = await queue.enqueue({ card: SECRET }, { after: [parent] });
    const child = await secret.enqueue("bonuses", { after: [{ queue: "charges", id }] });
    const path = `/api/v1/queues/charges/jobs/${id}/flow`;
    const token = "only-for-charges-0123456789";
    const scoped = await servers.open(service, {
      tokens: [{ token, role: "view", queues: ["charges"] }],
    });

    const route = "GET /api/v1/queues/{queue}/jobs/{id}/flow";
    const flowOf = (json: unknown) => (json as { flow: { parents: { state?: string }[] } }).flow;
    await waitUntil(
      async () =>
        flowOf((await call(route, { token: VIEW, path })).json).parents[0]?.state === "waiting",
      "the server knows the other queue",
    );
    const all = await call(route, { token: VIEW, path });
    const some = await ask(scoped.url + path, { token });

    const step = { queue: "secret", id: parent.id, isBlocking: true, parents: [], more: 0 };
    expect(flowOf(all.json)).toMatchObject({ queue: "charges", id, state: "delayed" });
    expect(flowOf(all.json).parents).toMatchObject([step]);
    expect(flowOf(some.json).parents).toEqual([step]);
    const linked = { queue: "secret", id: child.id };
    expect(all.json).toMatchObject({
      ended: { first: [], more: 0 },
      children: { first: [{ ...linked, state: "delayed" }], more: 0 },
    });
    expect(some.json).toMatchObject({ children: { first: [linked], more: 0 } });
    expect(some.text).not.toContain("bonuses");
  });

  it("lists the outboxes that relays have reported", async () => {
    const state = { name: "public.sluice_outbox", pending: 3, failed: 1, oldestMs: 2_000 };
    const { insight } = partsOf("a test", service);
    await insight.reportOutbox({ outbox: "o-1", state, moved: 5 });
    await insight.reportOutbox({ outbox: "o-1", state, moved: 7 });

    const { json } = await call("GET /api/v1/outboxes", { token: VIEW });

    expect(json.outboxes).toMatchObject([
      { ...state, outbox: "o-1", moved: 12, oldestMs: expect.any(Number) },
    ]);
    expect((json.outboxes as { oldestMs: number }[])[0]!.oldestMs).toBeGreaterThanOrEqual(2_000);
  });

  it("groups dead letters by their error", async () => {
    await deadLetter();

    const { json } = await call("GET /api/v1/queues/{queue}/failed-groups", { token: VIEW });

    expect(json).toMatchObject({ groups: [{ count: 1, reason: "card declined" }] });
  });

  it("says why a job waits, and cancels it", async () => {
    const jobs = "/api/v1/queues/charges/jobs";
    const page = await ask(`${url}${jobs}?state=delayed&key=acme`, { token: VIEW });
    const [{ id }] = page.json.jobs as [{ id: string }];
    const path = `${jobs}/${id}`;

    const why = await call("GET /api/v1/queues/{queue}/jobs/{id}/why", {
      token: VIEW,
      path: `${path}/why`,
    });
    const cancel = "POST /api/v1/queues/{queue}/jobs/{id}/cancel";
    const refused = await call(cancel, { token: VIEW, method: "POST", path: `${path}/cancel` });
    const cancelled = await call(cancel, { method: "POST", path: `${path}/cancel` });

    expect(why.json).toMatchObject({ job: id, why: { waitsFor: "delay" } });
    expect(refused.status).toBe(403);
    expect(cancelled.json).toEqual({ id, cancelled: true });
    expect(await queue.job(id)).toBeUndefined();
  });

  it("removes dead letters for good, and all of them only if that is said", async () => {
    const id = await deadLetter();
    const purge = "POST /api/v1/queues/{queue}/purge";

    const unsure = await call(purge, { body: {} });
    const denied = await call(purge, { body: { all: false } });
    const mixed = await call(purge, { body: { ids: [id], key: "acme" } });
    const purged = await call(purge, { body: { ids: [id, "none"], why: "cleaned up" } });
    const none = await call(purge, { body: { all: true } });

    expect(unsure).toMatchObject({ status: 400, json: { option: "all" } });
    expect(denied).toMatchObject({ status: 400, json: { option: "all", value: false } });
    expect(mixed).toMatchObject({ status: 400, json: { option: "ids" } });
    expect(purged.json).toEqual({ purged: 1, missing: ["none"] });
    expect(none.json).toEqual({ purged: 0, missing: [] });
    const [, first] = await service.changes({ queue: "charges" });
    expect(first).toMatchObject({ action: "purge", by: "ann", reason: "cleaned up" });
  });

  it("pauses a queue or one key, and says times without an end as such", async () => {
    const all = await call("POST /api/v1/queues/{queue}/pause", { body: {} });
    const key = await call("POST /api/v1/queues/{queue}/pause", {
      body: { key: "acme", forMs: 60_000 },
    });

    expect(all.json.pauses).toEqual([{ forMs: "forever" }]);
    expect(key.json.pauses).toMatchObject([{ forMs: "forever" }, { key: "acme" }]);
    expect(await queue.paused()).toHaveLength(2);
    const resumed = await call("POST /api/v1/queues/{queue}/resume");
    expect(resumed.json.pauses).toMatchObject([{ key: "acme" }]);
  });

  it("says that a change was made though how the queue is then cannot be read", async () => {
    const redis = new Redis(inject("redisUrl"));
    onTestFinished(() => redis.disconnect());
    await redis.set(`${sluices.prefix()}:{charges}:failed`, "no list of jobs");

    const paused = await call("POST /api/v1/queues/{queue}/pause", { body: {} });

    expect(paused).toMatchObject({ status: 200, json: { pauses: [{ forMs: "forever" }] } });
    expect(paused.json).not.toHaveProperty("generation");
    expect(await queue.paused()).toHaveLength(1);
  });

  it("sets a queue by hand, says who did, and refuses what is based on an older state", async () => {
    const look = async () => (await call("GET /api/v1/queues/{queue}")).json.status;
    const { generation } = (await look()) as { generation: number };
    const set = "POST /api/v1/queues/{queue}/set";

    const first = await call(set, {
      body: { maxBacklog: 500, defaults: { attempts: 4 }, forMs: 60_000, why: "429s", generation },
    });
    const late = await call(set, { body: { maxBacklog: "code", generation } });
    const wrong = await call(set, { body: { maxBacklog: -1 } });
    const viewer = await call(set, { token: VIEW, body: { maxBacklog: 1 } });

    expect(late).toMatchObject({ status: 409, json: { code: "ERR_CHANGED" } });
    expect(wrong).toMatchObject({ status: 400, json: { option: "maxBacklog" } });
    expect(viewer.status).toBe(403);
    const seen = (await look()) as { settings: object[] };
    expect(seen).toMatchObject({ generation: first.json.generation });
    expect(seen.settings).toContainEqual({
      name: "maxBacklog.all",
      value: 500,
      setBy: "override",
      override: expect.objectContaining({ reason: "429s", endsInMs: expect.any(Number) }),
    });
    const undone = await call("POST /api/v1/queues/{queue}/undo", {
      body: { generation: first.json.generation },
    });
    expect(undone.json.undone).toMatchObject({ action: "set", after: { "maxBacklog.all": 500 } });
    expect(JSON.stringify(undone.json.settings)).not.toContain("override");
  });

  it("notes who changed a queue, and takes a pause back; of what it cannot take back it says why", async () => {
    const undo = "POST /api/v1/queues/{queue}/undo";
    await call("POST /api/v1/queues/{queue}/pause", { body: { why: "429s", by: "ann" } });

    const undone = await call(undo, { body: {} });
    await call("POST /api/v1/queues/{queue}/replay", { body: { reason: "declined" } });
    const refused = await call(undo, { body: {} });
    const log = await call("GET /api/v1/changes", { path: "/api/v1/changes?queue=charges" });

    expect(undone.json).toMatchObject({ undone: { action: "pause" }, pauses: [] });
    expect(refused).toMatchObject({ status: 409, json: { code: "ERR_CANNOT_UNDO" } });
    const [replay, , pause] = log.json.changes as [object, object, object];
    expect(replay).toMatchObject({ action: "replay", jobs: 0, filter: { reason: "declined" } });
    expect(pause).toMatchObject({
      by: expect.stringContaining("ann"),
      reason: "429s",
      undoneBy: expect.any(String),
      before: { pausedForMs: 0 },
      after: { pausedForMs: "forever" },
    });
  });

  it("says what another rate or a pause would do to the backlog, and changes nothing", async () => {
    await queue.enqueueMany(Array.from({ length: 100 }, () => ({ card: SECRET })));
    const route = "POST /api/v1/queues/{queue}/preview";

    const slower = await call(route, { token: VIEW, body: { policy: { rate: "1/s" } } });
    const wrong = await call(route, { token: VIEW, body: { policy: { rate: "fast" } } });

    expect(slower.json).toMatchObject({ now: {}, after: {} });
    expect(wrong).toMatchObject({ status: 400, json: { option: "rate", value: "fast" } });
    expect((await queue.bucket.status()).source).toBe("code");
  });

  it.each([
    ["pause", { forMs: 0 }, "forMs"],
    ["pause", { for: "1h" }, "for"],
    ["replay", { reason: "" }, "reason"],
    ["replay", { limit: 0 }, "limit"],
  ])("refuses %s with %j, naming the option", async (action, body, option) => {
    const refused = await call(`POST /api/v1/queues/{queue}/${action}`, { body });

    expect(refused).toMatchObject({ status: 400, json: { code: "ERR_INVALID_OPTION", option } });
    expect(await queue.paused()).toEqual([]);
  });

  it("knows no queue that there is not, and none beyond the scope of a token", async () => {
    const tokens = [{ token: VIEW, role: "view", queues: ["mails"] }] as const;
    const { url: scoped } = await servers.open(sluices.open(), { tokens });

    const missing = await call("GET /api/v1/queues/{queue}", { path: "/api/v1/queues/charge" });
    const others = await ask(`${scoped}/api/v1/queues`, { token: VIEW });
    const other = await ask(`${scoped}/api/v1/queues/charges/jobs`, { token: VIEW });

    expect(missing).toMatchObject({ status: 404, json: { detail: 'There is no queue "charge".' } });
    expect(others.json.queues).toEqual([]);
    expect(other.status).toBe(403);
  });

  it("has each of its routes asked by these tests", () => {
    const ofQueues = routesOf(server).filter((route) => /api\/v1\/(queues|workers)/.test(route));

    expect(ofQueues.filter((route) => !asked.has(route))).toEqual([]);
    expect(ofQueues.length).toBeGreaterThan(8);
  });
});
