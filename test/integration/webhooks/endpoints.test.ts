import { readFile } from "node:fs/promises";
import { Redis } from "ioredis";
import { describe, expect, inject, it, onTestFinished } from "vitest";
import {
  createKeyPair,
  createSecret,
  verify,
  type PutEndpoint,
  type Webhooks,
} from "sluice/webhooks";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { makeCertificate } from "../../support/servers/certificate.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { openHooks, put, startReceiver } from "../../support/webhooks/open-hooks.ts";

const sluices = realSluices();
const REF = { tenant: "acme", id: "billing" };
const URL_ = "https://example.com/hooks";

/** Everything that Redis has of the test, as text. */
async function dump(): Promise<string> {
  const redis = new Redis(inject("redisUrl"));
  onTestFinished(() => redis.disconnect());
  const texts: string[] = [];
  // Redis lists them in an order that changes as its table of keys grows.
  for (const key of (await redis.keys(`${sluices.prefix()}*`)).toSorted()) {
    // What processes tell of themselves comes when it comes.
    if (key.includes("{:fleet}")) continue;
    const kind = await redis.type(key);
    if (kind === "hash") texts.push(key, JSON.stringify(await redis.hgetall(key)));
    else if (kind === "zset") texts.push(key, ...(await redis.zrange(key, 0, -1)));
    else if (kind === "list") texts.push(key, ...(await redis.lrange(key, 0, -1)));
    else if (kind === "string") texts.push(key, (await redis.get(key)) ?? "");
  }
  return texts.join("\n");
}

async function sent(hooks: Webhooks): Promise<void> {
  await hooks.send({ tenant: "acme", type: "note.made", data: 1 });
}

describe("an endpoint", () => {
  it("is returned as it was put, without its secrets", async () => {
    const hooks = openHooks(sluices);
    const settings = {
      url: URL_,
      types: ["invoice.*"],
      filter: { amount: { gt: 10 } },
      rate: "5/s",
      concurrency: 3,
      scheduleMs: [0, 1_000],
      timeoutMs: 5_000,
      description: "the billing system",
      metadata: { owner: "ann" },
    };

    const made = await hooks.endpoints.put({
      ...REF,
      ...settings,
      headers: { Authorization: "Bearer very-secret" },
    });

    expect(made.secret).toMatch(/^whsec_/);
    expect(made.endpoint).toMatchObject({
      ...REF,
      ...settings,
      headers: ["Authorization"],
      hasCertificate: false,
      secrets: 1,
      disabled: undefined,
    });
    expect(await hooks.endpoints.get(REF)).toEqual(made.endpoint);
    expect(JSON.stringify(made.endpoint)).not.toContain("very-secret");
  });

  it("has its secret, headers and certificate in Redis in encrypted form", async () => {
    const hooks = openHooks(sluices);
    const certificate = await makeCertificate();
    onTestFinished(() => certificate.remove());
    const key = await readFile(certificate.keyFile, "utf8");
    const cert = certificate.pem;
    const secret = createSecret();

    await hooks.endpoints.put({ ...REF, url: URL_, secret, certificate: { cert, key } });
    await hooks.endpoints.put({ ...REF, id: "b", url: URL_, headers: { "x-a": "very-secret" } });
    const made = await put(hooks, { ...REF, id: "c", url: URL_ });
    const text = await dump();

    expect(text).toContain(URL_);
    const [, line] = key.split("\n") as [string, string];
    for (const hidden of [secret.slice(6), made.slice(6), "very-secret", line]) {
      expect(text).not.toContain(hidden);
    }
  });

  it.each([
    ["a reason", { reason: "moved" }, {}, "moved"],
    ["the old name of a reason", { why: "moved" }, {}, "moved"],
    ["a reason of the change", {}, { by: "ann", reason: "moved" }, "moved"],
    ["no reason", {}, { by: "ann" }, "by ann"],
  ])("shows why it is disabled, by %s", async (_what, given, byHand, why) => {
    const hooks = openHooks(sluices);
    await put(hooks, { ...REF, url: "https://example.com/" });

    await hooks.endpoints.disable({ ...REF, ...given }, byHand);

    expect((await hooks.endpoints.get(REF))?.disabled).toMatchObject({ reason: why });
  });

  it("keeps its secret, and whether it is disabled, when it is put again", async () => {
    const hooks = openHooks(sluices);
    const receiver = await startReceiver();
    const secret = await put(hooks, { ...REF, url: receiver.url });
    await hooks.endpoints.disable(REF);

    const again = await hooks.endpoints.put({ ...REF, url: `${receiver.url}/new` });

    expect(again.secret).toBeUndefined();
    expect(again.endpoint.disabled).toMatchObject({ reason: "by hand" });
    expect(await hooks.endpoints.enable(REF)).toBe(true);
    hooks.worker();
    await sent(hooks);
    await waitUntil(() => receiver.arrivals.length === 1, "it has arrived");
    const { path, body, headers } = receiver.arrivals[0]!;
    expect(path).toBe("/new");
    expect(verify({ body, headers, secret }).payload).toBeDefined();
  });

  it("is signed with both secrets while one is rotated, and with one after that", async () => {
    const hooks = openHooks(sluices);
    const receiver = await startReceiver();
    const older = await put(hooks, { ...REF, url: receiver.url });
    hooks.worker();

    const newer = await hooks.endpoints.rotateSecret({ ...REF, graceMs: 60_000 });
    await sent(hooks);
    await waitUntil(() => receiver.arrivals.length === 1, "it has arrived");
    const last = await hooks.endpoints.rotateSecret({ ...REF, graceMs: 0 });
    await sent(hooks);
    await waitUntil(() => receiver.arrivals.length === 2, "it has arrived");

    const [first, second] = receiver.arrivals.map(({ body, headers }) => ({ body, headers }));
    for (const secret of [newer, older])
      expect(verify({ ...first!, secret }).payload).toBeDefined();
    expect(verify({ ...second!, secret: last }).payload).toBeDefined();
    for (const secret of [newer, older]) {
      expect(() => verify({ ...second!, secret })).toThrow("no signature fits");
    }
    expect((await hooks.endpoints.get(REF))?.secrets).toBe(1);
  });

  it("gets a fresh pair where it had a pair", async () => {
    const hooks = openHooks(sluices);
    await hooks.endpoints.put({ ...REF, url: URL_, secret: createKeyPair().secret });

    expect(await hooks.endpoints.rotateSecret(REF)).toMatch(/^whsk_/);
  });

  it("is refused at once where its URL names a private address, and nothing is stored", async () => {
    const hooks = openHooks(sluices, { allow: [] });

    const refused = await rejectionOf(hooks.endpoints.put({ ...REF, url: "http://0x0a000001/a" }));

    expect(refused).toMatchObject({ code: "ERR_INVALID_OPTION", option: "url" });
    expect(refused).toHaveProperty("message", expect.stringContaining('allow: ["10.0.0.1"]'));
    expect(await hooks.endpoints.get(REF)).toBeUndefined();
    const allowing = openHooks(sluices, { allow: ["10.0.0.1"] });
    await put(allowing, { ...REF, url: "http://0x0a000001/a" });
    // A proxy judges the addresses itself.
    const behind = openHooks(sluices, { allow: undefined, proxy: "http://127.0.0.1:9" });
    await put(behind, { ...REF, id: "b", url: "http://10.0.0.1/" });
  });

  it("may set no more than the ceiling", async () => {
    const hooks = openHooks(sluices, { ceiling: { rate: "10/s", concurrency: 5 } });

    await hooks.endpoints.put({ ...REF, url: URL_, rate: "600/min", concurrency: 5 });
    await expect(hooks.endpoints.put({ ...REF, url: URL_, rate: "11/s" })).rejects.toMatchObject({
      option: "rate",
      message: expect.stringContaining("at most 10/s"),
    });
    await expect(hooks.endpoints.put({ ...REF, url: URL_, concurrency: 6 })).rejects.toMatchObject({
      option: "concurrency",
    });
  });

  it("has its limits changed by themselves, within the ceiling", async () => {
    const hooks = openHooks(sluices, { ceiling: { rate: "10/s", concurrency: 5 } });
    const headers = { "x-token": "abc" };
    await put(hooks, { ...REF, url: URL_, rate: "1/s", headers });

    const changed = await hooks.endpoints.setLimits({ ...REF, rate: "10/s", concurrency: 5 });

    expect(changed).toMatchObject({
      rate: "10/s",
      concurrency: 5,
      headers: ["x-token"],
      secrets: 1,
    });
    await expect(hooks.endpoints.setLimits({ ...REF, rate: "601/min" })).rejects.toMatchObject({
      code: "ERR_INVALID_OPTION",
      option: "rate",
    });
    await expect(hooks.endpoints.setLimits({ ...REF, concurrency: 6 })).rejects.toMatchObject({
      option: "concurrency",
    });
    expect(await hooks.endpoints.get(REF)).toEqual(changed);
    expect((await hooks.endpoints.setLimits(REF)).rate).toBeUndefined();
  });

  it("is listed by pages, in the order of the ids", async () => {
    const hooks = openHooks(sluices);
    const ids = Array.from({ length: 25 }, (_each, at) => `e-${String(at).padStart(2, "0")}`);
    await Promise.all(ids.toReversed().map((id) => put(hooks, { ...REF, id, url: URL_ })));
    const found: string[] = [];

    let cursor: string | undefined;
    do {
      const page = await hooks.endpoints.list({ tenant: "acme", limit: 10, cursor });
      found.push(...page.endpoints.map(({ id }) => id));
      cursor = page.cursor;
    } while (cursor !== undefined);

    expect(found).toEqual(ids);
  });

  it("is put by two processes at once, and one of them loses nothing of the other", async () => {
    const [one, two] = [openHooks(sluices), openHooks(sluices)];
    await put(one, { ...REF, url: URL_ });

    await Promise.all([
      ...Array.from({ length: 5 }, () => one.endpoints.rotateSecret({ ...REF, graceMs: 60_000 })),
      ...Array.from({ length: 5 }, () => two.endpoints.put({ ...REF, url: `${URL_}/2` })),
    ]);

    expect(await one.endpoints.get(REF)).toMatchObject({ url: `${URL_}/2`, secrets: 4 });
  });
});

const TOKEN_HEADERS = { "x-token": "hunter2", "x-b": "a\nb" };

const PEM = "-----BEGIN CERTIFICATE-----\nhunter2\n-----END CERTIFICATE-----";
const PROTO = JSON.parse('{"__proto__":{"eq":1}}') as object;

it("the style of an endpoint is not changed to one that its secret cannot sign in", async () => {
  const hooks = openHooks(sluices);
  const secret = "a plain text, as GitHub has";
  const github = { ...REF, url: URL_, signature: "github" } as const;
  await hooks.endpoints.put({ ...github, secret });

  await expect(hooks.endpoints.put({ ...REF, url: URL_ })).rejects.toMatchObject({
    code: "ERR_INVALID_OPTION",
    option: "signature",
    message: expect.not.stringContaining(secret),
  });
  await hooks.endpoints.put({ ...github, signature: "stripe" });
  await hooks.endpoints.put({ ...REF, url: URL_, secret: createSecret() });
  await hooks.endpoints.put(github);

  expect((await hooks.endpoints.get(REF))?.signature).toBe("github");
});

describe("bad input", () => {
  it.each<[string, keyof Webhooks["endpoints"], object, string]>([
    ["a URL of HTTP", "put", { ...REF, url: "http://example.com" }, "url"],
    ["no URL", "put", REF, "url"],
    [
      "a certificate that is none",
      "put",
      {
        ...REF,
        url: URL_,
        certificate: { cert: PEM, key: PEM.replaceAll("CERTIFICATE", "PRIVATE KEY") },
      },
      "certificate",
    ],
    ["a filter that would be lost", "put", { ...REF, url: URL_, filter: PROTO }, "filter"],
    ["a header that would be lost", "put", { ...REF, url: URL_, headers: PROTO }, "headers"],
    ["a text that would be lost", "put", { ...REF, url: URL_, metadata: PROTO }, "metadata"],
    ["no tenant", "put", { id: "a", url: URL_ }, "tenant"],
    ["no id", "put", { tenant: "a", url: URL_ }, "id"],
    ["an id with a slash", "put", { ...REF, id: "a/b", url: URL_ }, "id"],
    [
      "a header that ends its line",
      "put",
      { ...REF, url: URL_, headers: { a: "b\r\nc" } },
      "headers",
    ],
    ["a header beside a token", "put", { ...REF, url: URL_, headers: TOKEN_HEADERS }, "headers"],
    [
      "a header that is no text",
      "put",
      { ...REF, url: URL_, headers: { a: ["hunter2"] } },
      "headers",
    ],
    [
      "a key that is no PEM",
      "put",
      { ...REF, url: URL_, certificate: { cert: "-----BEGIN CERTIFICATE-----", key: "hunter2" } },
      "certificate.key",
    ],
    ["a list of secrets", "put", { ...REF, url: URL_, secret: ["hunter2"] }, "secret"],
    ["a wildcard in the middle", "put", { ...REF, url: URL_, types: ["a.*.b"] }, "types"],
    ["an unknown operator", "put", { ...REF, url: URL_, filter: { a: { regex: ".*" } } }, "regex"],
    ["a condition that is none", "put", { ...REF, url: URL_, filter: { a: 1 } }, "filter.a"],
    ["a rate that is none", "put", { ...REF, url: URL_, rate: "fast" }, "rate"],
    ["a secret that is none", "put", { ...REF, url: URL_, secret: "hunter2" }, "secret"],
    [
      "a key that only verifies",
      "put",
      { ...REF, url: URL_, secret: createKeyPair().publicKey },
      "secret",
    ],
    ["an unknown option", "put", { ...REF, url: URL_, event: "a" }, "event"],
    ["a limit of none", "list", { tenant: "a", limit: 0 }, "limit"],
    ["no tenant", "list", {}, "tenant"],
    ["an unknown option", "get", { ...REF, url: URL_ }, "url"],
    ["an unknown option", "remove", { ...REF, force: true }, "force"],
    ["a reason of two lines", "disable", { ...REF, why: "a\nb" }, "why"],
    ["an unknown option", "enable", { ...REF, why: "a" }, "why"],
    ["a long grace", "rotateSecret", { ...REF, graceMs: 8 * 86_400_000 }, "graceMs"],
    ["a secret that is none", "rotateSecret", { ...REF, secret: "hunter2" }, "secret"],
  ])("is refused: %s to %s()", async (_what, method, given, option) => {
    const hooks = openHooks(sluices, { http: false });
    await put(hooks, { ...REF, url: URL_ });
    const before = await dump();

    const call = hooks.endpoints[method] as (given: object) => Promise<unknown>;

    await expect(call(given as PutEndpoint)).rejects.toMatchObject({
      code: "ERR_INVALID_OPTION",
      option: expect.stringContaining(option),
    });
    await expect(call(given)).rejects.not.toThrow("hunter2");
    expect(await dump()).toBe(before);
  });

  it("is refused: more arguments than one", async () => {
    const hooks = openHooks(sluices);

    const { endpoints } = hooks as unknown as {
      endpoints: { get(...given: readonly object[]): Promise<unknown> };
    };

    await expect(endpoints.get(REF, { url: URL_ })).rejects.toMatchObject({
      code: "ERR_INVALID_OPTION",
    });
  });
});
