import { connect, type Socket } from "node:net";
import { describe, expect, it, onTestFinished } from "vitest";
import { concurrency } from "sluice";
import { fakeApis } from "../../support/servers/fake-api.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { services } from "../../support/server/service.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const sluices = realSluices();
const servers = services();
const apis = fakeApis();

const SLOW = "1/h";
const DRAW =
  "POST /v1/buckets/up/draw HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n" +
  "content-length: 2\r\n\r\n{}";

function getOf(path: string): string {
  return `GET ${path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n`;
}

interface Client {
  readonly socket: Socket;
  readonly got: () => string;
}

function connectTo(url: string): Client {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  onTestFinished(() => void socket.destroy());
  let got = "";
  socket.on("data", (chunk) => (got += String(chunk)));
  return { socket, got: () => got };
}

describe("pipelined requests", () => {
  it("are answered in order, and the server keeps running", async () => {
    const api = await apis.start(({ path }) => ({ body: `answer to ${path};` }));
    const sluice = sluices.open();
    sluice.bucket("up", { rate: "1000/s" });
    const service = await servers.start(sluice, { forward: { up: { to: api.url } } });
    const { socket, got } = connectTo(service.url);

    socket.write(["/up/1", "/up/2", "/up/3"].map(getOf).join(""));
    await waitUntil(() => got().includes("answer to /3;"), "all three are answered");
    socket.write(getOf("/up/4"));
    await waitUntil(() => got().includes("answer to /4;"), "and another");

    expect(got().match(/answer to \/\d/g)).toEqual(
      [1, 2, 3, 4].map((each) => `answer to /${each}`),
    );
  });

  it("all leave the queue when their connection ends", async () => {
    const api = await apis.start(() => ({ body: "ok" }));
    const sluice = sluices.open();
    const bucket = sluice.bucket("up", { rate: SLOW });
    const service = await servers.start(sluice, { forward: { up: { to: api.url } } });
    await service.get("/up/first");
    const { socket } = connectTo(service.url);
    socket.write(getOf("/up/1") + getOf("/up/2") + DRAW + DRAW);
    await waitUntil(() => bucket.waiting === 4, "all wait");

    socket.destroy();

    await waitUntil(() => bucket.waiting === 0, "their places are free");
    expect(api.calls).toHaveLength(1);
  });
});

describe("a request that waits for its second upstream", () => {
  it("is refused when the server closes", async () => {
    const api = await apis.start(() => ({ status: 503, body: "busy" }));
    const sluice = sluices.open();
    sluice.bucket("one", { rate: "100/s" });
    const second = sluice.bucket("two", { rate: SLOW });
    await second.draw();
    const to = ["one", "two"].map((bucket) => ({ to: api.url, bucket }));
    const service = await servers.start(sluice, { forward: { up: { to } } });
    const { answer } = service.ask("/up/a");
    await waitUntil(() => second.waiting === 1, "it waits for the second");

    const closing = service.server.close();
    const { status, json } = await answer;
    await closing;

    expect([status, json.code]).toEqual([503, "ERR_CLOSED"]);
    expect(api.calls).toHaveLength(1);
  });
});

describe("a request that goes to another upstream", () => {
  it.each([true, false])(
    "leaves no lease at the upstream that rejected it, with feedback %s",
    async (feedback) => {
      const busy = await apis.start(() => ({ status: 502, body: "busy" }));
      const api = await apis.start(() => ({ body: "ok" }));
      const sluice = sluices.open();
      const own = feedback ? {} : { feedback: false as const };
      const first = sluice.bucket("one", { limits: [concurrency(1)], ...own });
      sluice.bucket("two", { rate: "100/s" });
      const to = [
        { to: busy.url, bucket: "one" },
        { to: api.url, bucket: "two" },
      ];
      const service = await servers.start(sluice, { forward: { up: { to } } });

      expect((await service.get("/up/a")).text).toBe("ok");

      await waitUntil(async () => (await first.tryDraw()).allowed, "the lease is free");
    },
  );
});

describe("a response with an unknown encoding", () => {
  it("is passed on unchanged, and its lease ends", async () => {
    const api = await apis.start(({ path }) => ({
      status: 404,
      headers: { "content-encoding": path.slice(1) },
      body: "no such thing",
    }));
    const sluice = sluices.open();
    const bucket = sluice.bucket("up", { limits: [concurrency(1)] });
    const service = await servers.start(sluice, { forward: { up: { to: api.url } } });

    for (const encoding of ["zstd", "constructor", "__proto__"]) {
      const { status, headers, text } = await service.get(`/up/${encoding}`);
      expect([status, headers["content-encoding"], text]).toEqual([404, encoding, "no such thing"]);
    }

    await waitUntil(async () => (await bucket.tryDraw()).allowed, "the lease is free");
  });
});
