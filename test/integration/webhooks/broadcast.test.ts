import { describe, expect, inject, it } from "vitest";
import type { Webhooks } from "sluice/webhooks";
import { waitUntil } from "../../support/async/wait-until.ts";
import { scriptProcesses, type ScriptProcess } from "../../support/children/script-process.ts";
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
const EVENT = { type: "status.changed", data: { is: "degraded" } };
const TENANTS = 300;

function startBroadcaster(id: string, tenants: readonly string[] = []): ScriptProcess {
  const env = {
    REDIS_URL: inject("redisUrl"),
    SLUICE_PREFIX: sluices.prefix(),
    SLUICE_WEBHOOK_KEYS: KEYS,
  };
  const file = "test/support/processes/webhook-broadcaster.ts";
  return scripts.start(file, { env, args: [id, ...tenants] });
}

const nameOf = (at: number): string => `t-${String(at).padStart(4, "0")}`;

/** Each tenant has one endpoint, and every third one more. */
async function putMany(hooks: Webhooks, url: string): Promise<void> {
  for (let at = 0; at < TENANTS; at++) {
    const tenant = nameOf(at);
    await put(hooks, { tenant, id: "a", url: `${url}/${tenant}/a` });
    if (at % 3 === 0) await put(hooks, { tenant, id: "b", url: `${url}/${tenant}/b` });
  }
}

describe("broadcast()", () => {
  it("reaches the endpoints of all tenants that want it, each as a message of its tenant", async () => {
    const hooks = openHooks(sluices);
    const receiver = await startReceiver();
    const put_ = (tenant: string, id: string, more: object = {}): Promise<string> =>
      put(hooks, { tenant, id, url: `${receiver.url}/${tenant}/${id}`, ...more });
    await put_("acme", "all");
    await put_("acme", "orders", { types: ["order.*"] });
    await put_("acme", "off");
    await hooks.endpoints.disable({ tenant: "acme", id: "off" });
    await put_("globex", "status", { types: ["status.*"], filter: { is: { eq: "degraded" } } });
    await put_("hooli", "orders", { types: ["order.*"] });
    hooks.worker();

    const sent = await hooks.broadcast({ ...EVENT, id: "b-1" });

    expect(sent).toEqual({ id: "b-1", isNew: true, tenants: 2, endpoints: 2 });
    await waitUntil(() => receiver.arrivals.length === 2, "they have arrived");
    await untilIdle(hooks);
    expect(receiver.arrivals.map(({ path }) => path).toSorted()).toEqual([
      "/acme/all",
      "/globex/status",
    ]);
    const seen = receiver.arrivals.map(({ headers, body }) => [headers["webhook-id"], body]);
    expect(seen[0]).toEqual(seen[1]);
    expect((await hooks.messages.get({ tenant: "acme", id: "b-1" }))?.data).toEqual(EVENT.data);
    expect(await hooks.messages.get({ tenant: "hooli", id: "b-1" })).toBeUndefined();
  });

  it("reaches no other tenants than those that it names", async () => {
    const hooks = openHooks(sluices);
    const receiver = await startReceiver();
    for (const tenant of ["acme", "globex", "hooli"]) {
      await put(hooks, { tenant, id: "a", url: `${receiver.url}/${tenant}` });
    }
    hooks.worker();

    const tenants = ["hooli", "acme", "acme", "nobody"];
    const sent = await hooks.broadcast({ ...EVENT, tenants });

    expect(sent).toMatchObject({ tenants: 2, endpoints: 2 });
    await waitUntil(() => receiver.arrivals.length === 2, "they have arrived");
    await untilIdle(hooks);
    expect(receiver.arrivals.map(({ path }) => path).toSorted()).toEqual(["/acme", "/hooli"]);
    expect(await hooks.broadcast({ ...EVENT, tenants: [] })).toMatchObject({ tenants: 0 });
  });

  it("is sent once, however often it is broadcast with its id, and by two processes at once", async () => {
    const hooks = openHooks(sluices);
    const receiver = await startReceiver();
    await putMany(hooks, receiver.url);
    hooks.worker();

    const senders = [startBroadcaster("b-1"), startBroadcaster("b-1")];
    expect(await Promise.all(senders.map(({ ended }) => ended))).toEqual([0, 0]);
    const again = await hooks.broadcast({ ...EVENT, id: "b-1" });

    expect(senders.map(({ stdout }) => stdout.trim())).toEqual(["300 400", "300 400"]);
    expect(again).toEqual({ id: "b-1", isNew: false, tenants: 300, endpoints: 400 });
    await waitUntil(() => receiver.arrivals.length >= 400, "all have arrived");
    await untilIdle(hooks);
    expect(receiver.arrivals).toHaveLength(400);
    expect(new Set(receiver.arrivals.map(({ path }) => path)).size).toBe(400);
  });

  it("goes on where a process was killed, with what that one said", async () => {
    const hooks = openHooks(sluices);
    const receiver = await startReceiver();
    await putMany(hooks, receiver.url);
    const killed = startBroadcaster("b-1");
    const has = (at: number): Promise<boolean> =>
      hooks.messages.get({ tenant: nameOf(at), id: "b-1" }).then((found) => found !== undefined);
    await waitUntil(() => has(100), "it is on its way");
    killed.signal("SIGKILL");
    expect(await killed.ended).toBeNull();
    expect(await has(TENANTS - 1)).toBe(false);

    const sent = await hooks.broadcast({ ...EVENT, id: "b-1" });

    expect(sent).toEqual({ id: "b-1", isNew: false, tenants: 300, endpoints: 400 });
    hooks.worker();
    await waitUntil(() => receiver.arrivals.length >= 400, "all have arrived");
    await untilIdle(hooks);
    expect(receiver.arrivals).toHaveLength(400);
    expect(new Set(receiver.arrivals.map(({ body }) => body)).size).toBe(1);
    expect(JSON.parse(receiver.arrivals[0]!.body)).toMatchObject({ data: { id: "b-1" } });
  });

  it("goes on to no other tenants than those that it named, whatever the next call says", async () => {
    const hooks = openHooks(sluices);
    await putMany(hooks, "http://127.0.0.1:9");
    const named = Array.from({ length: 280 }, (_each, at) => nameOf(at));
    const killed = startBroadcaster("b-1", named);
    const has = (at: number): Promise<boolean> =>
      hooks.messages.get({ tenant: nameOf(at), id: "b-1" }).then((found) => found !== undefined);
    await waitUntil(() => has(40), "it is on its way");
    killed.signal("SIGKILL");
    expect(await killed.ended).toBeNull();
    expect(await has(279)).toBe(false);

    const sent = await hooks.broadcast({ ...EVENT, id: "b-1" });

    expect(sent).toEqual({ id: "b-1", isNew: false, tenants: 280, endpoints: 374 });
    expect(await has(279)).toBe(true);
    expect(await has(280)).toBe(false);
  });

  it("is for the endpoints of the one tenant, where there is one", async () => {
    const hooks = openHooks(sluices, { singleTenant: true });
    const receiver = await startReceiver();
    await hooks.endpoints.put({ id: "a", url: receiver.url });
    hooks.worker();

    expect(await hooks.broadcast(EVENT)).toMatchObject({ tenants: 1, endpoints: 1 });
    await waitUntil(() => receiver.arrivals.length === 1, "it has arrived");
    await expect(hooks.broadcast({ ...EVENT, tenants: ["a"] })).rejects.toMatchObject({
      option: "tenants",
    });
  });

  it.each([
    ["no type", { type: undefined }, "type"],
    ["no data", { data: undefined }, "data"],
    ["too much data", { data: "x".repeat(256 * 1_024) }, "data"],
    ["a tenant that is none", { tenants: ["a/b"] }, "tenants[0]"],
    ["one tenant in place of a list", { tenants: "acme" }, "tenants"],
    ["one tenant as of send()", { tenant: "acme" }, "tenant"],
    ["an id with a dot", { id: "b.1" }, "id"],
  ])("refuses %s, and stores nothing", async (_what, wrong, option) => {
    const hooks = openHooks(sluices);
    const id = "b-2";

    const call = hooks.broadcast({ ...EVENT, id, ...wrong } as never);

    await expect(call).rejects.toMatchObject({ code: "ERR_INVALID_OPTION", option });
    expect((await hooks.broadcast({ ...EVENT, id })).isNew).toBe(true);
  });
});
