import { once } from "node:events";
import { connect } from "node:net";
import { describe, expect, it } from "vitest";
import { budget } from "sluice";
import { fakeApis } from "../../support/servers/fake-api.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { services } from "../../support/server/service.ts";

const sluices = realSluices();
const servers = services();
const apis = fakeApis();

it("a forward refuses requests that do not fit into a budget, and forbids retries", async () => {
  const api = await apis.start(() => ({ body: "inside" }));
  const sluice = sluices.open();
  const limits = [budget({ unit: "usd", amount: 1, per: "year", httpStatus: 402 })];
  sluice.bucket("up", { limits, cost: { usd: 0.6 } });
  const service = await servers.start(sluice, { forward: { up: { to: api.url } } });

  const [first, second] = [await service.get("/up/x"), await service.get("/up/x")];

  expect([first.status, second.status]).toEqual([200, 402]);
  expect(second.json).toMatchObject({ code: "ERR_BUDGET_SPENT", spent: 0.6, amount: 1 });
  expect(second.headers["x-should-retry"]).toBe("false");
  expect(Number(second.headers["retry-after"])).toBeGreaterThan(1);
  expect(api.calls).toHaveLength(1);
});

describe("the target of a forward", () => {
  /** What a server answers to the bytes of a request, which no client would normalise. */
  async function raw(url: string, head: string): Promise<string> {
    const { hostname, port } = new URL(url);
    const socket = connect(Number(port), hostname);
    await once(socket, "connect");
    socket.write(`${head}\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n`);
    let answer = "";
    socket.on("data", (chunk) => (answer += String(chunk)));
    await once(socket, "close");
    return answer;
  }

  it.each([
    "GET http://evil.example/up/x HTTP/1.1",
    "GET //evil.example/up/x HTTP/1.1",
    "GET /up/../x HTTP/1.1",
    "GET /up/..//evil.example HTTP/1.1",
    "GET /up/%2e%2e/x HTTP/1.1",
    "GET /up/.%2E/x HTTP/1.1",
    "GET /up/a/./x HTTP/1.1",
    "GET /up/..;/x HTTP/1.1",
    "GET /up/..%2fx HTTP/1.1",
    "GET /up/..%5cx HTTP/1.1",
    "GET /up/..\\x HTTP/1.1",
    "GET /%75p/x HTTP/1.1",
    "GET /up@evil.example/x HTTP/1.1",
    "GET /up#@evil.example/x HTTP/1.1",
    "CONNECT evil.example:443 HTTP/1.1",
    "OPTIONS * HTTP/1.1",
  ])("is never another host: %s", async (head) => {
    const api = await apis.start(() => ({ body: "inside" }));
    const sluice = sluices.open();
    sluice.bucket("up", { rate: "100/s" });
    const service = await servers.start(sluice, { forward: { up: { to: `${api.url}/base` } } });

    const answer = await raw(service.url, head);

    expect(answer).toMatch(/^HTTP\/1\.1 (?:400|404|405) /);
    expect(api.calls).toEqual([]);
  });

  it("is the upstream, for a path that looks like a host", async () => {
    const api = await apis.start(() => ({ body: "inside" }));
    const sluice = sluices.open();
    sluice.bucket("up", { rate: "100/s" });
    const service = await servers.start(sluice, { forward: { up: { to: `${api.url}/base` } } });

    const answer = await raw(service.url, "GET /up//evil.example/x HTTP/1.1");

    expect(answer).toContain("inside");
    expect(api.calls[0]!.path).toBe("/base//evil.example/x");
  });

  it("does not follow redirects, which are passed on", async () => {
    const api = await apis.start(() => ({
      status: 302,
      headers: { location: "http://169.254.169.254/" },
    }));
    const sluice = sluices.open();
    sluice.bucket("up", { rate: "100/s" });
    const service = await servers.start(sluice, { forward: { up: { to: api.url } } });

    const answer = await service.get("/up/x");

    expect(answer).toMatchObject({ status: 302, headers: { location: "http://169.254.169.254/" } });
  });

  it("gets no request from a page of another site", async () => {
    const api = await apis.start(() => ({ headers: { "access-control-allow-origin": "*" } }));
    const sluice = sluices.open();
    sluice.bucket("up", { rate: "100/s" });
    const service = await servers.start(sluice, {
      forward: { up: { to: api.url, headers: { authorization: "Bearer of-the-upstream" } } },
    });
    const statusFor = async (headers: Record<string, string>): Promise<number> =>
      (await service.get("/up/x", headers)).status;

    expect(await statusFor({ "sec-fetch-site": "cross-site" })).toBe(403);
    expect(await statusFor({ "sec-fetch-site": "same-site" })).toBe(403);
    expect(await statusFor({ origin: "https://evil.example" })).toBe(403);
    expect(api.calls).toEqual([]);
    expect(await statusFor({ "sec-fetch-site": "none" })).toBe(200);
    expect(await statusFor({ origin: service.url, "sec-fetch-site": "same-origin" })).toBe(200);
  });
});

describe("a forwarded response on the origin of the board", () => {
  it.each([
    ["text/html; charset=utf-8", "sandbox"],
    ["image/svg+xml", "sandbox"],
    ["application/xhtml+xml", "sandbox"],
    ["no type", "sandbox"],
    ["unknown/unknown", "sandbox"],
    ["application/unknown", "sandbox"],
    ["*/*", "sandbox"],
    ["text/plain; a=b, text/html", "sandbox"],
    ["application/x-html+json", "sandbox"],
    ["application/pdf", "sandbox"],
    ["text/javascript", "sandbox"],
    [undefined, "sandbox"],
    ["text/event-stream", undefined],
    ["text/plain", undefined],
    ["Application/JSON; charset=utf-8", undefined],
    ["application/problem+json", undefined],
    ["image/png", undefined],
  ])("has a sandbox for all but an inert type: to %s, %s", async (type, policy) => {
    const headers = {
      "cache-control": "no-store",
      "x-content-type-options": "sniff-it",
      ...(type !== undefined && { "content-type": type }),
    };
    const api = await apis.start(() => ({ headers, body: '"<script>1</script>"' }));
    const sluice = sluices.open();
    sluice.bucket("up", { rate: "1000/s" });
    const service = await servers.start(sluice, { forward: { up: { to: api.url } } });

    const answer = await service.get("/up/page");

    expect(answer.text).toBe('"<script>1</script>"');
    expect(answer.headers["content-security-policy"]).toBe(policy);
    expect(answer.headers["x-content-type-options"]).toBe("nosniff");
    expect(answer.headers["cache-control"]).toBe("no-store");
  });

  it("has a sandbox for a 304, whose headers replace those in the browser's cache", async () => {
    const api = await apis.start(() => ({
      status: 304,
      headers: { "content-security-policy": "default-src *", "content-type": "text/plain" },
    }));
    const sluice = sluices.open();
    sluice.bucket("up", { rate: "1000/s" });
    const service = await servers.start(sluice, { forward: { up: { to: api.url } } });

    const { headers } = await service.get("/up/page", { "if-none-match": '"1"' });

    expect(headers["content-security-policy"]).toContain("sandbox");
    expect(headers["x-content-type-options"]).toBe("nosniff");
  });

  it("cannot set or clear the cookie of the board", async () => {
    const cookies = ["sluice_session=1.forged; Path=/", "own=1", " sluice_session =; Max-Age=0"];
    const api = await apis.start(() => ({
      headers: {
        "set-cookie": cookies,
        "clear-site-data": '"cookies"',
        "alt-svc": 'h2="evil:443"',
      },
    }));
    const sluice = sluices.open();
    sluice.bucket("up", { rate: "1000/s" });
    const service = await servers.start(sluice, { forward: { up: { to: api.url } } });

    const { headers } = await fetch(`${service.url}/up/x`);

    expect(headers.getSetCookie()).toEqual(["own=1"]);
    expect(headers.has("clear-site-data")).toBe(false);
    expect(headers.has("alt-svc")).toBe(false);
  });
});
