import { describe, expect, it } from "vitest";
import { fakeApis } from "../../support/servers/fake-api.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { services } from "../../support/server/service.ts";

const sluices = realSluices();
const servers = services();
const apis = fakeApis();

const VIEW = "view+token.of(this)test";
const CALL = "call%token$of~this-test";
const SLASHED = "view/token/of/this+test";
const NAME = "view-token_of.this~test";
const TOKENS = [
  { token: VIEW, role: "view" as const },
  { token: SLASHED, role: "view" as const },
  { token: NAME, role: "view" as const },
  { token: CALL, role: "call" as const },
];

function base64(text: string): string {
  return Buffer.from(text).toString("base64");
}

/** Encodes all characters, as some libraries do. */
function percentEncoded(text: string): string {
  return [...Buffer.from(text)].map((byte) => `%${byte.toString(16)}`).join("");
}

function basic(user: string, password: string): string {
  return `Basic ${Buffer.from(`${user}:${password}`).toString("base64")}`;
}

describe("a token of this server never goes to an upstream", () => {
  async function start() {
    const api = await apis.start(() => ({ body: "ok" }));
    const sluice = sluices.open();
    sluice.bucket("up", { rate: "1000/s" });
    const forward = { up: { to: api.url } };
    return { api, service: await servers.start(sluice, { tokens: TOKENS, forward }) };
  }

  it.each([
    ["of a reader, as Authorization", { authorization: `Bearer ${VIEW}` }],
    ["its own, twice", { authorization: `Bearer ${CALL}` }],
    ["without a scheme", { authorization: VIEW }],
    ["as a password", { authorization: basic("ann", VIEW) }],
    ["as a user", { authorization: basic(VIEW, "x") }],
    ["in the header of a key", { "x-api-key": VIEW }],
    ["in a cookie", { cookie: `other=${VIEW}` }],
    ["percent-encoded", { "x-mine": encodeURIComponent(VIEW) }],
    ["percent-encoded twice", { "x-mine": percentEncoded(percentEncoded(VIEW)) }],
    [
      "as a password that is percent-encoded",
      { authorization: basic("ann", encodeURIComponent(VIEW)) },
    ],
    ["in base64", { "x-mine": base64(VIEW) }],
    ["in base64 for URLs", { "x-mine": `a=${Buffer.from(`~~?${VIEW}`).toString("base64url")}` }],
    ["in base64 in the middle of a word", { "x-mine": `id/${base64(VIEW)}` }],
    ["in base64 of base64", { "x-mine": base64(base64(VIEW)) }],
    ["as Basic credentials in another header", { "x-forwarded-authorization": basic("u", VIEW) }],
    ["in base64 in a cookie", { cookie: `a=1; t=${base64(VIEW)}; b=2` }],
    ["percent-encoded base64 in a cookie", { cookie: `t=${percentEncoded(base64(VIEW))}` }],
    ["in JSON", { "x-mine": JSON.stringify({ token: VIEW }) }],
    ["with escapes of JSON", { "x-mine": `{"t":"${SLASHED.replaceAll("/", "\\/")}"}` }],
    ["with escapes of characters", { "x-mine": `"${VIEW.replaceAll("+", "\\u002B")}"` }],
    ["as the name of a header", { [NAME]: "1" }],
    ["as the name of a header, in capitals", { [NAME.toUpperCase()]: "1" }],
  ])("%s", async (_how, headers: Record<string, string>) => {
    const { api, service } = await start();

    const { status } = await service.get("/up/x", { "x-sluice-token": CALL, ...headers });

    expect(status).toBe(200);
    const sent = Object.keys(api.calls[0]!.headers).filter((name) => name !== "host");
    expect(sent).toEqual(["connection"]);
  });

  it("as Authorization, where that is what lets the request in", async () => {
    const { api, service } = await start();

    const { status } = await service.get("/up/x", { authorization: `bearer ${CALL}` });

    expect(status).toBe(200);
    expect(api.calls[0]!.headers).not.toHaveProperty("authorization");
  });

  it("as a part of the URL", async () => {
    const { api, service } = await start();
    const headers = { "x-sluice-token": CALL };

    const query = await service.get(`/up/x?key=${encodeURIComponent(VIEW)}`, headers);
    const path = await service.get(`/up/${VIEW}/x`, headers);

    expect([query.status, path.status]).toEqual([400, 400]);
    expect(query.text).toContain("x-sluice-token");
    expect(query.text).not.toContain(VIEW);
    expect(api.calls).toEqual([]);
  });

  it.each([
    ["percent-encoded twice", encodeURIComponent(encodeURIComponent(VIEW))],
    ["in base64", encodeURIComponent(base64(VIEW))],
    ["in base64 for URLs", Buffer.from(`user:${VIEW}`).toString("base64url")],
  ])("as a part of the URL, %s", async (_how, text) => {
    const { api, service } = await start();
    const headers = { "x-sluice-token": CALL };

    const query = await service.get(`/up/x?key=${text}`, headers);
    const path = await service.get(`/up/of/${text.replaceAll("%2F", "_")}/x`, headers);

    expect([query.status, path.status]).toEqual([400, 400]);
    expect(api.calls).toEqual([]);
  });

  it.each([
    ["a key", "Bearer sk-theirs-0123456789abcdefghijklmnopqrstuvwxyz"],
    [
      "a JWT",
      `Bearer ${base64('{"alg":"HS256"}')}.${base64('{"sub":"someone else"}')}.${"Ab3-".repeat(11)}`,
    ],
    ["Basic credentials", basic("someone", "s%2Fecret+password")],
  ])("while the credentials of the upstream pass: %s", async (_what, authorization) => {
    const { api, service } = await start();

    await service.get("/up/x", { "x-sluice-token": CALL, authorization });

    expect(api.calls[0]!.headers["authorization"]).toBe(authorization);
  });
});
