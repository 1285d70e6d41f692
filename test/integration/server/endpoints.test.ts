import { beforeEach, describe, expect, it } from "vitest";
import type { SluiceServer } from "sluice/server";
import { findWebhooks, listWebhooks, type Webhooks } from "sluice/webhooks";
import { waitUntil } from "../../support/async/wait-until.ts";
import { askAsDescribed, routesOf } from "../../support/server/described.ts";
import { ACT, ask, openServers, VIEW, type Asking } from "../../support/server/open-server.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { openHooks, startReceiver } from "../../support/webhooks/open-hooks.ts";

const sluices = realSluices();
const servers = openServers();
const REF = { tenant: "acme", id: "billing" };
const ONE = "/api/v1/endpoints/webhooks/acme/billing";

let hooks: Webhooks;
let server: SluiceServer;
let url: string;
const asked = new Set<string>();

beforeEach(async () => {
  hooks = openHooks(sluices, { breaker: { failures: 2, coolMs: 300_000 }, scheduleMs: [0, 1] });
  // The server has neither the options nor the keys of the sender.
  const sluice = sluices.open();
  const isReported = async (): Promise<boolean> => (await listWebhooks(sluice)).length === 1;
  await waitUntil(isReported, "the sender is told of");
  ({ server, url } = await servers.open(sluice));
});

function call(route: string, given: Asking & { readonly path?: string } = {}) {
  asked.add(route);
  const filled = route.split(" ")[1]!.replace("{sender}", "webhooks");
  const path = given.path ?? filled.replace("{tenant}", "acme").replace("{endpoint}", "billing");
  return askAsDescribed({ server, url }, route, { token: ACT, ...given, path });
}

/** An endpoint that failed twice in a row, with a message that waits. */
async function brokenEndpoint(): Promise<void> {
  const receiver = await startReceiver({ answer: () => ({ status: 500, body: "no: secret-9" }) });
  await hooks.endpoints.put({
    ...REF,
    url: `${receiver.url}/in?token=very-secret`,
    headers: { "x-key": "very-secret" },
    rate: "50/s",
  });
  hooks.worker();
  await hooks.send({ tenant: "acme", type: "a", data: 1 });
  const isAlone = async (): Promise<boolean> => (await hooks.status(REF))?.state === "left alone";
  await waitUntil(isAlone, "its breaker is open");
}

describe("/api/v1/endpoints", () => {
  it("says of the endpoints of another process how they are, and no secret", async () => {
    await brokenEndpoint();
    await hooks.send({ tenant: "acme", type: "a", data: 2 });

    const senders = await call("GET /api/v1/endpoints", { token: VIEW });
    const page = await call("GET /api/v1/endpoints/{sender}", { token: VIEW });
    const one = await call("GET /api/v1/endpoints/{sender}/{tenant}/{endpoint}", { token: VIEW });

    expect(senders.json).toEqual({ senders: ["webhooks"] });
    const [endpoint] = page.json.endpoints;
    expect(endpoint).toMatchObject({ ...REF, rate: "50/s", headers: ["x-key"], secrets: 1 });
    const byActor = await ask(`${url}${ONE}`, { token: ACT });
    expect(endpoint.url).toMatch(/^http:\/\/[\w.:]+\/…$/);
    expect(one.json.endpoint.url).toBe(endpoint.url);
    expect(byActor.json.endpoint.url).toMatch(/\/in\?…$/);
    expect(endpoint.status).toMatchObject({
      state: "left alone",
      failures: 2,
      attemptsInLastMinute: 2,
      lastFailure: { outcome: "server-error", status: 500 },
    });
    const { pausedForMs, leftAloneForMs } = endpoint.status;
    expect(pausedForMs).toBeGreaterThan(200_000);
    expect(leftAloneForMs).toBe(pausedForMs);
    await waitUntil(async () => (await hooks.status(REF))!.waiting === 1, "one waits");
    expect(one.json.attempts).toHaveLength(2);
    expect(page.text + one.text).not.toMatch(/secret-9|very-secret|whsec|sealed/);
    const refused = await ask(`${url}${ONE}?data=true`, { token: VIEW });
    const asksForMore = await ask(`${url}${ONE}?data=true`, { token: ACT });
    expect(refused.status).toBe(403);
    expect(asksForMore.json.attempts[0].answer).toContain("no: ");
  });

  it("disables an endpoint for a reason, and enables it as one that never failed", async () => {
    await brokenEndpoint();
    const body = { why: "their data centre burns" };

    const disabled = await call("POST /api/v1/endpoints/{sender}/{tenant}/{endpoint}/disable", {
      body,
    });
    expect(await hooks.endpoints.get(REF)).toMatchObject({ disabled: { reason: body.why } });
    const enabled = await call("POST /api/v1/endpoints/{sender}/{tenant}/{endpoint}/enable", {
      method: "POST",
    });

    const tenants = await call("GET /api/v1/endpoints/{sender}/tenants", { token: VIEW });
    const log = await call("GET /api/v1/endpoints/{sender}/log", {
      token: VIEW,
      path: "/api/v1/endpoints/webhooks/log?tenant=acme&endpoint=billing",
    });
    expect(tenants.json.tenants).toEqual(["acme"]);
    expect(log.json.entries).toHaveLength(2);
    expect(log.json.entries[0]).not.toHaveProperty("answer");
    expect(disabled.json.endpoint.status.state).toBe("disabled");
    expect(enabled.json.endpoint).not.toHaveProperty("disabled");
    expect(enabled.json.endpoint.status).toMatchObject({ state: "well", pausedForMs: 0 });
    const undone = await call("POST /api/v1/endpoints/{sender}/undo", { body: { by: "ann" } });
    expect(undone.json.undone).toMatchObject({ action: "enable", endpoint: REF });
    expect(await hooks.endpoints.get(REF)).toMatchObject({ disabled: { reason: body.why } });
  });

  it("removes an endpoint for good, and notes who did it", async () => {
    await hooks.endpoints.put({ ...REF, url: "https://example.com/" });
    const remove = "POST /api/v1/endpoints/{sender}/{tenant}/{endpoint}/remove";

    const removed = await call(remove, { body: { by: "ann", reason: "left us" } });
    const again = await call(remove, { method: "POST" });

    expect(removed.json).toEqual({ removed: true });
    expect(again.json).toMatchObject({ status: 404, code: "ERR_ENDPOINT_MISSING" });
    expect(await hooks.endpoints.get(REF)).toBeUndefined();
    const log = await ask(`${url}/api/v1/changes?limit=1`, { token: VIEW });
    expect(log.json.changes[0]).toMatchObject({ action: "remove", reason: "left us" });
  });

  it("gives the endpoints of all tenants by pages, and those of one", async () => {
    const url_ = "https://example.com/";
    for (const [tenant, many] of [
      ["acme", 3],
      ["beta", 1],
      ["gamma", 2],
    ] as const) {
      for (let at = 0; at < many; at++)
        await hooks.endpoints.put({ tenant, id: `e${at}`, url: url_ });
    }
    const found: string[] = [];
    const sizes: number[] = [];

    for (let cursor = ""; ;) {
      const query = new URLSearchParams({ limit: "2", ...(cursor && { cursor }) });
      const { json } = await call("GET /api/v1/endpoints/{sender}", {
        path: `/api/v1/endpoints/webhooks?${query}`,
      });
      found.push(...json.endpoints.map((each: typeof REF) => `${each.tenant}/${each.id}`));
      sizes.push(json.endpoints.length);
      if (json.cursor === undefined) break;
      cursor = json.cursor;
    }
    const ofOne = await ask(`${url}/api/v1/endpoints/webhooks?tenant=acme`, { token: VIEW });

    expect(found).toEqual(["acme/e0", "acme/e1", "acme/e2", "beta/e0", "gamma/e0", "gamma/e1"]);
    expect(sizes).toEqual([2, 2, 2]);
    expect(ofOne.json.endpoints).toHaveLength(3);
  });

  it("rejects callers without the right, and unknown endpoints", async () => {
    const disable = `${url}${ONE}/disable`;

    expect((await ask(disable, { token: VIEW, method: "POST" })).status).toBe(403);
    expect((await ask(url + ONE, { token: VIEW })).status).toBe(404);
    expect((await ask(`${url}/api/v1/endpoints/other`, { token: VIEW })).status).toBe(404);
    expect((await ask(disable, { token: ACT, method: "POST" })).json).toMatchObject({
      status: 404,
      code: "ERR_ENDPOINT_MISSING",
    });
    const scoped = await servers.open(sluices.open(), {
      tokens: [{ token: "for-another-queue", role: "act", queues: ["other"] }],
    });
    const token = "for-another-queue";
    expect((await ask(scoped.url + ONE, { token })).status).toBe(403);
    expect((await ask(`${scoped.url}/api/v1/endpoints`, { token })).json).toEqual({ senders: [] });
  });

  it("removes no endpoint for a token of another queue", async () => {
    await hooks.endpoints.put({ ...REF, url: "https://example.com/" });
    const token = "for-another-queue";
    const scoped = await servers.open(sluices.open(), {
      tokens: [{ token, role: "act", queues: ["other"] }],
    });

    const { status } = await ask(`${scoped.url}${ONE}/remove`, { token, method: "POST" });

    expect(status).toBe(403);
    expect(await hooks.endpoints.get(REF)).toMatchObject(REF);
  });

  it("has each of its routes asked by these tests", () => {
    const own = routesOf(server).filter((route) => route.includes("/api/v1/endpoints"));

    expect(own.filter((route) => !asked.has(route))).toEqual([]);
    expect(own.length).toBeGreaterThan(4);
  });
});

describe("a sender that is found by its name", () => {
  it("is not there for a queue that sends no webhooks", async () => {
    const service = sluices.open();
    service.queue("charges", { bucket: service.bucket("stripe", { rate: "1/s" }) });
    const isReported = async (): Promise<boolean> => (await service.overview()).queues.length === 2;
    await waitUntil(isReported, "both are told of");

    expect(await findWebhooks(service, "charges")).toBeUndefined();
    expect(await findWebhooks(service)).toBeDefined();
  });

  it("goes on with an ordered endpoint that its own sender had to leave alone", async () => {
    let answered = 0;
    const receiver = await startReceiver({ answer: () => (answered++ < 2 ? 500 : 200) });
    await hooks.endpoints.put({ ...REF, url: receiver.url, ordered: true });
    hooks.worker();
    await hooks.send({ tenant: "acme", type: "a", data: 1 });
    await hooks.send({ tenant: "acme", type: "a", data: 2 });
    const isAlone = async (): Promise<boolean> => (await hooks.status(REF))?.state === "left alone";
    await waitUntil(isAlone, "its breaker is open");

    await (await findWebhooks(sluices.open()))!.endpoints.enable(REF);

    await waitUntil(async () => (await hooks.status(REF))?.waiting === 0, "all were sent");
    expect(await hooks.status(REF)).toMatchObject({ state: "well", failures: 0 });
  });
});
