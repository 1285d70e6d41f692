import { describe, expect, it } from "vitest";
import type { ForwardedRequest } from "sluice/server";
import { fakeApis } from "../../support/servers/fake-api.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { services } from "../../support/server/service.ts";

const sluices = realSluices();
const servers = services();
const apis = fakeApis();

const SLOW = "1/h";

describe("the keys of a forward", () => {
  it.each([
    ["a header", { header: "X-Tenant" }, "/up/v1/x", { "x-tenant": "acme" }],
    ["the path", "path" as const, "/up/acme/v1/x", {}],
    [
      "a function",
      ({ headers }: ForwardedRequest) => String(headers["x-org"]),
      "/up/v1/x",
      { "x-org": "acme" },
    ],
  ])("come from %s", async (_what, key, path, headers) => {
    const api = await apis.start(() => ({ body: "ok" }));
    const sluice = sluices.open();
    const bucket = sluice.bucket("up", { perKey: { rate: SLOW } });
    const service = await servers.start(sluice, { forward: { up: { to: api.url, key } } });

    const first = await service.get(path, headers as Record<string, string>);

    expect(first.status).toBe(200);
    expect(api.calls[0]!.path).toBe("/v1/x");
    expect((await bucket.tryDraw({ key: "acme" })).allowed).toBe(false);
    expect((await bucket.tryDraw({ key: "other" })).allowed).toBe(true);
  });

  it("are needed, and credentials are hashed", async () => {
    const api = await apis.start(() => ({ body: "ok" }));
    const sluice = sluices.open();
    const bucket = sluice.bucket("up", { perKey: { rate: SLOW } });
    const service = await servers.start(sluice, {
      forward: { up: { to: api.url, key: { header: "authorization" } } },
    });

    const without = await service.get("/up/x");
    const secret = await service.get("/up/x", { authorization: "Bearer sk-secret" });

    expect(without).toMatchObject({ status: 400, json: { option: "authorization" } });
    expect(secret.status).toBe(200);
    expect((await bucket.tryDraw({ key: "Bearer sk-secret" })).allowed).toBe(true);
    expect(api.calls).toHaveLength(1);
    expect(api.calls[0]!.headers["authorization"]).toBe("Bearer sk-secret");
  });
});
