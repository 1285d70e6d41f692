import { once } from "node:events";
import { createServer, type RequestListener } from "node:http";
import { connect, type AddressInfo } from "node:net";
import { gzipSync } from "node:zlib";
import { describe, expect, it, onTestFinished } from "vitest";
import { fakeApis } from "../../support/servers/fake-api.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { services, type Service } from "../../support/server/service.ts";

const sluices = realSluices();
const servers = services();
const apis = fakeApis();

/** An upstream on `node:http`, with a listener that may do anything to a connection. */
async function startUpstream(listener: RequestListener): Promise<string> {
  const server = createServer(listener);
  onTestFinished(async () => {
    server.closeAllConnections();
    server.close();
    await once(server, "close");
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

async function startForward(to: string, more: { readonly timeoutMs?: number } = {}) {
  const sluice = sluices.open();
  sluice.bucket("up", { rate: "1000/s" });
  return servers.start(sluice, { forward: { up: { to, ...more } } });
}

describe("an offer of another protocol", () => {
  /** What a server answers to these bytes. */
  async function send({ url }: Service, head: readonly string[], body = ""): Promise<string> {
    const socket = connect(Number(new URL(url).port), "127.0.0.1");
    let got = "";
    socket.on("data", (chunk: Buffer) => (got += chunk.toString()));
    socket.write(`${[...head, "Host: 127.0.0.1", "", ""].join("\r\n")}${body}`);
    await once(socket, "close");
    return got;
  }
  const OFFER = ["Connection: Upgrade, HTTP2-Settings, close", "HTTP2-Settings: AAEAAEAAAAIAAAAB"];

  it("of h2c is ignored, as Java's HttpClient makes it on plain HTTP", async () => {
    const api = await apis.start(({ body }) => ({ body: `got ${body}` }));
    const service = await startForward(api.url);
    const head = [...OFFER, "Upgrade: h2c", "Content-Length: 4"];

    const answer = await send(service, ["POST /up/x HTTP/1.1", ...head], "body");

    expect(answer).toMatch(/^HTTP\/1\.1 200 /);
    expect(answer).toContain("got body");
    expect(Object.keys(api.calls[0]!.headers)).not.toContain("http2-settings");
    expect(Object.keys(api.calls[0]!.headers)).not.toContain("upgrade");
  });

  it.each(["TLS/1.0", "HTTP/2.0", "h2c, HTTP/2.0", "IRC/6.9"])(
    "of %s is ignored",
    async (offer) => {
      const api = await apis.start(() => ({ body: "ok" }));
      const service = await startForward(api.url);

      const answer = await send(service, ["GET /up/x HTTP/1.1", ...OFFER, `Upgrade: ${offer}`]);

      expect(answer).toMatch(/^HTTP\/1\.1 200 /);
    },
  );

  it("is ignored by routes of the server itself, which read the body", async () => {
    const service = await startForward("http://127.0.0.1:1");
    const body = '{"maxWaitMs":1000}';
    const head = ["POST /v1/buckets/up/draw HTTP/1.1", ...OFFER, "Upgrade: h2c"];
    const type = ["Content-Type: application/json", `Content-Length: ${body.length}`];

    expect(await send(service, [...head, ...type], body)).toMatch(/^HTTP\/1\.1 200 /);
  });

  it.each(["websocket", "WebSocket", "h2c, websocket"])("of %s is refused", async (offer) => {
    const service = await startForward("http://127.0.0.1:1");

    const answer = await send(service, ["GET /up/x HTTP/1.1", ...OFFER, `Upgrade: ${offer}`]);

    expect(answer).toMatch(/^HTTP\/1\.1 501 /);
  });
});

describe("an upstream that closes a connection at its second request", () => {
  /** Resets, or ends, each connection when a second request comes on it. */
  async function startClosing(how: "resets" | "ends") {
    const served = new WeakSet<object>();
    const requests: string[] = [];
    const url = await startUpstream(({ socket, method, url: path }, response) => {
      requests.push(`${method} ${path}`);
      if (!served.has(socket)) {
        served.add(socket);
        return void response.end("ok");
      }
      if (how === "resets") socket.resetAndDestroy();
      else socket.destroy();
    });
    return { url, requests };
  }

  it.each([
    ["GET", "resets"],
    ["GET", "ends"],
    ["HEAD", "resets"],
    ["PUT", "resets"],
    ["DELETE", "ends"],
  ] as const)("is sent a %s once more, when it %s it", async (method, how) => {
    const { url, requests } = await startClosing(how);
    const service = await startForward(url);
    const body = method === "PUT" ? { body: "text" } : {};

    const first = await fetch(`${service.url}/up/1`);
    await first.text();
    const second = await fetch(`${service.url}/up/2`, { method, ...body });

    expect([first.status, second.status]).toEqual([200, 200]);
    expect(requests).toEqual(["GET /1", `${method} /2`, `${method} /2`]);
  });

  it("is sent no POST twice", async () => {
    const { url, requests } = await startClosing("resets");
    const service = await startForward(url);

    await service.get("/up/1");
    const second = await service.post("/up/2", {});

    expect(second.status).toBe(502);
    expect(requests).toEqual(["GET /1", "POST /2"]);
  });

  it("is not asked again where the connection was new", async () => {
    const requests: string[] = [];
    const url = await startUpstream(({ socket, url: path }) => {
      requests.push(path!);
      socket.resetAndDestroy();
    });
    const service = await startForward(url);

    expect((await service.get("/up/1")).status).toBe(502);
    expect(requests).toEqual(["/1"]);
  });

  it("is not asked a third time", async () => {
    const requests: string[] = [];
    const url = await startUpstream(({ socket, url: path }, response) => {
      requests.push(path!);
      if (path === "/1") response.end("ok");
      else socket.resetAndDestroy();
    });
    const service = await startForward(url);

    await service.get("/up/1");
    const second = await service.get("/up/2");

    expect(second.status).toBe(502);
    expect(requests).toEqual(["/1", "/2", "/2"]);
  });
});

describe("an answer that names an encoding and has no body", () => {
  const GZIP = { "content-encoding": "gzip", "x-of-theirs": "yes" };

  it.each(["gzip", "deflate", "br"])("is passed on as it came: a 404 of %s", async (encoding) => {
    const headers = { ...GZIP, "content-encoding": encoding, "content-length": "0" };
    const api = await apis.start(() => ({ status: 404, headers }));
    const service = await startForward(api.url);

    const answer = await service.get("/up/x");

    expect(answer.status).toBe(404);
    expect(answer.text).toBe("");
    expect(answer.headers).toMatchObject(headers);
  });

  it("is passed on where its length is not known", async () => {
    const api = await apis.start(() => ({
      status: 500,
      headers: { ...GZIP, "transfer-encoding": "chunked" },
    }));
    const service = await startForward(api.url);

    const answer = await service.get("/up/x");

    expect([answer.status, answer.text]).toEqual([500, ""]);
    expect(answer.headers["x-of-theirs"]).toBe("yes");
  });

  it.each([200, 404])("keeps its headers: a HEAD of status %s", async (status) => {
    const { length } = gzipSync("some text");
    const headers = { ...GZIP, "content-length": String(length) };
    const api = await apis.start(() => ({ status, headers }));
    const service = await startForward(api.url);

    const answer = await fetch(`${service.url}/up/x`, { method: "HEAD" });

    expect(answer.status).toBe(status);
    expect(Object.fromEntries(answer.headers)).toMatchObject(headers);
  });
});

describe("timeoutMs of a forward", () => {
  it("says how long an upstream may be silent", async () => {
    const url = await startUpstream(() => {});
    const service = await startForward(url, { timeoutMs: 20 });

    const answer = await service.get("/up/x");

    expect(answer.status).toBe(504);
    expect(answer.json.detail).toContain("timeoutMs");
  });

  it("is refused where it is no time", async () => {
    await expect(startForward("http://127.0.0.1:1", { timeoutMs: 0.5 })).rejects.toThrow(
      /option "timeoutMs" is 0.5/,
    );
  });
});
