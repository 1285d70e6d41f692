import { describe, expect, inject, it } from "vitest";
import type { Webhooks } from "sluice/webhooks";
import { runCli } from "../../support/children/run-cli.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import {
  KEYS,
  openHooks,
  put,
  startReceiver,
  untilIdle,
} from "../../support/webhooks/open-hooks.ts";

const sluices = realSluices();

/** Runs `sluice endpoints` beside the sender of the test. */
function endpoints(args: readonly string[], env: Record<string, string | undefined> = {}) {
  const own = { REDIS_URL: inject("redisUrl"), SLUICE_BY: "ann", SLUICE_WEBHOOK_KEYS: KEYS };
  return runCli(["--prefix", sluices.prefix(), "endpoints", ...args], { ...own, ...env });
}

async function json<Answer>(...args: string[]): Promise<Answer> {
  const { out, err } = await endpoints([...args, "--json"]);
  expect(err).toBe("");
  return JSON.parse(out) as Answer;
}

/** A sender with an endpoint of acme's, and one of another tenant with the same id. */
async function openSender() {
  const receiver = await startReceiver();
  const hooks = openHooks(sluices, { rate: "100/s" });
  const endpoint = { id: "billing", url: `${receiver.url}/hooks` };
  const secret = await put(hooks, { tenant: "acme", ...endpoint, headers: { "x-own": "private" } });
  await put(hooks, { tenant: "globex", ...endpoint });
  const service = sluices.open();
  const isReported = async (): Promise<boolean> => (await service.overview()).queues.length === 1;
  await waitUntil(isReported, "the sender is told of");
  return { hooks, receiver, secret };
}

async function whyDisabled(hooks: Webhooks, tenant = "acme"): Promise<string | undefined> {
  return (await hooks.endpoints.get({ tenant, id: "billing" }))!.disabled?.reason;
}

describe("sluice endpoints", () => {
  it("shows tenants, the endpoints of one, and one of them, without its secrets", async () => {
    const { receiver, secret } = await openSender();

    const tenants = await endpoints(["tenants"]);
    const list = await endpoints(["list", "--tenant", "acme"]);
    const show = await endpoints(["show", "billing", "--tenant", "acme"]);
    const facts = await endpoints(["show", "billing", "--tenant", "acme", "--json"]);
    const keyless = await endpoints(["list", "--tenant", "acme"], { SLUICE_WEBHOOK_KEYS: "" });

    expect(tenants.out).toBe("TENANT\nacme\nglobex\n");
    expect(list.out).toMatch(
      /^ENDPOINT +SENDS TO +TYPES +STATE\nbilling +http\S+ +all +enabled\n$/,
    );
    expect(show.out).toContain(`url:         ${receiver.url}/hooks`);
    expect(show.out).toContain("secrets:     1 active");
    expect(JSON.parse(facts.out)).toMatchObject({ tenant: "acme", id: "billing", secrets: 1 });
    for (const { out } of [list, show, facts]) {
      expect(out).not.toContain(secret);
      expect(out).not.toContain("private");
    }
    expect(keyless).toEqual(list);
  });

  it("adds an endpoint whose secret it prints once, and replaces no existing endpoint", async () => {
    const { hooks, receiver } = await openSender();
    const add = ["add", "orders", `${receiver.url}/orders`, "--tenant", "acme", "--http"];

    const added = await endpoints([...add, "--types", "order.*", "--rate", "5/s"]);
    const again = await endpoints(add);
    const [keyless] = [await endpoints(add, { SLUICE_WEBHOOK_KEYS: undefined })];

    expect(added.out).toMatch(/^orders was added\. Its secret, shown this once:\nwhsec_\S+\n$/);
    const stored = await hooks.endpoints.get({ tenant: "acme", id: "orders" });
    expect(stored).toMatchObject({ types: ["order.*"], secrets: 1 });
    expect(again).toMatchObject({ code: 2, out: "" });
    expect(keyless.err).toContain("$SLUICE_WEBHOOK_KEYS");
    expect(await hooks.endpoints.get({ tenant: "acme", id: "orders" })).toEqual(stored);
  });

  it("adds no endpoint at a private address that the services do not allow", async () => {
    const { hooks } = await openSender();
    const add = ["add", "inner", "http://10.1/hooks", "--tenant", "acme", "--http"];

    const refused = await endpoints(add);
    const added = await endpoints([...add, "--allow", "10.0.0.0/8"]);

    expect(refused).toMatchObject({ code: 2, out: "" });
    expect(refused.err).toContain("10.0.0.1");
    expect(added.code).toBe(0);
    expect(await hooks.endpoints.get({ tenant: "acme", id: "inner" })).toBeDefined();
  });

  it("disables and enables the endpoint of one tenant, and logs the author", async () => {
    const { hooks } = await openSender();

    const disabled = await endpoints(["disable", "billing", "--tenant", "acme"]);
    expect(await whyDisabled(hooks)).toBe("by ann");
    expect(await whyDisabled(hooks, "globex")).toBeUndefined();
    const again = await json("disable", "billing", "--tenant", "acme", "--reason", "by phone");
    const enabled = await endpoints(["enable", "billing", "--tenant", "acme"]);

    expect(disabled).toMatchObject({ code: 0, out: "billing is disabled.\n" });
    expect(again).toEqual({ changed: false });
    expect(enabled.out).toContain("billing is enabled.");
    expect(await whyDisabled(hooks)).toBeUndefined();
  });

  it("lists a message as not sent if its endpoint was disabled before its turn", async () => {
    const { hooks } = await openSender();
    await hooks.send({ tenant: "acme", type: "note", data: 1 });
    await hooks.endpoints.disable({ tenant: "acme", id: "billing" });
    hooks.worker();
    await untilIdle(hooks);

    const { out } = await endpoints(["log", "billing", "--tenant", "acme"]);

    expect(out).toMatch(/ billing +1 +not sent +- .* The endpoint is disabled/);
  });

  it("rotates a secret and prints the new one, which signs from then on", async () => {
    const { hooks, receiver, secret: before } = await openSender();

    const { secret } = await json<{ secret: string }>(
      "rotate-secret",
      "billing",
      "--tenant",
      "acme",
    );
    hooks.worker();
    await hooks.send({ tenant: "acme", type: "invoice.paid", data: {} });
    await untilIdle(hooks);

    expect(secret).not.toBe(before);
    const [call] = receiver.arrivals;
    expect(String(call!.headers["webhook-signature"]).split(" ")).toHaveLength(2);
    const { out } = await endpoints(["show", "billing", "--tenant", "acme", "--json"]);
    expect(JSON.parse(out)).toMatchObject({ secrets: 2 });
    expect(out).not.toContain(secret);
  });

  it("sends a test, shows the log, and resends failed messages at the sender's rate", async () => {
    const { hooks, receiver } = await openSender();
    await hooks.endpoints.disable({ tenant: "acme", id: "billing" });
    hooks.worker();
    await endpoints(["enable", "billing", "--tenant", "acme"]);

    const tested = await json<{ id: string }>("test", "billing", "--tenant", "acme");
    await untilIdle(hooks);
    const log = await endpoints(["log", "billing", "--tenant", "acme"]);
    const message = await endpoints(["log", "--message", tested.id, "--tenant", "acme"]);
    const others = await endpoints(["log", "billing", "--tenant", "globex"]);
    const replay = ["replay", "--message", tested.id, "--tenant", "acme"];
    const replayed = await endpoints(replay);
    await untilIdle(hooks);
    const everything = await json("replay", "--all", "--tenant", "acme");
    await untilIdle(hooks);
    const nothing = await json("recover", "billing", "--since", "1h", "--tenant", "acme");

    expect(log.out).toMatch(/^ENDED +MESSAGE .*\n2\S+ +\S+ +billing +1 \(test\) +success +200 /);
    expect(message.out).toBe(log.out);
    expect(others.out).toBe("No attempt matches.\n");
    expect(replayed.out).toBe("1 message was stored to be sent again.\n");
    expect(everything).toEqual({ replayed: 1 });
    expect(nothing).toEqual({ recovered: 0 });
    expect(receiver.arrivals).toHaveLength(3);
    const { entries } = await hooks.attempts.list({ tenant: "acme", endpoint: "billing" });
    expect(entries[0]).toMatchObject({ purpose: "replay", by: "ann" });
    const status = await hooks.queue.bucket.status();
    expect(status).toMatchObject({ source: "code", capPerSecond: 100 });
  });

  it("requires a tenant for several tenants, refuses one for a single tenant, and has exit codes", async () => {
    await openSender();

    const [noTenant, noEndpoint, noMessage, noYes, all] = await Promise.all([
      endpoints(["list"]),
      endpoints(["disable", "orders", "--tenant", "acme"]),
      endpoints(["replay", "--message", "msg_none", "--tenant", "acme"]),
      endpoints(["remove", "billing", "--tenant", "acme"]),
      endpoints(["replay", "--tenant", "acme"]),
    ]);
    const noSender = await endpoints(["list", "--sender", "hooks", "--tenant", "acme"]);
    const removed = await endpoints(["remove", "billing", "--yes", "--tenant", "acme"]);

    expect(noTenant).toMatchObject({ code: 2, err: expect.stringContaining("acme, globex") });
    expect([noEndpoint.code, noMessage.code, noSender.code]).toEqual([3, 3, 3]);
    expect([noYes.code, all.code]).toEqual([2, 2]);
    expect(removed.out).toBe("billing was removed.\n");
  });

  it("needs no tenant where the sender has only one", async () => {
    const receiver = await startReceiver();
    const hooks = openHooks(sluices, { singleTenant: true, name: "mine" });
    await put(hooks, { id: "billing", url: receiver.url });
    const service = sluices.open();
    await waitUntil(async () => (await service.overview()).queues.length === 1, "it is told of");

    const shown = await endpoints(["list", "--sender", "mine"]);

    expect(shown.out).toContain("billing");
  });
});
