import { describe, expect, it } from "vitest";
import { fakeApis } from "../../support/servers/fake-api.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { services } from "../../support/server/service.ts";

const sluices = realSluices();
const servers = services();
const apis = fakeApis();

const VIEW = "view+token.of(this)test";
const CALL = "call%token$of~this-test";
const TOKENS = [
  { token: VIEW, role: "view" as const },
  { token: CALL, role: "call" as const },
];

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

  it("while the credentials of the upstream pass", async () => {
    const { api, service } = await start();

    await service.get("/up/x", { "x-sluice-token": CALL, authorization: "Bearer sk-theirs" });

    expect(api.calls[0]!.headers["authorization"]).toBe("Bearer sk-theirs");
  });
});
