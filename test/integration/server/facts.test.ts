import { Validator } from "@seriousme/openapi-schema-validator";
import { Redis } from "ioredis";
import { beforeEach, describe, expect, inject, it, onTestFinished } from "vitest";
import { budget, type Bucket } from "sluice";
import type { SluiceServer } from "sluice/server";
import { waitUntil } from "../../support/async/wait-until.ts";
import { ACT, ask, openServers, VIEW, type Asking } from "../../support/server/open-server.ts";
import { askAsDescribed, routesOf } from "../../support/server/described.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const servers = openServers();

let server: SluiceServer;
let url: string;
let stripe: Bucket;
/** The paths of the description that a test has asked. */
const asked = new Set<string>();

beforeEach(async () => {
  const service = sluices.open();
  stripe = service.bucket("stripe", { rate: "100/s", perKey: { rate: "5/s" } });
  await stripe.draw();
  // A first report may come while the call still waits.
  const isReported = async (): Promise<boolean> => {
    const [told] = (await service.overview()).buckets;
    return told?.waiting.total === 0 && (await stripe.history()).points.length === 1;
  };
  await waitUntil(isReported, "it is told of");
  ({ server, url } = await servers.open(sluices.open()));
});

/** Asks as the description of the API says, with the token of ann, and checks the answer against it. */
function call(route: string, given: Asking & { readonly path?: string } = {}) {
  asked.add(route);
  const path = given.path ?? route.split(" ")[1]!.replace("{bucket}", "stripe");
  return askAsDescribed({ server, url }, route, { token: ACT, ...given, path });
}

describe("/api/v1", () => {
  it("answers what an operator asks of all buckets and of one", async () => {
    const totals = await call("GET /api/v1/overview", { token: VIEW });
    const page = await call("GET /api/v1/buckets", { path: "/api/v1/buckets?recent=true&limit=1" });
    const one = await call("GET /api/v1/buckets/{bucket}");
    const history = await call("GET /api/v1/buckets/{bucket}/history");
    const keys = await call("GET /api/v1/buckets/{bucket}/keys", { token: VIEW });
    const why = await call("GET /api/v1/buckets/{bucket}/why", { token: VIEW });

    expect(totals.json).toMatchObject({ buckets: 1, capPerSecond: 100, cooling: 0, waiting: 0 });
    expect(totals.json.replicas).toHaveLength(1);
    expect(page.json).toMatchObject({ total: 1, buckets: [{ name: "stripe", source: "code" }] });
    expect(page.json.recent.stripe).toHaveLength(60);
    // Each would cost Redis a request for each bucket, every second.
    expect(page.json.buckets[0]).not.toHaveProperty("limits");
    expect(one.json.limits).toMatchObject([{ name: "100/s" }]);
    expect(one.json).toMatchObject({ name: "stripe", policy: "100/s; per key 5/s" });
    expect(keys.json).toEqual({ lanes: [], totalLanes: 0, lanesInAll: 0 });
    expect(why.json).toEqual({ bucket: "stripe", reasons: ["No call or job waits."], jobs: [] });
    expect(history.json).toMatchObject({ stepMs: 10_000, points: [{ started: 1, refused: 0 }] });
  });

  it("says that a change was made though how the bucket is then cannot be read", async () => {
    const redis = new Redis(inject("redisUrl"));
    onTestFinished(() => redis.disconnect());
    await redis.set(`${sluices.prefix()}:{:fleet}:reports:stripe`, "no list of replicas");
    // The server tries to read for this time.
    ({ server, url } = await servers.open(sluices.open({ storeTimeoutMs: 3_000 })));

    const paused = await call("POST /api/v1/buckets/{bucket}/pause", { body: {} });

    expect([paused.status, paused.json]).toEqual([200, {}]);
    expect((await stripe.peek()).pausedForMs).toBe(Infinity);
  });

  it("changes a rate for all processes, says who did, and takes it back", async () => {
    const forMs = 3_600_000;
    const body = { policy: { rate: "20/s" }, forMs, reason: "429s" };
    const { json: set } = await call("POST /api/v1/buckets/{bucket}/configure", { body });

    expect(set.status).toMatchObject({ policy: "20/s; per key 5/s", source: "override" });
    expect(await stripe.status()).toMatchObject({ setBy: { by: "ann", reason: "429s" } });
    const { json: changes } = await call("GET /api/v1/changes", { token: VIEW });
    expect(changes.changes).toMatchObject([{ by: "ann", action: "configure", forMs }]);
    expect(changes.next).toBeUndefined();
    const all = await call("GET /api/v1/buckets", { path: "/api/v1/buckets?search=STR" });
    expect(all.json.buckets).toMatchObject([{ capPerSecond: 20, source: "override" }]);

    const back = await call("POST /api/v1/buckets/{bucket}/undo", { body: { by: "bob" } });
    expect(back.json).toMatchObject({
      undone: { action: "configure" },
      status: { source: "code" },
    });
    const again = await call("POST /api/v1/buckets/{bucket}/undo");
    expect(again.json.undone).toBeUndefined();
    expect((await ask(`${url}/api/v1/changes`, { token: VIEW })).json.changes[0].by).toBe(
      "bob (token of ann)",
    );
  });

  it("pauses and resumes, and says times without an end as such", async () => {
    const { json } = await call("POST /api/v1/buckets/{bucket}/pause", { body: {} });
    const one = await call("GET /api/v1/buckets/{bucket}");
    const log = await call("GET /api/v1/changes");

    expect(json.status.pausedForMs).toBe("forever");
    expect(one.json).toMatchObject({ pausedForMs: "forever", pausedBy: { endsInMs: "forever" } });
    expect(log.json.changes[0].after.pausedForMs).toBe("forever");
    expect([json, one.json, log.json].map((each) => JSON.stringify(each)).join()).not.toContain(
      "null",
    );
    expect((await ask(`${url}/api/v1/overview`, { token: VIEW })).json.paused).toBe(1);
    const resumed = await call("POST /api/v1/buckets/{bucket}/resume");
    expect(resumed.json.status.pausedForMs).toBe(0);
  });

  it("shows the effect of a change to every token that may look, and changes nothing", async () => {
    const route = "POST /api/v1/buckets/{bucket}/preview";

    const slower = await call(route, { token: VIEW, body: { policy: { rate: "20/s" } } });
    const paused = await call(route, { token: VIEW, body: { pausedForMs: "forever" } });
    const nothing = await call(route, { token: VIEW, body: {} });

    expect(slower.json).toMatchObject({ now: { capPerSecond: 100 }, after: { capPerSecond: 20 } });
    expect(paused.json.after.pausedForMs).toBe("forever");
    expect(nothing).toMatchObject({ status: 400, json: { code: "ERR_INVALID_OPTION" } });
    expect(await stripe.status()).toMatchObject({ source: "code", pausedForMs: 0 });
  });

  it("tries a change on the calls of the last hours, and changes nothing", async () => {
    await Promise.all(Array.from({ length: 299 }, () => stripe.draw()));
    const startedIn = async () => (await stripe.history()).points.map(({ started }) => started);
    const sum = (numbers: readonly number[]) => numbers.reduce((total, each) => total + each, 0);
    await waitUntil(async () => sum(await startedIn()) === 300, "all calls are in the history");
    const route = "POST /api/v1/buckets/{bucket}/trial";

    const same = await call(route, { token: VIEW, body: { policy: { rate: "100/s" } } });
    const slower = await call(route, { body: { policy: { rate: "1/min" }, maxWaitMs: 100 } });
    const wrong = await call(route, { body: { policy: { rate: "fast" } } });
    const never = await call(route, { body: { policy: { rate: "1/s" }, sinceMs: 2 ** 50 } });

    expect(same.json).toMatchObject({ bucket: "stripe", callsInHistory: 300, isWhole: true });
    expect(same.json.after).toEqual(same.json.now);
    expect(same.json.now).toMatchObject({ policy: "100/s; per key 5/s", waiting: 0, late: 0 });
    expect(same.json.now.started).toBe(same.json.calls);
    expect(slower.json.now.waiting).toBe(0);
    expect(slower.json.after).toMatchObject({ policy: "1/min; per key 5/s" });
    expect(slower.json.after.waiting).toBeGreaterThan(0.8 * slower.json.calls);
    expect(wrong).toMatchObject({ status: 400, json: { option: "rate", value: "fast" } });
    expect(never).toMatchObject({ status: 400, json: { option: "sinceMs" } });
    expect(await stripe.status()).toMatchObject({ source: "code" });
  });

  it("takes the busiest part of a long history, and answers other requests during that time", async () => {
    const redis = new Redis(inject("redisUrl"));
    onTestFinished(() => redis.disconnect());
    const hour = Math.floor(Date.now() / 3_600_000) - 1;
    const steps = Array.from({ length: 360 }, (_, step) => [step, step === 100 ? 900 : 300]);
    await redis.hset(`${sluices.prefix()}:{:fleet}:history:stripe:${hour}`, ...steps.flat());
    let isOver = false;

    const trying = call("POST /api/v1/buckets/{bucket}/trial", {
      body: { policy: { rate: "20/s" } },
    }).finally(() => (isOver = true));
    let answers = 0;
    while (!isOver) {
      expect((await ask(`${url}/api/v1/overview`, { token: VIEW })).status).toBe(200);
      answers += 1;
    }
    const { json } = await trying;

    expect(answers).toBeGreaterThan(5);
    expect(json).toMatchObject({ isWhole: false, callsInHistory: 108_601 });
    expect(json.fromMs).toBeLessThanOrEqual(hour * 3_600_000 + 1_000_000);
    expect(json.untilMs).toBeGreaterThan(hour * 3_600_000 + 1_000_000);
    expect(json.after.p99Ms).toBeGreaterThan(json.now.p99Ms);
  });

  it("refuses a change after another that was not seen", async () => {
    const { generation } = await stripe.status();
    await stripe.configure({ rate: "50/s" });

    const body = { policy: { rate: "10/s" }, generation };
    const refused = await call("POST /api/v1/buckets/{bucket}/configure", { body });

    expect(refused).toMatchObject({ status: 409, json: { code: "ERR_CHANGED" } });
    expect(await stripe.status()).toMatchObject({ capPerSecond: 50 });
  });

  it.each([
    ["configure", { policy: { rate: "fast" } }, "rate", "fast"],
    ["configure", {}, "policy", undefined],
    ["configure", { policy: { rate: "10/s" }, forMs: 0 }, "forMs", 0],
    ["configure", { policy: { rate: "10/s" }, forMs: "60000" }, "forMs", "60000"],
    ["configure", { policy: { rate: "10/s" }, reson: "typo" }, "reson", "typo"],
    ["pause", { forMs: 1.5 }, "forMs", 1.5],
    ["resume", { forMs: 1 }, "forMs", 1],
    ["undo", { id: 7 }, "id", 7],
  ])(
    "refuses %s with %j, naming the option, and changes nothing",
    async (action, body, option, value) => {
      const { generation } = await stripe.status();

      const refused = await call(`POST /api/v1/buckets/{bucket}/${action}`, { body });

      expect(refused).toMatchObject({
        status: 400,
        json: { code: "ERR_INVALID_OPTION", option, remedy: expect.any(String) },
      });
      expect(refused.json.value).toEqual(value);
      expect(await stripe.status()).toMatchObject({ generation, source: "code" });
      expect((await ask(`${url}/api/v1/changes`, { token: VIEW })).json.changes).toEqual([]);
    },
  );

  it("lets no token change what it may only look at, nor look beyond its scope", async () => {
    const tokens = [{ token: VIEW, role: "view", buckets: ["openai"] }] as const;
    const { url: scoped } = await servers.open(sluices.open(), { tokens });

    const change = await call("POST /api/v1/buckets/{bucket}/pause", { token: VIEW, body: {} });
    const totals = await ask(`${scoped}/api/v1/overview`, { token: VIEW });
    const page = await ask(`${scoped}/api/v1/buckets`, { token: VIEW });
    const changes = await ask(`${scoped}/api/v1/changes?bucket=stripe`, { token: VIEW });

    expect(change.status).toBe(403);
    expect(totals.json).toMatchObject({ buckets: 0, capPerSecond: 0 });
    expect(page.json).toMatchObject({ total: 0, buckets: [] });
    expect(changes.status).toBe(403);
    expect((await stripe.status()).pausedForMs).toBe(0);
  });

  it("knows no bucket that there is not, and no page that can never be", async () => {
    const missing = await call("GET /api/v1/buckets/{bucket}", { path: "/api/v1/buckets/strip" });
    const bad = await call("GET /api/v1/buckets", { path: "/api/v1/buckets?limit=9000" });
    const text = await call("GET /api/v1/buckets", { path: "/api/v1/buckets?limit=ten" });
    const odd = await call("GET /api/v1/buckets/{bucket}", { path: "/api/v1/buckets/a%7Bb" });

    expect(missing).toMatchObject({ status: 404, json: { detail: 'There is no bucket "strip".' } });
    expect(bad.json).toMatchObject({ status: 400, option: "limit", value: 9_000 });
    expect(text.json).toMatchObject({ status: 400, option: "limit", value: "ten" });
    expect(odd.status).toBe(400);
  });

  it("shows, grants and restores balances of budgets", async () => {
    const limits = [budget({ unit: "usd", amount: 10, per: "year" })];
    const llm = sluices.open().bucket("llm", { limits });
    await llm.draw({ cost: { usd: 10 } });
    const path = "/api/v1/buckets/llm";
    const look = () => call("GET /api/v1/buckets/{bucket}", { path });
    await waitUntil(async () => (await look()).status === 200, "it is reported");

    const before = await call("GET /api/v1/buckets/{bucket}/budgets", {
      path: `${path}/budgets?all=true`,
      token: VIEW,
    });
    const granted = await call("POST /api/v1/buckets/{bucket}/grant", {
      path: `${path}/grant`,
      body: { amounts: { usd: 2 }, reason: "demo day" },
    });
    const restored = await call("POST /api/v1/buckets/{bucket}/restore", {
      path: `${path}/restore`,
      body: { budgets: before.json.budgets, reason: "moved" },
    });

    expect(before.json.budgets).toMatchObject([{ name: "10/year usd", spent: 10, granted: 0 }]);
    expect(before.json.total).toBe(1);
    expect(granted.json.budgets).toMatchObject([{ amount: 12, granted: 2, remaining: 2 }]);
    expect(granted.json.status.budgets).toMatchObject([{ granted: 2 }]);
    expect(restored.json).toEqual({ restored: 1, skipped: [] });
    expect(await llm.budgets()).toMatchObject([{ spent: 10, granted: 0 }]);
    const changes = await sluices.open().changes({ bucket: "llm" });
    expect(changes.map(({ action, by, reason }) => [action, by, reason])).toEqual([
      ["restore", "ann", "moved"],
      ["grant", "ann", "demo day"],
    ]);
  });

  it("has a description that is valid, and each route of it was asked by these tests", async () => {
    const { json } = await ask(`${url}/api/openapi.json`, { token: VIEW });

    const { valid, errors } = await new Validator().validate(json);

    expect(errors ?? []).toEqual([]);
    expect(valid).toBe(true);
    const routes = routesOf(server);
    const ofFacts = routes.filter((route) => /\/api\/v1\/(overview|buckets|changes)/.test(route));
    expect(ofFacts.filter((route) => !asked.has(route))).toEqual([]);
    expect(ofFacts.length).toBeGreaterThan(8);
  });
});
