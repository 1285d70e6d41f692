import { connect } from "node:net";
import { gzipSync } from "node:zlib";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { concurrency } from "sluice";
import { fakeApis } from "../../support/servers/fake-api.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { services } from "../../support/server/service.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const sluices = realSluices();
const servers = services();
const apis = fakeApis();

const SLOW = "1/h";

describe("a forward", () => {
  it("holds requests until their slots, and passes both sides on unchanged", async () => {
    const api = await apis.start(({ body }) => ({
      status: 201,
      headers: {
        "content-type": "text/plain",
        "x-of-theirs": "yes",
        "set-cookie": ["a=1", "b=2"],
        connection: "x-hop",
        "x-hop": "1",
      },
      body: `got ${body}`,
    }));
    const sluice = sluices.open();
    sluice.bucket("up", { rate: "20/s" });
    const service = await servers.start(sluice, { forward: { up: { to: `${api.url}/base/` } } });

    const beganMs = performance.now();
    const answers = await Promise.all(
      [1, 2, 3].map((call) =>
        service.post(`/up/things/%C3%A4?x=a%20b&y=//c`, { call }, { "x-of-mine": "1" }),
      ),
    );

    expect(answers.map(({ status, text }) => [status, text])).toEqual(
      [1, 2, 3].map((call) => [201, `got {"call":${call}}`]),
    );
    expect(answers[0]!.headers).toMatchObject({
      "x-of-theirs": "yes",
      "set-cookie": ["a=1", "b=2"],
    });
    expect(answers[0]!.headers).not.toHaveProperty("x-hop");
    expect(answers[0]!.headers).not.toHaveProperty("content-security-policy");
    expect(api.calls[0]).toMatchObject({
      method: "POST",
      path: "/base/things/%C3%A4?x=a%20b&y=//c",
    });
    const { headers } = api.calls[0]!;
    expect(Object.keys(headers).toSorted()).toEqual([
      "connection",
      "content-length",
      "content-type",
      "host",
      "x-of-mine",
    ]);
    expect(headers["host"]).toBe(new URL(api.url).host);
    expect(api.calls[2]!.atMs - beganMs).toBeGreaterThan(99);
  });

  it("rejects immediately a request that would wait longer than x-sluice-max-wait", async () => {
    const api = await apis.start(() => ({ body: "ok" }));
    const sluice = sluices.open();
    sluice.bucket("up", { rate: SLOW });
    const service = await servers.start(sluice, { forward: { up: { to: api.url } } });
    await service.get("/up/a");

    const refused = await service.get("/up/b", { "x-sluice-max-wait": "60000" });
    const wrong = await service.get("/up/b", { "x-sluice-max-wait": "1m" });

    expect(refused.status).toBe(429);
    expect(Number(refused.headers["retry-after"])).toBeGreaterThan(3_000);
    expect(refused.headers["x-should-retry"]).toBe("false");
    expect(refused.json).toMatchObject({ code: "ERR_WAIT_TOO_LONG" });
    expect(wrong.status).toBe(400);
    expect(api.calls).toHaveLength(1);
    expect(api.calls[0]!.headers).not.toHaveProperty("x-sluice-max-wait");
  });

  it("resends a rejected request after the cooldown, with its body", async () => {
    const api = await apis.start((_call, number) =>
      number === 0 ? { status: 429, headers: { "retry-after": "1" } } : { body: "ok" },
    );
    const sluice = sluices.open();
    sluice.bucket("up", { rate: "100/s" });
    const service = await servers.start(sluice, { forward: { up: { to: api.url } } });

    const { status, text } = await service.post("/up/a", { some: "body" });

    expect([status, text]).toEqual([200, "ok"]);
    expect(api.calls.map(({ body }) => body)).toEqual(['{"some":"body"}', '{"some":"body"}']);
    expect(api.calls[1]!.atMs - api.calls[0]!.atMs).toBeGreaterThan(900);
  });

  it("sends a body that is too long to keep once, as it arrives, and passes the rejection on", async () => {
    const long = "x".repeat(3_000_000);
    const api = await apis.start(() => ({
      status: 429,
      headers: { "retry-after": "7" },
      body: "no",
    }));
    const sluice = sluices.open();
    sluice.bucket("up", { rate: "100/s" });
    const service = await servers.start(sluice, { forward: { up: { to: api.url } } });

    const known = await service.post("/up/a", long, { "content-length": String(long.length) });

    expect([known.status, known.headers["retry-after"], known.text]).toEqual([429, "7", "no"]);
    expect(api.calls.map(({ body }) => body.length)).toEqual([3_000_000]);
    expect((await sluice.bucket("up", { rate: "100/s" }).peek()).coolingForMs).toBeGreaterThan(
      5_000,
    );
  });

  it("sends a long body of unknown length whole", async () => {
    const long = "x".repeat(3_000_000);
    const api = await apis.start(() => ({ body: "ok" }));
    const sluice = sluices.open();
    sluice.bucket("up", { rate: "100/s" });
    const service = await servers.start(sluice, { forward: { up: { to: api.url } } });

    const { status } = await service.post("/up/a", long, { "transfer-encoding": "chunked" });

    expect(status).toBe(200);
    expect(api.calls[0]!.body).toBe(long);
  });

  it("passes each chunk of a stream on before the next is there", async () => {
    let sendSecond = (): void => {};
    const api = await apis.start(() => ({
      headers: { "content-type": "text/event-stream" },
      stream(response) {
        response.write("data: 1\n\n");
        sendSecond = () => response.end("data: 2\n\n");
      },
    }));
    const sluice = sluices.open();
    sluice.bucket("up", { rate: "100/s" });
    const service = await servers.start(sluice, { forward: { up: { to: api.url } } });

    const response = await fetch(`${service.url}/up/stream`);
    const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
    const first = await reader.read();
    sendSecond();
    const second = await reader.read();

    expect([first.value, second.value]).toEqual(["data: 1\n\n", "data: 2\n\n"]);
    expect((await reader.read()).done).toBe(true);
  });

  it("passes a compressed response on unchanged, and reads a compressed rejection", async () => {
    const body = gzipSync(JSON.stringify({ error: { message: "try again in 30s" } }));
    const api = await apis.start(({ path }) => ({
      status: path === "/ok" ? 200 : 429,
      headers: { "content-encoding": "gzip", "content-type": "application/json" },
      stream: (response) => response.end(body),
    }));
    const sluice = sluices.open();
    const bucket = sluice.bucket("up", { rate: "100/s" });
    const service = await servers.start(sluice, { forward: { up: { to: api.url, tries: 1 } } });

    const good = await fetch(`${service.url}/up/ok`);
    const refused = await fetch(`${service.url}/up/no`);

    expect(good.headers.get("content-encoding")).toBe("gzip");
    expect(await good.json()).toHaveProperty("error");
    expect(refused.status).toBe(429);
    expect(await refused.json()).toHaveProperty("error");
    expect((await bucket.peek()).coolingForMs).toBeGreaterThan(20_000);
  });

  it("frees the position of a client that disconnects while it waits, and sends nothing", async () => {
    const api = await apis.start(() => ({ body: "ok" }));
    const sluice = sluices.open();
    const bucket = sluice.bucket("up", { rate: SLOW });
    const service = await servers.start(sluice, { forward: { up: { to: api.url } } });
    await service.get("/up/a");
    const asking = service.ask("/up/b", { a: 1 });
    const ended = asking.answer.catch((error: Error) => error.message);
    await waitUntil(() => bucket.waiting === 1, "it waits");

    asking.hangUp();
    await ended;

    await waitUntil(() => bucket.waiting === 0, "its place is free");
    expect(api.calls).toHaveLength(1);
  });

  it("frees the position of a client that disconnects on a reused connection", async () => {
    const api = await apis.start(() => ({ body: "ok" }));
    const sluice = sluices.open();
    const bucket = sluice.bucket("up", { rate: SLOW, burst: 2 });
    const service = await servers.start(sluice, { forward: { up: { to: api.url } } });
    const { hostname, port } = new URL(service.url);
    const socket = connect(Number(port), hostname);
    onTestFinished(() => void socket.destroy());
    let got = "";
    socket.on("data", (chunk) => (got += String(chunk)));
    const ask = (path: string) =>
      socket.write(`GET /up/${path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n`);
    for (const count of [1, 2]) {
      ask(`${count}`);
      await waitUntil(() => got.split("ok").length === count + 1, "it is answered");
    }

    ask("3");
    await waitUntil(() => bucket.waiting === 1, "it waits");
    socket.destroy();

    await waitUntil(() => bucket.waiting === 0, "its place is free");
    expect(api.calls).toHaveLength(2);
  });

  it("gives a bucket's own feedback a readable Response, and the client all of it", async () => {
    const body = JSON.stringify({ wait: "x".repeat(100_000) });
    const api = await apis.start(({ path }) => ({
      status: path === "/full" ? 409 : 200,
      headers: { "content-type": "application/json" },
      body,
    }));
    const sluice = sluices.open();
    const seen: unknown[] = [];
    const bucket = sluice.bucket("up", {
      rate: "100/s",
      async feedback(result) {
        const response = result as Response;
        const { wait } = (await response.clone().json()) as { readonly wait: string };
        seen.push(response instanceof Response, response.status, wait.length);
        return { coolMs: 60_000 };
      },
    });
    const service = await servers.start(sluice, { forward: { up: { to: api.url, tries: 1 } } });

    const answer = await service.get("/up/full");

    expect([answer.status, answer.text]).toEqual([409, body]);
    expect(seen).toEqual([true, 409, 100_000]);
    expect((await bucket.peek()).coolingForMs).toBeGreaterThan(50_000);
  });

  it("buffers no more of a response than its client reads", async () => {
    let sent = 0;
    const api = await apis.start(() => ({
      stream(response) {
        const more = (): void => {
          let hasRoom = true;
          for (; hasRoom && sent < 200_000_000; sent += 100_000) {
            hasRoom = response.write("x".repeat(100_000));
          }
        };
        response.on("drain", more);
        more();
      },
    }));
    const sluice = sluices.open();
    sluice.bucket("up", { rate: "100/s" });
    const service = await servers.start(sluice, { forward: { up: { to: api.url } } });
    const leaving = new AbortController();
    const response = await fetch(`${service.url}/up/long`, { signal: leaving.signal });
    let [last, looks] = [-1, 0];

    await waitUntil(() => {
      looks = sent === last && sent > 0 ? looks + 1 : 0;
      last = sent;
      return looks > 50;
    }, "the upstream is held up");

    expect(sent).toBeLessThan(50_000_000);
    expect(response.ok).toBe(true);
    leaving.abort();
  });

  it("aborts nothing for an answered request", async () => {
    const api = await apis.start(() => ({ body: "ok" }));
    const sluice = sluices.open();
    sluice.bucket("up", { rate: "1000/s" });
    const service = await servers.start(sluice, { forward: { up: { to: api.url } } });
    const abort = vi.spyOn(AbortController.prototype, "abort");
    onTestFinished(() => abort.mockRestore());

    const answers = [await service.get("/up/a"), await service.post("/up/b", { some: "body" })];

    expect(answers.map(({ text }) => text)).toEqual(["ok", "ok"]);
    // Each would cost an exception with its stack.
    expect(abort).not.toHaveBeenCalled();
  });

  it("ends the call at the upstream when the client disconnects during a response", async () => {
    let isLeft = false;
    const api = await apis.start(() => ({
      headers: { "content-type": "text/event-stream" },
      stream(response) {
        response.on("close", () => (isLeft = true));
        response.write("data: 1\n\n");
      },
    }));
    const sluice = sluices.open();
    const bucket = sluice.bucket("up", { limits: [concurrency(1)] });
    const service = await servers.start(sluice, { forward: { up: { to: api.url } } });
    const leaving = new AbortController();
    const response = await fetch(`${service.url}/up/stream`, { signal: leaving.signal });
    await response.body!.getReader().read();
    expect((await bucket.tryDraw()).allowed).toBe(false);

    leaving.abort();

    await waitUntil(() => isLeft, "the upstream sees it");
    await waitUntil(async () => (await bucket.tryDraw()).allowed, "the lease is free");
  });

  it("breaks off when the upstream does, and answers 502 when the upstream does not respond", async () => {
    const api = await apis.start(({ path }) => ({
      stream: (response) =>
        path === "/half"
          ? void response.write("half", () => response.destroy())
          : void response.destroy(),
    }));
    const sluice = sluices.open();
    sluice.bucket("up", { rate: "100/s" });
    const service = await servers.start(sluice, { forward: { up: { to: api.url } } });

    const half = await fetch(`${service.url}/up/half`).then(async (response) => {
      return response.text().then(
        () => "whole",
        () => "broken off",
      );
    });
    const none = await service.get("/up/none");

    expect(half).toBe("broken off");
    expect(none).toMatchObject({ status: 502, json: { code: "ERR_UPSTREAM_UNREACHABLE" } });
  });

  it("tries the next upstream when one rejects, has no room in time, or does not respond", async () => {
    const [first, second] = await Promise.all([
      apis.start(() => ({ status: 429, body: "no" })),
      apis.start(() => ({ body: "second" })),
    ]);
    const sluice = sluices.open();
    const big = sluice.bucket("big", { rate: SLOW });
    const small = sluice.bucket("small", { rate: "100/s" });
    const service = await servers.start(sluice, {
      forward: {
        refused: {
          to: [
            { to: first.url, bucket: small },
            { to: second.url, bucket: small },
          ],
        },
        full: { to: [{ to: first.url, bucket: big, maxWaitMs: 10 }, second.url], bucket: small },
        gone: { to: [{ to: "http://127.0.0.1:9", bucket: small }, second.url], bucket: small },
      },
    });
    await big.draw();

    const refused = await service.post("/refused/x", { a: 1 });
    const full = await service.post("/full/x", { a: 2 });
    const gone = await service.post("/gone/x", { a: 3 });

    expect([refused.text, full.text, gone.text]).toEqual(["second", "second", "second"]);
    expect(first.calls).toHaveLength(1);
    expect(second.calls.map(({ body }) => body)).toEqual(['{"a":1}', '{"a":2}', '{"a":3}']);
  });

  it("answers waiting callers when the server closes, and lets responses end", async () => {
    let end = (): void => {};
    const api = await apis.start(() => ({
      stream(response) {
        response.write("half, ");
        end = () => response.end("whole");
      },
    }));
    const sluice = sluices.open();
    const bucket = sluice.bucket("up", { rate: SLOW });
    const service = await servers.start(sluice, { forward: { up: { to: api.url } } });
    const first = service.get("/up/a");
    await waitUntil(() => api.calls.length === 1, "the first is on its way");
    const second = service.get("/up/b");
    await waitUntil(() => bucket.waiting === 1, "the second waits");

    const closing = service.server.close();
    expect(await second).toMatchObject({ status: 503, json: { code: "ERR_CLOSED" } });
    end();

    expect((await first).text).toBe("half, whole");
    await closing;
  });
});
