import { randomBytes } from "node:crypto";
import { describe, expect, it } from "vitest";
import { createSluice } from "sluice";
import {
  createSecret,
  createWebhooks,
  verify,
  type Webhooks,
  type WebhooksOptions,
} from "sluice/webhooks";
import { waitUntil } from "../../support/async/wait-until.ts";
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
const REF = { tenant: "acme", id: "billing" };

async function sent(hooks: Webhooks): Promise<void> {
  await hooks.send({ tenant: "acme", type: "note.made", data: 1 });
}

describe("the keys of secrets", () => {
  const [first, second] = [1, 2].map((at) => `k${at}:${randomBytes(32).toString("base64")}`);

  it("can be rotated: the first one seals, and all open", async () => {
    const receiver = await startReceiver();
    const secret = await put(openHooks(sluices, { keys: first }), { ...REF, url: receiver.url });

    const hooks = openHooks(sluices, { keys: `${second},${first}` });
    const newer = await hooks.endpoints.rotateSecret({ ...REF, graceMs: 60_000 });
    hooks.worker();
    await sent(hooks);

    await waitUntil(() => receiver.arrivals.length === 1, "it has arrived");
    const { body, headers } = receiver.arrivals[0]!;
    for (const each of [secret, newer]) {
      expect(verify({ body, headers, secret: each }).payload).toBeDefined();
    }
  });

  it("hold back what was sealed with a lost one, until it is there again or the secret is new", async () => {
    const receiver = await startReceiver();
    await put(openHooks(sluices, { keys: first }), { ...REF, url: receiver.url });
    const heard: string[] = [];
    const logger = { warn: (_facts: object, text: string) => heard.push(text), error: () => {} };
    const hooks = openHooks(sluices, { keys: second }, logger);
    hooks.worker();

    await sent(hooks);

    await waitUntil(() => heard.some((text) => text.includes('with key "k1"')), "it is heard");
    expect(receiver.arrivals).toEqual([]);
    // With the old one beside it, nothing would be sent until that has ended.
    const refused = { code: "ERR_INVALID_OPTION", option: "graceMs" };
    await expect(hooks.endpoints.rotateSecret(REF)).rejects.toMatchObject(refused);
    const secret = await hooks.endpoints.rotateSecret({ ...REF, graceMs: 0 });
    await waitUntil(() => receiver.arrivals.length === 1, "it has arrived");
    const { body, headers } = receiver.arrivals[0]!;
    expect(verify({ body, headers, secret }).payload).toBeDefined();
  });

  it("are not shown by what is said of secrets that are none", async () => {
    const heard: string[] = [];
    const logger = { warn: (_facts: object, text: string) => heard.push(text), error: () => {} };
    const secretsOf = (() => ({ value: ["hunter2"] })) as never;
    const hooks = openHooks(sluices, { secretsOf }, logger);
    await hooks.endpoints.put({ ...REF, url: "http://127.0.0.1:9/" });
    hooks.worker();

    await sent(hooks);

    await waitUntil(() => heard.some((text) => text.includes("secretsOf()")), "it is heard");
    expect(heard.join("\n")).not.toContain("hunter2");
    const { entries } = await hooks.attempts.list({ tenant: "acme", endpoint: REF.id });
    expect(entries[0]).toMatchObject({ outcome: "ours", error: "The sender could not send it." });
  });

  it("are not needed where the secrets are kept elsewhere", async () => {
    const receiver = await startReceiver();
    const [newer, older] = [createSecret(), createSecret()];
    const asked: unknown[] = [];
    const options: WebhooksOptions = {
      keys: undefined,
      secretsOf: (of) => (asked.push(of), [newer, older]),
    };
    const hooks = openHooks(sluices, options);

    const made = await hooks.endpoints.put({ ...REF, url: receiver.url });
    hooks.worker();
    await sent(hooks);

    await waitUntil(() => receiver.arrivals.length === 1, "it has arrived");
    expect(made).toMatchObject({ secret: undefined, endpoint: { secrets: 0 } });
    expect(asked).toEqual([REF]);
    const { body, headers } = receiver.arrivals[0]!;
    for (const secret of [newer, older]) expect(verify({ body, headers, secret }).id).toBeDefined();
    for (const more of [{ secret: newer }, { headers: { "x-a": "b" } }]) {
      const putting = hooks.endpoints.put({ ...REF, url: receiver.url, ...more });
      await expect(putting).rejects.toMatchObject({ option: Object.keys(more)[0] });
    }
    await expect(hooks.endpoints.rotateSecret(REF)).rejects.toMatchObject({ option: "secretsOf" });
  });

  it("seal headers alone where the secrets are kept elsewhere", async () => {
    const secretsOf = (): string => createSecret();
    const hooks = openHooks(sluices, { secretsOf });
    const endpoint = { ...REF, url: "http://127.0.0.1:9/" };

    const made = await hooks.endpoints.put({ ...endpoint, headers: { "x-a": "b" } });

    expect(made).toMatchObject({ secret: undefined, endpoint: { secrets: 0, headers: ["x-a"] } });
    const putting = hooks.endpoints.put({ ...endpoint, secret: createSecret() });
    await expect(putting).rejects.toMatchObject({ option: "secret" });
    await expect(hooks.endpoints.rotateSecret(REF)).rejects.toMatchObject({ option: "secretsOf" });
  });

  it("are required: an endpoint whose secret is kept elsewhere gets nothing unsigned", async () => {
    const receiver = await startReceiver();
    const elsewhere = openHooks(sluices, { secretsOf: () => createSecret() });
    await elsewhere.endpoints.put({ ...REF, url: receiver.url });
    const heard: string[] = [];
    const logger = { warn: (_facts: object, text: string) => heard.push(text), error: () => {} };
    const hooks = openHooks(sluices, {}, logger);
    hooks.worker();

    await sent(hooks);

    await waitUntil(() => heard.some((text) => text.includes("no secret")), "it is heard");
    expect(receiver.arrivals).toEqual([]);
    const secret = await put(hooks, { ...REF, url: receiver.url });
    await waitUntil(() => receiver.arrivals.length === 1, "it has arrived");
    const { body, headers } = receiver.arrivals[0]!;
    expect(verify({ body, headers, secret }).payload).toBeDefined();
  });

  it.each([
    ["none at all", {}, "$SLUICE_WEBHOOK_KEYS"],
    ["a list of them", { keys: [KEYS] }, "keys"],
    ["one without an id", { keys: randomBytes(32).toString("base64") }, "keys"],
    ["a short one", { keys: `k1:${randomBytes(16).toString("base64")}` }, "keys"],
    ["one id for two", { keys: `${KEYS},${KEYS}` }, "keys"],
    ["a tenant to tell where there is one", { singleTenant: true, operator: "ops" }, "operator"],
    ["a range of addresses that is none", { allow: ["10.0.0.1/8"] }, "allow"],
    ["a range with a proxy", { proxy: "http://127.0.0.1:1", allow: ["10.0.0.0/8"] }, "allow"],
    ["a wait that is none", { scheduleMs: [] }, "scheduleMs"],
    ["a long time for an attempt", { timeoutMs: 60_000 }, "timeoutMs"],
    ["a rate that is none", { rate: "fast" }, "rate"],
    ["limits of endpoints that are none", { perEndpoint: { rate: "fast" } }, "rate"],
    ["an unknown option", { tenants: ["a"] }, "tenants"],
  ])("and other options are refused: %s", (_what, wrong, option) => {
    const sluice = sluices.open({ logger: SILENT });
    const given = {
      ...(option.startsWith("$") || "keys" in wrong ? {} : { keys: KEYS }),
      ...wrong,
    };

    expect(() => createWebhooks(sluice, given as WebhooksOptions)).toThrow(
      expect.objectContaining({
        message: expect.not.stringContaining(KEYS),
        code: "ERR_INVALID_OPTION",
        option: expect.stringContaining(option),
      }),
    );
  });

  it("need Redis, and a sluice", () => {
    const sluice = createSluice({ logger: { warn() {}, error() {} } });

    expect(() => createWebhooks(sluice, LOCAL)).toThrow(
      expect.objectContaining({ code: "ERR_REDIS_REQUIRED" }),
    );
    expect(() => createWebhooks({} as never, LOCAL)).toThrow(
      expect.objectContaining({ option: "sluice" }),
    );
  });
});
