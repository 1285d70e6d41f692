import { once } from "node:events";
import { createServer, type RequestListener } from "node:http";
import { connect, type AddressInfo } from "node:net";
import { brotliCompressSync, deflateRawSync, deflateSync, gzipSync } from "node:zlib";
import { describe, expect, it, onTestFinished } from "vitest";
import { tokenBucket } from "sluice";
import { openai } from "sluice/llm";
import { fakeApis } from "../../support/servers/fake-api.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { services, type Service } from "../../support/server/service.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

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

  it.each([[[]], [["Connection: close"]], [["Connection: x-upgrade, close"]]])(
    "of a WebSocket that Connection does not name is ignored: %j",
    async (connection) => {
      const api = await apis.start(() => ({ body: "ok" }));
      const service = await startForward(api.url);
      const head = ["GET /up/x HTTP/1.1", "Upgrade: websocket", ...connection];

      const { socket, got } = await connectRaw(service);
      socket.write([...head, "Host: 127.0.0.1", "", ""].join("\r\n"));
      await waitUntil(() => got().includes("ok"), "it is answered");

      expect(got()).toMatch(/^HTTP\/1\.1 200 /);
      expect(Object.keys(api.calls[0]!.headers)).not.toContain("upgrade");
    },
  );
});

/** A connection, and all that came on it. */
async function connectRaw({ url }: Service) {
  const socket = connect(Number(new URL(url).port), "127.0.0.1");
  onTestFinished(() => void socket.destroy());
  let got = "";
  socket.on("data", (chunk: Buffer) => (got += chunk.toString("latin1")));
  await once(socket, "connect");
  return { socket, got: () => got };
}

describe("a long body that is answered before all of it was read", () => {
  const LONG = "z".repeat(2_000_000);
  const CHUNKS = `${LONG.length.toString(16)}\r\n${LONG}\r\n0\r\n\r\n`;
  const LENGTHS = {
    "of a known length": `Content-Length: ${LONG.length}\r\n\r\n${LONG}`,
    "of chunks": `Transfer-Encoding: chunked\r\n\r\n${CHUNKS}`,
  };
  /** Answers without reading the body. */
  const early = (status: number) => () =>
    startUpstream((_request, response) => void response.writeHead(status).end("early"));

  async function startResetting(): Promise<string> {
    const served = new WeakSet<object>();
    return startUpstream(({ socket }, response) => {
      if (served.has(socket)) return void socket.resetAndDestroy();
      served.add(socket);
      response.end("ok");
    });
  }

  const CASES: readonly [what: string, start: () => Promise<string>, status: number][] = [
    ["by a 401", early(401), 401],
    ["by a 413", early(413), 413],
    ["by a 503", early(503), 503],
    ["by a 200", early(200), 200],
    ["where the upstream is dead", async () => "http://127.0.0.1:1", 502],
    ["where a used connection resets", startResetting, 502],
  ];

  it.each(
    CASES.flatMap(([what, start, status]) =>
      Object.entries(LENGTHS).map(([length, rest]) => ({ what, length, rest, start, status })),
    ),
  )(
    "leaves the connection to the next request: $what, $length",
    async ({ rest, start, status }) => {
      const service = await startForward(await start());
      await service.get("/up/warm");
      const { socket, got } = await connectRaw(service);

      socket.write(`PUT /up/x HTTP/1.1\r\nHost: 127.0.0.1\r\n${rest}`);
      socket.write("GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
      await waitUntil(() => got().includes('{"ok":true}'), "the next request is answered");

      expect(got().match(/HTTP\/1\.1 \d+/g)).toEqual([`HTTP/1.1 ${status}`, "HTTP/1.1 200"]);
    },
  );

  it.each(Object.entries(LENGTHS))(
    "leaves the connection to the next request: by a 429 of the bucket, %s",
    async (_length, rest) => {
      const sluice = sluices.open();
      await sluice.bucket("up", { rate: "1/h" }).draw();
      const forward = { up: { to: "http://127.0.0.1:1", maxWaitMs: 1_000 } };
      const service = await servers.start(sluice, { forward });
      const { socket, got } = await connectRaw(service);

      socket.write(`POST /up/x HTTP/1.1\r\nHost: 127.0.0.1\r\n${rest}`);
      socket.write("GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
      await waitUntil(() => got().includes('{"ok":true}'), "the next request is answered");

      expect(got()).toMatch(/^HTTP\/1\.1 429 /);
    },
  );
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

describe("a compressed answer", () => {
  const USAGE = JSON.stringify({ usage: { prompt_tokens: 10, completion_tokens: 30 } });
  const REFUSAL = JSON.stringify({ error: { message: "try again in 30s" } });

  /** Forwards by a bucket that reads answers; what it sends a client, byte by byte. */
  async function startReading(status: number, encoding: string, bytes: Buffer) {
    const url = await startUpstream((_request, response) => {
      const headers = { "content-type": "application/json", "content-encoding": encoding };
      response.writeHead(status, { ...headers, "content-length": bytes.length }).end(bytes);
    });
    const sluice = sluices.open();
    const bucket = sluice.bucket("gpt", {
      ...openai({ tokens: "60000/h", counts: "used", headroom: 0 }),
      limits: [tokenBucket({ capacity: 100_000, refill: "1/h", unit: "tokens" })],
    });
    const service = await servers.start(sluice, { forward: { gpt: { to: url, tries: 1 } } });
    const { socket, got } = await connectRaw(service);
    const body = '{"model":"gpt-4o","messages":[],"max_tokens":100}';
    const head = ["POST /gpt/v1/chat/completions HTTP/1.1", "Host: 127.0.0.1", "Connection: close"];
    const length = ["Content-Type: application/json", `Content-Length: ${body.length}`];
    socket.write(`${[...head, ...length, "", ""].join("\r\n")}${body}`);
    await once(socket, "close");
    const [answerHead = "", ...rest] = got().split("\r\n\r\n");
    return { bucket, head: answerHead, body: Buffer.from(rest.join("\r\n\r\n"), "latin1") };
  }

  const WHOLE: readonly [encoding: string, compress: (text: string) => Buffer][] = [
    ["gzip", gzipSync],
    ["deflate", deflateSync],
    ["deflate", deflateRawSync],
    ["br", brotliCompressSync],
  ];
  const BROKEN: readonly [what: string, encoding: string, bytes: Buffer][] = [
    ["cut off", "gzip", gzipSync(REFUSAL.repeat(20)).subarray(0, 15)],
    ["cut off", "deflate", deflateRawSync(REFUSAL).subarray(0, 12)],
    ["cut off", "br", brotliCompressSync(REFUSAL).subarray(0, 9)],
    ["no such thing", "gzip", Buffer.from(REFUSAL)],
    ["no such thing", "deflate", Buffer.from(REFUSAL)],
    ["no such thing", "br", Buffer.from("\xff".repeat(40), "latin1")],
  ];

  it.each(
    [
      ...WHOLE.map(([encoding, compress]) => ["whole", encoding, compress(USAGE)] as const),
      ...BROKEN,
    ].flatMap((each) => [200, 404, 429].map((status) => [status, ...each] as const)),
  )("of status %s that is %s arrives as it came: %s", async (status, _what, encoding, bytes) => {
    const { head, body } = await startReading(status, encoding, bytes);

    expect(head).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `));
    expect(head.toLowerCase()).toContain(`content-encoding: ${encoding}`);
    expect(head.toLowerCase()).toContain(`content-length: ${bytes.length}`);
    expect(body.equals(bytes)).toBe(true);
  });

  it.each(WHOLE)("says its usage to the bucket: %s", async (encoding, compress) => {
    const { bucket } = await startReading(200, encoding, compress(USAGE));

    await waitUntil(
      async () => (await bucket.peek()).limits[0]!.remaining === 99_960,
      "it is charged",
    );
    expect(bucket.waiting).toBe(0);
  });

  it.each(WHOLE)("says when to try again to the bucket: %s", async (encoding, compress) => {
    const { bucket } = await startReading(429, encoding, compress(REFUSAL));

    expect((await bucket.peek()).coolingForMs).toBeGreaterThan(20_000);
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
