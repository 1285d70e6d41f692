import { once } from "node:events";
import { connect } from "node:net";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { fakeApis } from "../../support/servers/fake-api.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { ACT, ask, openServers } from "../../support/server/open-server.ts";

const sluices = realSluices();
const servers = openServers();
const apis = fakeApis();

// The server looks for late bodies on a timer; all else runs in real time.
beforeEach(
  () => void vi.useFakeTimers({ toFake: ["setInterval", "clearInterval", "performance"] }),
);
afterEach(() => void vi.useRealTimers());

describe("a body that never comes", () => {
  async function open() {
    const api = await apis.start(() => ({ body: "ok" }));
    const sluice = sluices.open();
    sluice.bucket("up", { rate: "1000/s" });
    const { url } = await servers.open(sluice, { forward: { up: { to: api.url } } });
    return { url, api };
  }

  /** Sends bytes on a connection of its own. */
  async function send(url: string, lines: readonly string[]) {
    const socket = connect(Number(new URL(url).port), "127.0.0.1");
    let got = "";
    socket.on("data", (chunk: Buffer) => (got += chunk.toString()));
    socket.on("error", () => {});
    socket.write([...lines, "Host: 127.0.0.1", "", ""].join("\r\n"));
    const closed = once(socket, "close");
    // The server has read these bytes when it has answered another request.
    await ask(`${url}/healthz`);
    return { socket, closed, got: () => got };
  }

  const JSON_TYPE = "Content-Type: application/json";
  const WITH_TOKEN = `Authorization: Bearer ${ACT}`;

  it.each([
    ["of a known length", ["POST /api/v1/session HTTP/1.1", JSON_TYPE, "Content-Length: 40"]],
    ["of chunks", ["POST /api/v1/session HTTP/1.1", JSON_TYPE, "Transfer-Encoding: chunked"]],
    ["where none is read", ["GET /healthz HTTP/1.1", "Content-Length: 40"]],
    ["of a refused request", ["POST /api/v1/buckets/up/pause HTTP/1.1", "Content-Length: 40"]],
    ["where there is no route", ["POST /nowhere HTTP/1.1", "Content-Length: 40"]],
    ["of a refused forward", ["POST /up/x HTTP/1.1", "Content-Length: 40"]],
  ])("holds a connection without a token for 10 s: %s", async (_what, head) => {
    const { url } = await open();
    const { closed, got } = await send(url, head);

    vi.advanceTimersByTime(11_000);
    await closed;

    expect(got()).toMatch(/^HTTP\/1\.1 (?:200|401|404|408) /);
  });

  it("ends though a byte comes now and then, without a token", async () => {
    const { url } = await open();
    const head = ["POST /api/v1/session HTTP/1.1", JSON_TYPE, "Content-Length: 40"];
    const { socket, closed, got } = await send(url, head);

    for (let second = 0; second < 11; second += 1) {
      socket.write(" ");
      vi.advanceTimersByTime(1_000);
    }
    await closed;

    expect(got()).toMatch(/^HTTP\/1\.1 408 /);
  });

  it.each([
    ["of a route", "POST /api/v1/buckets/up/pause HTTP/1.1", 40],
    ["of a forward", "POST /up/x HTTP/1.1", 40],
    ["of a forward, too long to be kept", "POST /up/x HTTP/1.1", 4_000_000],
  ])("ends with a token after 30 s in which nothing came: %s", async (_what, line, length) => {
    const { url } = await open();
    const head = [line, JSON_TYPE, WITH_TOKEN, `Content-Length: ${length}`];
    const { closed, got } = await send(url, head);

    vi.advanceTimersByTime(31_000);
    await closed;

    expect(got()).toMatch(/^HTTP\/1\.1 408 /);
  });

  it("is waited for with a token while some of it comes", async () => {
    const { url, api } = await open();
    const head = ["POST /up/x HTTP/1.1", WITH_TOKEN, "Content-Length: 40", "Connection: close"];
    const { socket, closed, got } = await send(url, head);

    for (let part = 0; part < 4; part += 1) {
      socket.write("0123456789");
      await ask(`${url}/healthz`);
      vi.advanceTimersByTime(20_000);
    }
    await closed;

    expect(got()).toMatch(/^HTTP\/1\.1 200 /);
    expect(api.calls[0]!.body).toHaveLength(40);
  });

  it.each(["x", "200-ok", ""])(
    "holds no connection by an expectation of %j",
    async (expectation) => {
      const { url } = await open();
      const head = ["POST /api/v1/session HTTP/1.1", JSON_TYPE, `Expect: ${expectation}`];
      const { closed, got } = await send(url, [...head, "Content-Length: 40"]);

      await closed;

      expect(got()).toMatch(/^HTTP\/1\.1 417 /);
      expect(got()).toContain('"code":"ERR_EXPECTATION_FAILED"');
    },
  );

  it("holds a connection for 10 s where it was asked to go on", async () => {
    const { url } = await open();
    const head = ["POST /api/v1/session HTTP/1.1", JSON_TYPE, "Expect: 100-continue"];
    const { closed, got } = await send(url, [...head, "Content-Length: 40"]);

    vi.advanceTimersByTime(11_000);
    await closed;

    expect(got()).toMatch(/^HTTP\/1\.1 100 Continue\r\n\r\nHTTP\/1\.1 408 /);
  });

  it("ends with a token 10 s after an answer that did not need it", async () => {
    const { url } = await open();
    const head = ["POST /up/x HTTP/1.1", WITH_TOKEN, "x-sluice-max-wait: no"];
    const { socket, closed, got } = await send(url, [...head, "Content-Length: 4000000"]);

    for (let second = 0; second < 12; second += 1) {
      socket.write(" ");
      vi.advanceTimersByTime(1_000);
    }
    // Unread bytes reset the connection.
    await closed.catch(() => {});

    expect(got()).toMatch(/^HTTP\/1\.1 400 /);
  });
});
